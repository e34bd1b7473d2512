"""What was found in a long conversation is the same, however much of it is known."""

from collections.abc import Sequence

import pytest

from proxy.chat import Message
from proxy.chat.folds import Folds
from proxy.context import Identity, Uncached, find_in_each
from proxy.state.cache import OnceService
from tests.talk import assistant, user


class Marks:
    """Finds what is marked with a star, and tells how often it looked."""

    def __init__(self) -> None:
        self.looked: list[str] = []

    def __call__(self, message: Message) -> tuple[str, ...]:
        self.looked.append(message.text)
        return tuple(word for word in message.text.split() if word.startswith("*"))


def talk(length: int, marked: Sequence[int]) -> tuple[Message, ...]:
    texts = [f"{n} {'*' if n in marked else ''}{n}" for n in range(length)]
    return tuple(assistant(text) if n % 2 else user(text) for n, text in enumerate(texts))


PLACES = (0, 5, 30, 31, 64)
WHOLE = talk(80, PLACES)


@pytest.mark.parametrize("length", [0, 1, 7, 30, 31, 32, 64, 80])
async def test_the_same_is_found_whatever_is_known(length: int) -> None:
    expected = {n: (f"*{n}",) for n in PLACES if n < length}
    for once in (OnceService().bind(Identity("t")), Uncached()):
        folds = Folds()
        for messages in (WHOLE[: length // 2], WHOLE[:length], WHOLE[:length]):
            found = await find_in_each(folds.begin(), once, "n", Marks(), messages)
        assert found == expected


async def test_a_conversation_that_grows_is_read_once() -> None:
    once, marks, folds = OnceService().bind(Identity("t")), Marks(), Folds()
    for length in range(80):
        found = await find_in_each(folds.begin(), once, "n", marks, WHOLE[:length])
        assert list(found) == [n for n in PLACES if n < length]
    assert len(marks.looked) == len(set(marks.looked)) == 79


@pytest.mark.parametrize("changed", [0, 3, 32, 64])
async def test_a_change_in_the_middle_is_seen_and_nothing_else_is_read_anew(changed: int) -> None:
    once, marks, folds = OnceService().bind(Identity("t")), Marks(), Folds()
    await find_in_each(folds, once, "n", marks, WHOLE)
    marks.looked.clear()
    messages = (*WHOLE[:changed], WHOLE[changed].with_changes(content="*new"), *WHOLE[changed + 1 :])
    found = await find_in_each(folds.begin(), once, "n", marks, messages)
    assert found[changed] == ("*new",)
    assert marks.looked == ["*new"]


async def test_what_left_the_front_moves_the_places() -> None:
    once, folds = OnceService().bind(Identity("t")), Folds()
    await find_in_each(folds, once, "n", Marks(), WHOLE)
    assert list(await find_in_each(folds.begin(), once, "n", Marks(), WHOLE[1:])) == [n - 1 for n in PLACES[1:]]


async def test_tenants_and_names_share_nothing() -> None:
    service, marks = OnceService(), Marks()
    for tenant, name in (("t", "n"), ("other", "n"), ("t", "another")):
        await find_in_each(Folds(), service.bind(Identity(tenant)), name, marks, WHOLE)
    assert len(marks.looked) == 3 * len(WHOLE)
    assert service.forget("other") > 0
    await find_in_each(Folds(), service.bind(Identity("t")), "n", marks, WHOLE)
    assert len(marks.looked) == 3 * len(WHOLE)
