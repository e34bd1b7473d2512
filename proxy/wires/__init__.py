"""The forms in which clients speak: read as one view for policies, written back into their own bytes."""

import re
from collections.abc import Mapping

from proxy.chat.parse import Body
from proxy.wires.base import ChatWire, Wire
from proxy.wires.messages import MessagesBody
from proxy.wires.messages_answer import MessagesWire
from proxy.wires.responses import ResponsesBody
from proxy.wires.responses_answer import ResponsesWire

WIRES: Mapping[str, Wire] = {wire.name: wire for wire in (ChatWire(), MessagesWire(), ResponsesWire())}
"""All wires, by name."""

_NATIVE = re.compile(r"(?:/v1)?/(messages|responses)(?:/|$)", re.IGNORECASE)


def wire_at(path: str) -> Wire:
    """Return the wire whose errors the clients of a path read."""
    found = _NATIVE.match(path)
    return WIRES[found[1].lower() if found else "chat"]


_OF_RESPONSES = ("input", "previous_response_id", "conversation", "prompt")
_OF_MESSAGES = ("system", "stop_sequences", "anthropic_version", "output_config", "context_management", "thread")
_BLOCKS = re.compile(rb'"type"\s*:\s*"tool_(?:use|result)"')


def body_of(raw: bytes) -> Body:
    """Return a body in the wire that its fields are of; one that reads alike in two is a chat request."""
    body = Body(raw)
    if body.get("messages") is None and any(body.get(name) is not None for name in _OF_RESPONSES):
        return ResponsesBody(raw)
    tools = body.get("tools")
    offered = [tool for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list) else []
    is_messages = any("input_schema" in tool for tool in offered) or _BLOCKS.search(raw) is not None
    return MessagesBody(raw) if is_messages or any(body.get(name) is not None for name in _OF_MESSAGES) else body
