"""Conversations for these tests: what a user says, with or without what the assistant says in between."""

from collections.abc import Sequence

from policies.resolve_clashes.dialogue import Clash, Turn, overtaken
from policies.resolve_clashes.reading import read
from proxy.chat import Message


def user(text: str) -> Message:
    return Message({"role": "user", "content": text})


def assistant(text: str) -> Message:
    return Message({"role": "assistant", "content": text})


def turns(messages: Sequence[Message]) -> list[Turn]:
    found: list[Turn] = []
    heard = None
    for place, message in enumerate(messages):
        if message.role == "user":
            found.append(Turn(place, read(message), heard))
            heard = None
        else:
            heard = read(message)
    return found


def clashing(*said: str) -> list[Clash]:
    """What clashes in a conversation in which the user and the assistant speak in turn, the user first."""
    messages = [user(text) if place % 2 == 0 else assistant(text) for place, text in enumerate(said)]
    every = turns(messages)
    return [clash for each in overtaken(every, [None] * len(every)) for clash in each.clashes]
