"""The forms in which clients speak: read as one view for policies, written back into their own bytes."""

import re
from collections.abc import Mapping

from proxy.wires.base import Wire
from proxy.wires.chat import ChatWire
from proxy.wires.messages_answer import MessagesWire
from proxy.wires.responses_answer import ResponsesWire

WIRES: Mapping[str, Wire] = {wire.name: wire for wire in (ChatWire(), MessagesWire(), ResponsesWire())}
"""All wires, by name."""

_NATIVE = re.compile(r"(?:/v1)?/(messages|responses)(?:/|$)", re.IGNORECASE)


def wire_at(path: str) -> Wire:
    """Return the wire whose errors the clients of a path read."""
    found = _NATIVE.match(path)
    return WIRES[found[1].lower() if found else "chat"]
