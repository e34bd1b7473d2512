"""What a check finds in the messages of a conversation: each is read once, and a further turn reads what is new."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar

from proxy.chat import Message, raws
from proxy.chat.folds import Folds
from proxy.context import Once

Found = TypeVar("Found")


async def found_in_each(
    folds: Folds,
    once: Once,
    name: Hashable,
    work: Callable[[Message], Found | tuple[()]],
    messages: tuple[Message, ...],
) -> dict[int, Found]:
    """What a pure function finds in messages, by their places; a message in which it finds nothing (`()`) has none.

    `name` stands for the function and all it depends on besides the message.
    """
    form, key = folds.of(messages), ("found", name)
    found: dict[int, Found] | None = form.known(key)
    if found is None:
        count, before = form.resume(key, dict[int, Found]())
        found = {**before, **await _one_by_one(once, name, work, messages[count:], count)}
        form.settle(key, {place: one for place, one in found.items() if place < form.settled})
        form.keep(key, found)
    return {**found}


async def _one_by_one(
    once: Once, name: Hashable, work: Callable[[Message], Found | tuple[()]], messages: Sequence[Message], start: int
) -> dict[int, Found]:
    keys = [(name, hash(raw), len(raw)) for raw in raws(messages)]
    found: dict[int, Found] = {}
    known: list[Any] = once.known(keys)
    for place, (message, key, one) in enumerate(zip(messages, keys, known, strict=True), start):
        if one is None:
            one = await once.of_key(key, key[2], partial(work, message))
        if one:
            found[place] = one
    return found
