"""What of a conversation no longer stands in the request that earlier steps made of it."""

from collections import Counter
from collections.abc import Sequence

from proxy.chat import Message


def departed(incoming: Sequence[Message], request: Sequence[Message]) -> list[Message]:
    """The messages before the last user message that left, in order; system messages are not counted.

    A tool call or result that stands there in another form has not left: it is found by its id, the newest first,
    because some clients use an id again.
    """
    there = {id(message) for message in request}
    if all(id(message) in there for message in incoming):
        return []
    raws = {message.raw for message in request}
    ids = Counter(key for message in request for key in _ids(message))
    gone: list[Message] = []
    seen_user = False
    for message in reversed(incoming):
        keys = _ids(message)
        shortened = bool(keys) and all(ids[key] > 0 for key in keys)
        if shortened:
            ids.subtract(keys)
        seen_user = seen_user or message.get("role") == "user"
        if seen_user and not (shortened or id(message) in there or message.is_system or message.raw in raws):
            gone.append(message)
    return gone[::-1]


def _ids(message: Message) -> tuple[str, ...]:
    if message.get("role") == "tool":
        return (f"result {message.get('tool_call_id')}",)
    return tuple(f"call {call}" for call in message.call_ids)
