"""What of a conversation no longer stands, or not in full, in the request that earlier steps made of it."""

from collections import Counter
from collections.abc import Sequence

from proxy.chat import Message
from proxy.chat.provenance import standing_users


def departed(incoming: Sequence[Message], request: Sequence[Message]) -> list[int]:
    """The places of the messages before the last user message that left, in order; system messages are not counted.

    A tool result that stands there in another form has left, too, and so has a user's message in a short one, but not
    one in which something was marked. A call in another form has not: it is found by its id, the newest first, because
    some clients use an id again.
    """
    there = {id(message) for message in request}
    if all(id(message) in there for message in incoming):
        return []
    there |= standing_users(request, incoming)
    raws = {message.raw for message in request}
    calls = Counter(call for message in request if message.get("tool_calls") for call in message.call_ids)
    gone: list[int] = []
    seen_user = False
    for place in range(len(incoming) - 1, -1, -1):
        message = incoming[place]
        asked = message.call_ids if message.get("tool_calls") else ()
        stands = bool(asked) and all(calls[call] > 0 for call in asked)
        if stands:
            calls.subtract(asked)
        if seen_user and not (stands or id(message) in there or message.is_system or message.raw in raws):
            gone.append(place)
        seen_user = seen_user or message.get("role") == "user"
    return gone[::-1]
