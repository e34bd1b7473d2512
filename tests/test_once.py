import threading

from proxy.once import INLINE, OnceService


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
