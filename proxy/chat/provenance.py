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
    came, find = incoming.form, identities(incoming)

    def extend(before: _KnownPlaces, messages: Sequence[Message]) -> _KnownPlaces:
        own = {**before.places}
        for place, message in enumerate(messages, before.end):
            if (at := sent_as(message, find)) is not None:
                own[place] = at
        return _KnownPlaces(before.end + len(messages), own)

    return request.form.fold(("of the client", came.lineage), _NOTHING, extend).places


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


class StandingPlaces(NamedTuple):
    """The places of the client's messages that a request still has."""

    end: int = 0
    """The messages of the request that were looked at."""
    places: frozenset[int] = frozenset()
    """Of messages as they were, and of the user's with marks in them; one that was shortened does not stand."""
    calls: frozenset[int] = frozenset()
    """Of calls in another form."""


def standing(request: ChatRequest, incoming: ChatRequest, *, fitted: bool = False) -> StandingPlaces:
    """Return which of the client's messages still say what they said.

    With `fitted`, a user's message does that was shortened to fit the window: the user's own words stand in it, only
    the document does not.
    """
    theirs, sent = of_client(request, incoming), incoming.messages

    def extend(before: StandingPlaces, messages: Sequence[Message]) -> StandingPlaces:
        places, calls = set[int](), set[int]()
        for place, message in enumerate(messages, before.end):
            at = theirs.get(place)
            if at is None:
                continue
            own = sent[at]
            if message is own or (message.get("role") == "user" and not _is_short(message, own, fitted=fitted)):
                places.add(at)
            elif message.get("tool_calls"):
                calls.add(at)
        return StandingPlaces(before.end + len(messages), before.places | places, before.calls | calls)

    return request.form.fold(("standing", fitted, incoming.form.lineage), StandingPlaces(), extend)


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
    one in which something was marked, and no call.
    """
    asked_last = incoming.last_user_message
    if request.messages is incoming.messages or asked_last is None:
        return []
    still = standing(request, incoming)
    before = set(range(identities(incoming)(id(asked_last)) or 0))
    before.difference_update(
        still.places, still.calls, incoming.form.places("system messages", lambda message: message.is_system)
    )
    texts = raws(request) if before else frozenset[bytes]()
    return [place for place in sorted(before) if incoming.messages[place].raw not in texts]


def raws(request: ChatRequest) -> frozenset[bytes]:
    """Return the bytes of all messages."""
    empty = frozenset[bytes]()
    return request.form.fold("raws", empty, lambda before, new: before.union([message.raw for message in new]))
