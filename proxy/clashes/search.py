"""The clashes of a conversation, each turn worked out once."""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b

from proxy.chat import Message
from proxy.clashes.dialogue import Clash, Turn, clashes, first_only
from proxy.clashes.reading import read
from proxy.clashes.statements import Said
from proxy.context import Once

_PAIR = 4
"""Characters of reading that take as long as to look up one term of a statement."""


async def found(messages: Sequence[Message], once: Once) -> tuple[Clash, ...]:
    """What the user's messages overtake in each other, in the order of the newer ones, as indexes of `messages`.

    Only the statements of messages that were never seen are read, and only turns that were never seen are compared with
    those before them; much of either runs in a thread.
    """
    talk = [(place, one) for place, one in enumerate(messages) if one.get("role") in ("user", "assistant") and one.text]
    said = await once.of_each(read, [message for _, message in talk])
    digests = await once.of_each(_digest, [message for _, message in talk])
    turns, keys = _turns([message for _, message in talk], said, digests)
    known = once.known(keys)
    missing = [at for at, result in enumerate(known) if result is None]
    if missing:
        size = _PAIR * sum(len(one.keys) for turn in turns for one in turn.said.statements)
        made = await once.of_key(("clashes", keys[missing[-1]], len(missing)), size, partial(_each, turns, missing))
        for at, result in zip(missing, made, strict=True):
            known[at] = result
            once.remember(keys[at], result)
    places = [place for place, _ in talk]
    return tuple(_at_places(each, places) for each in first_only(known))


def _at_places(clash: Clash, places: Sequence[int]) -> Clash:
    older, start, end, newer, newer_start, newer_end, reason, solvable = clash
    return Clash(places[older], start, end, places[newer], newer_start, newer_end, reason, solvable)


def _turns(
    messages: Sequence[Message], said: Sequence[Said], digests: Sequence[bytes]
) -> tuple[list[Turn], list[tuple[str, bytes]]]:
    """The user's messages, each with what the assistant had said; and what the clashes of each depend on, as a key."""
    turns: list[Turn] = []
    keys: list[tuple[str, bytes]] = []
    heard: Said | None = None
    running = blake2b(digest_size=16)
    for at, (message, what, digest) in enumerate(zip(messages, said, digests, strict=True)):
        running.update(digest)
        if message.get("role") == "assistant":
            heard = what
            continue
        turns.append(Turn(at, what, heard))
        keys.append(("clashes of", running.digest()))
        heard = None
    return turns, keys


def _each(turns: Sequence[Turn], wanted: Sequence[int]) -> tuple[tuple[Clash, ...], ...]:
    return tuple(clashes(turns, wanted))


def _digest(message: Message) -> bytes:
    return blake2b(message.raw, digest_size=16).digest()
