import threading

from proxy.chat import Message
from proxy.once import INLINE, OnceService
from proxy.testing import chat


class Counted:
    """Functions that count how often they run."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.threads: set[str] = set()

    def upper(self, text: str) -> str:
        self.runs.append(text)
        self.threads.add(threading.current_thread().name)
        return text.upper()

    def lower(self, text: str) -> str:
        self.runs.append(text)
        return text.lower()


async def test_the_same_text_is_worked_on_once() -> None:
    counted, once = Counted(), OnceService().bound("t")
    assert [await once.of(counted.upper, "ab"), await once.of(counted.upper, "a" + "b")] == ["AB", "AB"]
    assert counted.runs == ["ab"]


async def test_functions_and_tenants_do_not_share() -> None:
    counted, service = Counted(), OnceService()
    assert await service.bound("t").of(counted.upper, "ab") == "AB"
    assert await service.bound("t").of(counted.lower, "ab") == "ab"
    assert await service.bound("other").of(counted.upper, "ab") == "AB"
    assert len(counted.runs) == 3


async def test_large_texts_go_to_a_thread() -> None:
    counted, service = Counted(), OnceService()
    await service.bound("t").of(counted.upper, "x" * (INLINE + 1))
    assert threading.main_thread().name not in counted.threads
    await service.bound("t").of(counted.upper, "x")
    assert threading.main_thread().name in counted.threads
    service.close()


async def test_what_was_used_longest_ago_is_forgotten() -> None:
    counted, once = Counted(), OnceService(max_bytes=1500).bound("t")
    for text in ("a", "b", "c", "a", "d", "e", "f"):
        await once.of(counted.upper, text)
    counted.runs.clear()
    for text in ("f", "e", "b"):
        await once.of(counted.upper, text)
    assert counted.runs == ["b"]


async def test_odd_text_is_text() -> None:
    counted, once = Counted(), OnceService().bound("t")
    assert await once.of(counted.upper, "\ud800 a") == "\ud800 A"


async def test_each_message_is_worked_on_once() -> None:
    runs: list[str] = []

    def shout(message: Message) -> str:
        runs.append(message.text)
        return message.text.upper()

    service = OnceService()
    once = service.bound("t")
    assert await once.of_each(shout, chat("uab uc").messages) == ["UAB", "UC"]
    assert await once.of_each(shout, chat("uc ud uab").messages) == ["UC", "UD", "UAB"]
    assert runs == ["uab", "uc", "ud"]
    assert await service.bound("other").of_each(shout, chat("uc").messages) == ["UC"]
    assert runs == ["uab", "uc", "ud", "uc"]


def text_of(message: Message) -> str:
    return message.text


async def test_what_cannot_be_remembered_is_worked_out_again() -> None:
    counted, once = Counted(), OnceService(max_bytes=100).bound("t")
    for _ in range(2):
        assert await once.of_each(text_of, chat("ua").messages) == ["ua"]
        assert await once.of(counted.upper, "a") == "A"
    assert counted.runs == ["a", "a"]


async def test_a_key_stands_for_work() -> None:
    counted, service = Counted(), OnceService()
    once = service.bound("t")
    assert await once.of_key(("k", 1), 1, lambda: counted.upper("a")) == "A"
    assert await once.of_key(("k", 1), 1, lambda: counted.upper("b")) == "A"
    assert await once.of_key(("k", 2), INLINE + 1, lambda: counted.upper("b")) == "B"
    assert await service.bound("other").of_key(("k", 1), 1, lambda: counted.upper("c")) == "C"
    assert counted.runs == ["a", "b", "c"]
    assert len(counted.threads) == 2
    service.close()
