"""Marks for a provider's prompt cache: where `cache_control` stands in a request, and how it is written.

Anthropic keeps a prefix only where a content block is marked, four times at most in a request, and reads tools first,
then the system prompt, then messages (Anthropic's documentation, prompt caching). Other gateways take the marks in
OpenAI's parts.
"""

from collections.abc import Mapping
from typing import Any

from proxy.chat import ROLES, ChatRequest, Message, Tool

FIELD = "cache_control"

MOST = 4
"""The most marks of a request."""


def find_marks(request: ChatRequest) -> list[Mapping[str, Any]]:
    """Return the marks that a client set itself: on tools, on messages and their parts, or for the whole request."""
    holders: list[Mapping[str, Any]] = [request.rest, *request.tools]
    for message in request.messages:
        parts = () if isinstance(message.get("content"), str) else message.parts
        holders += [message, *(part for part in parts if isinstance(part, Mapping))]
    return [mark for holder in holders if isinstance(mark := holder.get(FIELD), Mapping)]


def markable(message: Message) -> bool:
    """Return whether a message can be marked: its last part is text, an image or a file that is not empty.

    One of another role than a conversation has stands for an item that no step may touch.
    """
    parts = message.parts
    return message.role in ROLES and bool(parts) and isinstance(parts[-1], Mapping) and parts[-1].get("text") != ""


def write_marks(request: ChatRequest) -> ChatRequest:
    """Return the request with its marks in it; the same object where it has none."""
    marks = request.cache_marks
    if marks is None:
        return request
    control = {"type": "ephemeral"} if marks.ttl == "5m" else {"type": "ephemeral", "ttl": marks.ttl}
    messages = [
        _marked(message, control) if place in marks.messages else message
        for place, message in enumerate(request.messages)
    ]
    marked = request.with_messages(messages)
    if not (marks.tools and request.tools):
        return marked
    *others, last = request.tools
    return marked.with_tools([*others, Tool(last.with_changes(**{FIELD: control}))])


def unmarked(message: Message) -> Message:
    """Return a message without cache marks. A single text part is a string, with a mark or without."""
    parts = message.get("content")
    listed = parts if isinstance(parts, list) else ()
    if FIELD not in message and len(listed) != 1 and not any(FIELD in part for part in listed):
        return message
    bare = [{key: value for key, value in part.items() if key != FIELD} for part in message.parts]
    is_text = len(bare) == 1 and bare[0].keys() == {"type", "text"}
    return message.without(FIELD).with_changes(content=bare[0]["text"] if is_text else bare if listed else parts)


def _marked(message: Message, control: Mapping[str, Any]) -> Message:
    *others, last = message.parts
    return message.with_changes(content=[*others, {**last, FIELD: control}])
