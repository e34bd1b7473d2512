"""Which messages of a request are the client's, also where an earlier step has given them another form.

A step that changes a message makes a copy, and the copy knows what it was made of (`Message.made_of`). So what a step
adds in the user's role, such as a summary, is told from what the user said and a step has marked.
"""

from collections.abc import Mapping, Sequence

from proxy.chat import Message
from proxy.chat.markers import is_shortened, is_to_fit
from proxy.chat.texts import texts_of


def of_client(messages: Sequence[Message], incoming: Sequence[Message]) -> dict[int, int]:
    """The places of the messages that are the client's, each with that of the message as the client sent it."""
    if messages is incoming:  # no step has changed any
        return dict(zip(range(len(incoming)), range(len(incoming)), strict=True))
    places = dict(zip(map(id, incoming), range(len(incoming)), strict=True))
    found: dict[int, int] = {}
    for place, at in enumerate(map(places.get, map(id, messages))):
        sent = at if at is not None else _sent_as(messages[place].made_of, places)
        if sent is not None:
            found[place] = sent
    return found


def _sent_as(message: Message | None, places: Mapping[int, int]) -> int | None:
    """The place of the client's message that one was made of; `places` are by identity."""
    while message is not None:
        if id(message) in places:
            return places[id(message)]
        message = message.made_of
    return None


def standing_users(messages: Sequence[Message], incoming: Sequence[Message], *, fitted: bool = False) -> frozenset[int]:
    """The identities (`id`) of the client's user messages that still say what they said.

    As they were, or with marks in them; one that was shortened does not. With `fitted`, one does that was shortened to
    fit the window: the user's own words stand in it, only the document does not.
    """
    return frozenset(
        id(incoming[at])
        for place, at in of_client(messages, incoming).items()
        if incoming[at].get("role") == "user" and not _is_short(messages[place], incoming[at], fitted=fitted)
    )


def _is_short(message: Message | None, sent: Message, *, fitted: bool) -> bool:
    """Whether a step has shortened it on its way from what was sent; a mark in a short form does not make it whole."""
    while message is not None and message is not sent:
        texts = [text.given for text in texts_of(0, message, "user")]
        if any(is_shortened(text) and not (fitted and is_to_fit(text)) for text in texts):
            return True
        message = message.made_of
    return False
