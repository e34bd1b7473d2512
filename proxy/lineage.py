"""Which messages of a request are the client's, also where an earlier step has given them another form.

A step that changes a message makes a copy, and the copy knows what it was made of (`Message.made_of`). So what a step
adds in the user's role, such as a summary, is told from what the user said and a step has marked.
"""

from collections.abc import Sequence

from proxy.chat import Message
from proxy.forms import is_shortened, texts_of


def of_client(messages: Sequence[Message], incoming: Sequence[Message]) -> dict[int, int]:
    """The places of the messages that are the client's, each with that of the message as the client sent it."""
    places = {id(message): place for place, message in enumerate(incoming)}
    found: dict[int, int] = {}
    for place, message in enumerate(messages):
        each: Message | None = message
        while each is not None:
            if id(each) in places:
                found[place] = places[id(each)]
                break
            each = each.made_of
    return found


def standing_users(messages: Sequence[Message], incoming: Sequence[Message]) -> frozenset[int]:
    """The identities (`id`) of the client's user messages that still say what they said.

    As they were, or with marks in them; one that was shortened does not.
    """
    return frozenset(
        id(incoming[at])
        for place, at in of_client(messages, incoming).items()
        if incoming[at].get("role") == "user" and not _is_short(messages[place], incoming[at])
    )


def _is_short(message: Message | None, sent: Message) -> bool:
    """Whether a step has shortened it on its way from what was sent; a mark in a short form does not make it whole."""
    while message is not None and message is not sent:
        if any(is_shortened(text.given) for text in texts_of(0, message, "user")):
            return True
        message = message.made_of
    return False
