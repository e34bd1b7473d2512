"""What of a conversation no longer stands, or not in full, in the request that earlier steps made of it."""

from collections import Counter
from collections.abc import Sequence

from proxy.chat import ChatRequest, Message
from proxy.chat.provenance import identities, standing_users
from proxy.chat.wire import last_user


def departed(incoming: ChatRequest, request: ChatRequest) -> list[int]:
    """The places of the messages before the last user message that left, in order; system messages are not counted.

    A tool result that stands there in another form has left, too, and so has a user's message in a short one, but not
    one in which something was marked. A call in another form has not: it is found by its id, the newest first, because
    some clients use an id again.
    """
    if request.messages is incoming.messages:
        return []
    came, sent = identities(incoming), identities(request)
    missing = sorted(map(came.__getitem__, came.keys() - sent.keys()))
    asked_last = last_user(incoming)
    if not missing or asked_last is None:
        return []
    users, texts = standing_users(request, incoming), raws(request)
    changed = [request.messages[sent[one]] for one in sent.keys() - came.keys()]
    calls = Counter(call for message in changed for call in message.call_ids)
    gone: list[int] = []
    for place in reversed(missing):
        message = incoming.messages[place]
        asked = message.call_ids
        if asked and all(calls[call] > 0 for call in asked):
            calls.subtract(asked)
        elif place < came[id(asked_last)] and not (id(message) in users or message.is_system or message.raw in texts):
            gone.append(place)
    return gone[::-1]


def raws(request: ChatRequest) -> frozenset[bytes]:
    """Return the bytes of all messages."""
    return request.form.fold("raws", frozenset[bytes](), _with_raws)


def _with_raws(before: frozenset[bytes], messages: Sequence[Message]) -> frozenset[bytes]:
    return before.union([message.raw for message in messages])
