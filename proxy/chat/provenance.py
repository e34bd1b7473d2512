"""The messages of a request that are the client's, also where an earlier step has given them another form.

A step that changes a message makes a copy, and the copy knows what it was made of (`Message.made_of`). So what a step
adds in the user's role, such as a summary, is told from what the user said and a step has marked. Of the client's own
messages it is known which are new (`arrived`), and which no longer stand, or not in full (`departed`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from proxy.chat import ChatRequest, Message
from proxy.chat.markers import is_shortened, is_to_fit
from proxy.chat.texts import texts_of

Places = Mapping[int, int]
FindPlace = Callable[[int], int | None]
"""Returns the place of a message by its identity (`id`), which is its own as long as its request is held."""


class _KnownPlaces(NamedTuple):
    """The known places of the first `end` messages."""

    end: int
    places: Places
    """By place, a place in what the client sent."""
    added: tuple[int, ...] = ()
    """The places of all others."""
    last: int = -1
    """The last one of `places`, in what the client sent."""
    in_order: bool = True
    """True if each of them stands behind the one before it there, too."""


_NOTHING = _KnownPlaces(0, {})

_RECENT = 128
"""Messages in which the places of all are copied once: a request has few new ones."""


class _Identities(NamedTuple):
    """The places of the first `end` messages by their identities."""

    end: int
    recent: dict[int, int]
    earlier: dict[int, int]

    def find(self, identity: int) -> int | None:
        place = self.recent.get(identity)
        return self.earlier.get(identity) if place is None else place


def of_client(request: ChatRequest, incoming: ChatRequest) -> Places:
    """Return the places of the messages that are the client's, each with that of the message as the client sent it."""
    return _known_places(request, incoming).places


def added(request: ChatRequest, incoming: ChatRequest) -> Sequence[int]:
    """Return the places of the messages that are not the client's, in order."""
    return _known_places(request, incoming).added


def in_order(request: ChatRequest, incoming: ChatRequest) -> bool:
    """Return whether the client's messages stand in the order in which it sent them, each once."""
    return _known_places(request, incoming).in_order


def _known_places(request: ChatRequest, incoming: ChatRequest) -> _KnownPlaces:
    came, find = incoming.form, identities(incoming)

    def extend(before: _KnownPlaces, messages: Sequence[Message]) -> _KnownPlaces:
        own, others, last, in_order = {**before.places}, list[int](), before.last, before.in_order
        for place, message in enumerate(messages, before.end):
            if (at := sent_as(message, find)) is None:
                others.append(place)
            else:
                own[place], in_order, last = at, in_order and at > last, at
        return _KnownPlaces(before.end + len(messages), own, (*before.added, *others), last, in_order)

    return request.form.fold(("of the client", came.lineage), _NOTHING, extend)


def identities(request: ChatRequest) -> FindPlace:
    """Return what finds a message of the request."""
    return request.form.fold("identities", _Identities(0, {}, {}), _identified).find


def _identified(before: _Identities, messages: Sequence[Message]) -> _Identities:
    end = before.end + len(messages)
    recent = {**before.recent, **dict(zip(map(id, messages), range(before.end, end), strict=True))}
    if len(recent) < _RECENT:
        return _Identities(end, recent, before.earlier)
    return _Identities(end, {}, {**before.earlier, **recent})


def origin(message: Message) -> Message:
    """Return the message that one was made of, as it was sent."""
    while (before := message.made_of) is not None:
        message = before
    return message


def sent_as(message: Message | None, find: FindPlace) -> int | None:
    """Return the place of the client's message that one was made of."""
    while message is not None:
        if (place := find(id(message))) is not None:
            return place
        message = message.made_of
    return None


def standing(request: ChatRequest, incoming: ChatRequest) -> frozenset[int]:
    """Return the places of the client's messages of which the request still says what they said.

    A user's message does that was shortened to fit the window: the user's own words stand in it, only the document does
    not.
    """
    theirs, sent = of_client(request, incoming), incoming.messages

    def extend(before: tuple[int, frozenset[int]], messages: Sequence[Message]) -> tuple[int, frozenset[int]]:
        end, places = before
        found = [
            at
            for place, message in enumerate(messages, end)
            if (at := theirs.get(place)) is not None and stands(message, sent[at], fitted=True)
        ]
        return end + len(messages), places.union(found)

    return request.form.fold(("standing", incoming.form.lineage), (0, frozenset[int]()), extend)[1]


def stands(message: Message, sent: Message, *, fitted: bool = False) -> bool:
    """Return whether a message still says what was sent: the same one does, and the user's with marks in it.

    One that was shortened does not; with `fitted`, one does that was shortened to fit the window.
    """
    if message is sent or message.get("role") != "user":
        return message is sent
    made: Message | None = message
    while made is not None and made is not sent:
        texts = [text.original for text in texts_of(0, made, "user")]
        if any(is_shortened(text) and not (fitted and is_to_fit(text)) for text in texts):
            return False
        made = made.made_of
    return True


def arrived(messages: Sequence[Message]) -> frozenset[int]:
    """Return the identities (`id`) of the messages that no earlier request of the conversation had, by their order.

    They are the last assistant message, which the client has put there, and what follows it. Without an answer yet
    all is new. So each message of a conversation is new once, but for those that were there before it was first seen.
    """
    return frozenset(map(id, messages[max(0, unanswered(messages) - 1) :]))


def unanswered(messages: Sequence[Message]) -> int:
    """Return the place behind the last message of the model's: no answer has followed what stands there."""
    return next((place for place in range(len(messages), 0, -1) if messages[place - 1].role == "assistant"), 0)


def raws(request: ChatRequest) -> frozenset[bytes]:
    """Return the bytes of all messages."""
    empty = frozenset[bytes]()
    return request.form.fold("raws", empty, lambda before, new: before.union([message.raw for message in new]))
