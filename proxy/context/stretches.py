"""What was found in the messages of a long conversation: looked up by stretches of it, not one message at a time.

Clients send the whole conversation each time, and most messages have nothing that a check looks for. What a stretch of
messages has is remembered together, so a further turn costs a look-up for each stretch, and one for each message behind
the last whole one. A stretch in which anything changed is put together again from its messages.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

from proxy.chat import Message, raws
from proxy.context.services import Once

Found = TypeVar("Found")

STRETCH = 32
"""Messages that are remembered together."""

_Key = tuple[Hashable, int, int, int]
"""Who looks, and what stands for the bytes of some messages: a hash, their length, and how many there are."""


async def found_in_each(
    once: Once, name: Hashable, work: Callable[[Message], Found | tuple[()]], messages: Sequence[Message]
) -> dict[int, Found]:
    """What a pure function finds in messages, by their places; a message in which it finds nothing (`()`) has none.

    `name` stands for the function and all it depends on besides the message.
    """
    texts = raws(messages)
    whole = len(texts) - len(texts) % STRETCH
    keys = [_key_of(name, texts[begin : begin + STRETCH]) for begin in range(0, whole, STRETCH)]
    found: dict[int, Found] = {}
    for begin, key, known in zip(range(0, whole, STRETCH), keys, once.known(keys), strict=True):
        if known is None:
            each = await _one_by_one(once, name, work, messages[begin : begin + STRETCH])
            known = tuple((one, place) for place, one in each.items())
            once.remember(key, known)
        for one, place in known:
            found[begin + place] = one
    for place, one in (await _one_by_one(once, name, work, messages[whole:])).items():
        found[whole + place] = one
    return found


def _key_of(name: Hashable, texts: Sequence[bytes]) -> _Key:
    return name, hash(tuple(map(hash, texts))), sum(map(len, texts)), len(texts)


async def _one_by_one(
    once: Once, name: Hashable, work: Callable[[Message], Found | tuple[()]], messages: Sequence[Message]
) -> dict[int, Found]:
    keys = [_key_of(name, [text]) for text in raws(messages)]
    found: dict[int, Found] = {}
    known: list[Any] = once.known(keys)
    for place, (message, key, one) in enumerate(zip(messages, keys, known, strict=True)):
        if one is None:
            one = await once.of_key(key, key[2], partial(work, message))
        if one:
            found[place] = one
    return found
