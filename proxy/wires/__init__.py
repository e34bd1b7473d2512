"""The forms in which clients speak: read as one view for policies, written back into their own bytes."""

import re
from collections.abc import Mapping

from proxy.wires.base import Wire
from proxy.wires.chat import ChatWire
from proxy.wires.messages_answer import MessagesWire

WIRES: Mapping[str, Wire] = {wire.name: wire for wire in (ChatWire(), MessagesWire())}
"""All wires, by name."""

_MESSAGES = re.compile(r"(?:/v1)?/messages(?:/|$)", re.IGNORECASE)


def wire_at(path: str) -> Wire:
    """Return the wire whose errors the clients of a path read."""
    return WIRES["messages" if _MESSAGES.match(path) else "chat"]
