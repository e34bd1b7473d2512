"""What was found in a long conversation is the same, however much of it is known."""

from collections.abc import Sequence

import pytest

from proxy.chat import Message
from proxy.context import Identity, Uncached
from proxy.context.stretches import STRETCH, found_in_each
from proxy.state.cache import OnceService


class Marks:
    """Finds what is marked with a star, and tells how often it looked."""

    def __init__(self) -> None:
        self.looked: list[str] = []

    def __call__(self, message: Message) -> tuple[str, ...]:
        self.looked.append(message.text)
        return tuple(word for word in message.text.split() if word.startswith("*"))


def talk(length: int, marked: Sequence[int]) -> list[Message]:
    return [Message({"role": "user", "content": f"{n} {'*' if n in marked else ''}{n}"}) for n in range(length)]


PLACES = (0, 5, STRETCH - 1, STRETCH, 2 * STRETCH + 1)
LENGTHS = (0, 1, STRETCH - 1, STRETCH, STRETCH + 1, 2 * STRETCH, 2 * STRETCH + 5)


@pytest.mark.parametrize("length", LENGTHS)
async def test_the_same_is_found_whatever_is_known(length: int) -> None:
    expected = {n: (f"*{n}",) for n in PLACES if n < length}
    once = OnceService().bind(Identity("t"))
    for _ in range(2):
        assert await found_in_each(once, "n", Marks(), talk(length, PLACES)) == expected
    assert await found_in_each(Uncached(), "n", Marks(), talk(length, PLACES)) == expected


async def test_a_conversation_that_grows_is_read_once() -> None:
    once, marks = OnceService().bind(Identity("t")), Marks()
    for length in range(3 * STRETCH):
        found = await found_in_each(once, "n", marks, talk(length, PLACES))
        assert list(found) == [n for n in PLACES if n < length]
    assert len(marks.looked) == len(set(marks.looked)) == 3 * STRETCH - 1


@pytest.mark.parametrize("changed", [0, 3, STRETCH, 2 * STRETCH])
async def test_a_change_in_the_middle_is_seen_and_nothing_else_is_read_anew(changed: int) -> None:
    once, marks = OnceService().bind(Identity("t")), Marks()
    messages = talk(2 * STRETCH + 3, PLACES)
    await found_in_each(once, "n", marks, messages)
    marks.looked.clear()
    messages[changed] = messages[changed].with_changes(content="*new")
    found = await found_in_each(once, "n", marks, messages)
    assert found[changed] == ("*new",)
    assert marks.looked == ["*new"]


async def test_what_left_the_front_moves_the_places() -> None:
    once, messages = OnceService().bind(Identity("t")), talk(2 * STRETCH + 3, PLACES)
    await found_in_each(once, "n", Marks(), messages)
    assert list(await found_in_each(once, "n", Marks(), messages[1:])) == [n - 1 for n in PLACES[1:]]


async def test_tenants_and_names_share_nothing() -> None:
    service, marks, messages = OnceService(), Marks(), talk(STRETCH + 1, PLACES)
    for tenant, name in (("t", "n"), ("other", "n"), ("t", "another")):
        await found_in_each(service.bind(Identity(tenant)), name, marks, messages)
    assert len(marks.looked) == 3 * (STRETCH + 1)
    assert service.forget("other") > 0
    await found_in_each(service.bind(Identity("t")), "n", marks, messages)
    assert len(marks.looked) == 3 * (STRETCH + 1)


async def test_what_does_not_fit_is_found_again() -> None:
    service, messages = OnceService(max_bytes=2000), talk(3 * STRETCH, range(3 * STRETCH))
    for _ in range(2):
        found = await found_in_each(service.bind(Identity("t")), "n", Marks(), messages)
        assert found == {n: (f"*{n}",) for n in range(3 * STRETCH)}
