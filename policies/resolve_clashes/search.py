"""The clashes of a conversation, each turn worked out once."""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from policies.resolve_clashes.dialogue import Clash, Turn, overtaken
from policies.resolve_clashes.reading import read
from policies.resolve_clashes.statements import Said
from proxy.chat import Message
from proxy.context import Once

_OF_TALK = ("user", "assistant")
_STATEMENT = 30
"""Characters of reading that take as long as to look up what may contradict a statement."""


async def found(messages: Sequence[Message], once: Once) -> tuple[Clash, ...]:
    """What the user's messages overtake in each other, in the order of the newer ones, as indexes of `messages`.

    Only the statements of messages that were never seen are read, and only turns that were never seen are compared with
    those before them; much of either runs in a thread.
    """
    talk = [(place, one) for place, one in enumerate(messages) if one.get("role") in _OF_TALK and one.text]
    turns, keys = _turns(await once.of_each(_heard, [message for _, message in talk]))
    known = once.known(keys)
    missing = [at for at, result in enumerate(known) if result is None]
    if missing:
        size = _STATEMENT * sum([len(turn.said.statements) for turn in turns])
        work = partial(overtaken, turns, tuple(known))
        made = await once.of_key(("clashes", keys[missing[-1]], len(missing)), size, work)
        for at, result in zip(missing, made, strict=True):
            known[at] = result
            once.remember(keys[at], result)
    places = [place for place, _ in talk]
    return tuple([_at_places(each, places) for of_turn in known for each in of_turn.clashes])


def _at_places(clash: Clash, places: Sequence[int]) -> Clash:
    older, start, end, newer, newer_start, newer_end, reason, solvable, was, now = clash
    return Clash(places[older], start, end, places[newer], newer_start, newer_end, reason, solvable, was, now)


class _Heard(NamedTuple):
    """What is remembered of a message."""

    is_user: bool
    said: Said
    digest: bytes


def _heard(message: Message) -> _Heard:
    return _Heard(message.get("role") == "user", read(message), blake2b(message.raw, digest_size=16).digest())


def _turns(heard: Sequence[_Heard]) -> tuple[list[Turn], list[tuple[str, bytes]]]:
    """The user's messages, each with what the assistant had said; and what the clashes of each depend on, as a key."""
    turns: list[Turn] = []
    keys: list[tuple[str, bytes]] = []
    before: Said | None = None
    running = blake2b(digest_size=16)
    for at, (is_user, said, digest) in enumerate(heard):
        running.update(digest)
        if is_user:
            turns.append(Turn(at, said, before))
            keys.append(("clashes of", running.digest()))
        before = None if is_user else said
    return turns, keys
