"""The messages of a request that are the client's, also where an earlier step has given them another form.

A step that changes a message makes a copy, and the copy knows what it was made of (`Message.made_of`). So what a step
adds in the user's role, such as a summary, is told from what the user said and a step has marked. Of the client's own
messages it is known which are new (`arrived`), and which no longer stand, or not in full (`departed`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proxy.chat import ChatRequest, Message
from proxy.chat.markers import is_shortened, is_to_fit
from proxy.chat.texts import texts_of
from proxy.chat.wire import last_user

Places = Mapping[int, int]


class _KnownPlaces(NamedTuple):
    """The known places of the first `end` messages."""

    end: int
    places: Places
    """By place, or by identity (`id`), a place in what the client sent."""


_NOTHING = _KnownPlaces(0, {})


def of_client(request: ChatRequest, incoming: ChatRequest) -> Places:
    """Return the places of the messages that are the client's, each with that of the message as the client sent it."""
    came, places = incoming.form, identities(incoming)

    def extend(before: _KnownPlaces, messages: Sequence[Message]) -> _KnownPlaces:
        own = {**before.places}
        for place, message in enumerate(messages, before.end):
            at = places.get(id(message))
            if at is None:
                at = sent_as(message.made_of, places)
            if at is not None:
                own[place] = at
        return _KnownPlaces(before.end + len(messages), own)

    return request.form.fold(("of the client", came.lineage), _NOTHING, extend).places


def identities(request: ChatRequest) -> Places:
    """Return the place of each message by its identity (`id`), which is its own as long as the request is held."""
    return request.form.fold("identities", _NOTHING, _identified).places


def _identified(before: _KnownPlaces, messages: Sequence[Message]) -> _KnownPlaces:
    end = before.end + len(messages)
    return _KnownPlaces(end, {**before.places, **dict(zip(map(id, messages), range(before.end, end), strict=True))})


def origin(message: Message) -> Message:
    """Return the message that one was made of, as it was sent."""
    while (before := message.made_of) is not None:
        message = before
    return message


def sent_as(message: Message | None, places: Places) -> int | None:
    """Return the place of the client's message that one was made of; `places` are by identity."""
    while message is not None:
        if id(message) in places:
            return places[id(message)]
        message = message.made_of
    return None


class _Standing(NamedTuple):
    end: int = 0
    users: frozenset[int] = frozenset()


def standing_users(request: ChatRequest, incoming: ChatRequest, *, fitted: bool = False) -> frozenset[int]:
    """Return the identities (`id`) of the client's user messages that still say what they said.

    As they were, or with marks in them; one that was shortened does not. With `fitted`, one does that was shortened to
    fit the window: the user's own words stand in it, only the document does not.
    """
    theirs, sent = of_client(request, incoming), incoming.messages

    def extend(before: _Standing, messages: Sequence[Message]) -> _Standing:
        users = {
            id(sent[at])
            for place, message in enumerate(messages, before.end)
            if message.get("role") == "user"
            and (at := theirs.get(place)) is not None
            and not _is_short(message, sent[at], fitted=fitted)
        }
        return _Standing(before.end + len(messages), before.users | users)

    name = "standing users", fitted, incoming.form.lineage
    return request.form.fold(name, _Standing(), extend).users


def _is_short(message: Message | None, sent: Message, *, fitted: bool) -> bool:
    """Return whether a step has shortened it on its way from what was sent; a mark does not make it whole."""
    while message is not None and message is not sent:
        texts = [text.original for text in texts_of(0, message, "user")]
        if any(is_shortened(text) and not (fitted and is_to_fit(text)) for text in texts):
            return True
        message = message.made_of
    return False


def arrived(messages: Sequence[Message]) -> frozenset[int]:
    """Return the identities (`id`) of the messages that no earlier request of the conversation had, by their order.

    They are the last assistant message, which the client has put there, and what follows it. Without an answer yet
    all is new. So each message of a conversation is new once, but for those that were there before it was first seen.
    """
    return frozenset(map(id, messages[max(0, unanswered(messages) - 1) :]))


def unanswered(messages: Sequence[Message]) -> int:
    """Return the place behind the last message of the model's: no answer has followed what stands there."""
    return next((place for place in range(len(messages), 0, -1) if messages[place - 1].role == "assistant"), 0)


def departed(incoming: ChatRequest, request: ChatRequest) -> list[int]:
    """Return the places of messages before the last user message that left, in order, but for system messages.

    A tool result that stands there in another form has left, too, and so has a user's message in a short one, but not
    one in which something was marked. A call in another form has not: it is found by its id, the newest first, because
    some clients use an id again.
    """
    if request.messages is incoming.messages:
        return []
    came, sent = identities(incoming), identities(request)
    asked_last = last_user(incoming)
    missing = {came[one] for one in came.keys() - sent.keys() - standing_users(request, incoming)}
    if not missing or asked_last is None:
        return []
    changed = [request.messages[sent[one]] for one in sent.keys() - came.keys()]
    calls = Counter(call for message in changed if "tool_calls" in message for call in message.call_ids)
    for place in sorted(missing.intersection(incoming.form.places("calls", _calls)), reverse=True):
        asked = incoming.messages[place].call_ids
        if all(calls[call] > 0 for call in asked):
            calls.subtract(asked)
            missing.remove(place)
    missing.difference_update(incoming.form.places("system messages", _is_system))
    last, texts = came[id(asked_last)], raws(request)
    return [place for place in sorted(missing) if place < last and incoming.messages[place].raw not in texts]


def _calls(message: Message) -> bool:
    return bool(message.get("tool_calls"))


def _is_system(message: Message) -> bool:
    return message.is_system


def raws(request: ChatRequest) -> frozenset[bytes]:
    """Return the bytes of all messages."""
    return request.form.fold("raws", frozenset[bytes](), _with_raws)


def _with_raws(before: frozenset[bytes], messages: Sequence[Message]) -> frozenset[bytes]:
    return before.union([message.raw for message in messages])
