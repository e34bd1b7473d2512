"""Which messages of a request are the client's, also where an earlier step has given them another form.

A step that changes a message makes a copy, and the copy knows what it was made of (`Message.made_of`). So what a step
adds in the user's role, such as a summary, is told from what the user said and a step has marked.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proxy.chat import ChatRequest, Message
from proxy.chat.markers import is_shortened, is_to_fit
from proxy.chat.texts import texts_of

Places = Mapping[int, int]


class _KnownPlaces(NamedTuple):
    """What is known of the first `end` messages."""

    end: int
    places: Places
    """By place, or by identity (`id`), a place in what the client sent."""


_NOTHING = _KnownPlaces(0, {})


def of_client(request: ChatRequest, incoming: ChatRequest) -> Places:
    """Return the places of the messages that are the client's, each with that of the message as the client sent it."""
    came, places = incoming.form, identities(incoming)

    def extend(before: _KnownPlaces, messages: Sequence[Message]) -> _KnownPlaces:
        found = {**before.places}
        for place, message in enumerate(messages, before.end):
            at = places.get(id(message))
            if at is None:
                at = sent_as(message.made_of, places)
            if at is not None:
                found[place] = at
        return _KnownPlaces(before.end + len(messages), found)

    return request.form.fold(("of the client", came.lineage), _NOTHING, extend).places


def identities(request: ChatRequest) -> Places:
    """Return the place of each message by its identity (`id`), which is its own as long as the request is held."""
    return request.form.fold("identities", _NOTHING, _identified).places


def _identified(before: _KnownPlaces, messages: Sequence[Message]) -> _KnownPlaces:
    end = before.end + len(messages)
    return _KnownPlaces(end, {**before.places, **dict(zip(map(id, messages), range(before.end, end), strict=True))})


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
    """Whether a step has shortened it on its way from what was sent; a mark in a short form does not make it whole."""
    while message is not None and message is not sent:
        texts = [text.given for text in texts_of(0, message, "user")]
        if any(is_shortened(text) and not (fitted and is_to_fit(text)) for text in texts):
            return True
        message = message.made_of
    return False
