import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.chat import Message
from proxy.chat.parse import Body, ParsedList
from proxy.config.settings import ServerSettings
from proxy.context import Identity
from proxy.state.cache import INLINE, REMEMBERED, Cache, OnceService, SharedLimit, TenantCache
from proxy.testing import chat
from tests.chat.test_parse import body_of, large


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


def test_the_least_recently_used_entries_leave_a_full_cache() -> None:
    cache: Cache[int, str] = Cache(100)
    cache.put(0, "used")
    for key in range(1, 1000):
        cache.put(key, str(key))
        assert cache.get(0) == "used"
        assert len(cache) <= 100
    assert cache.get_each([0, 1, 999]) == ["used", None, "999"]


def test_sizes_are_bounded_also_where_values_are_replaced() -> None:
    cache: Cache[int, str] = Cache(10)
    for _ in range(2):
        for key in range(4):
            cache.put(key, "small", 2)
            cache.put(key, "large", 3)
    assert cache.get_each(range(4)) == [None, "large", "large", "large"]
    cache.put(3, "too large", 11)
    assert cache.get_each(range(4)) == [None, "large", "large", None], "what it replaces is gone as well"
    assert cache.pop(2) == "large"
    cache.put(4, "fits again", 7)
    assert cache.get_each([1, 2, 4]) == ["large", None, "fits again"]


def test_caches_that_share_a_limit_take_no_more_together_and_the_largest_makes_room() -> None:
    limit = SharedLimit(100)
    texts, counts = Cache[int, str](limit), Cache[int, int](limit)
    for key in range(10):
        texts.put(key, "text", 10)
    for key in range(100):
        counts.put(key, key)
        assert texts.size + counts.size == limit.size <= 100
    assert (texts.size, counts.size) == (40, 60)
    assert texts.get_each([5, 6]) == [None, "text"], "the least recently used one leaves first"
    assert counts.get_each([39, 40]) == [None, 40]
    texts.put(20, "takes half", 50)
    texts.put(21, "would leave too little to the others", 51)
    assert (texts.get(20), texts.get(21), counts.size) == ("takes half", None, 30)
    texts.clear()
    assert limit.size == 30


def test_what_is_remembered_by_default_is_what_the_settings_say() -> None:
    assert REMEMBERED == 2**20 * ServerSettings().remember_mib == 128 * 2**20


def test_an_entry_expires_after_the_age() -> None:
    now = 0.0
    cache: Cache[str, str] = Cache(10, age=60.0, clock=lambda: now)
    cache.put("a", "A")
    now = 59.0
    assert "a" in cache
    assert cache.get("a") == "A"
    now = 60.0
    assert "a" not in cache
    assert cache.get("a") is None


def test_a_tenant_is_forgotten_and_the_others_are_not() -> None:
    cache: Cache[tuple[str, ...], str] = Cache(10)
    for key in (("t", "s", "1"), ("t", "s", "2"), ("t", "o", "1"), ("tt", "s", "1")):
        cache.put(key, "x")
    assert cache.forget("t", "s") == 2
    assert cache.forget("t") == 1
    assert cache.forget("t") == 0
    assert len(cache) == 1
    cache.clear()
    assert len(cache) == 0


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def service() -> Iterator[OnceService]:
    made = OnceService()
    yield made
    made.close()


async def test_a_text_is_worked_on_once_for_each_function_and_tenant(counted: Counted, service: OnceService) -> None:
    once = service.bind(Identity("t"))
    assert [await once.of(counted.upper, "ab"), await once.of(counted.upper, "a" + "b")] == ["AB", "AB"]
    assert counted.runs == ["ab"]
    assert await once.of(counted.lower, "ab") == "ab"
    assert await service.bind(Identity("other")).of(counted.upper, "ab") == "AB"
    assert len(counted.runs) == 3


async def test_large_texts_go_to_a_thread(counted: Counted, service: OnceService) -> None:
    await service.bind(Identity("t")).of(counted.upper, "x" * (INLINE + 1))
    assert threading.main_thread().name not in counted.threads
    await service.bind(Identity("t")).of(counted.upper, "x")
    assert threading.main_thread().name in counted.threads


async def test_work_that_nobody_waits_for_any_more_is_remembered(counted: Counted, service: OnceService) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def slow(text: str) -> str:
        begun.set()
        assert go_on.wait(30)
        return counted.upper(text)

    def slow_each(message: Message) -> str:
        return slow(message.text)

    once, text = service.bind(Identity("t")), "x" * (INLINE + 1)
    messages = chat(f"u{text}").messages
    for asked in (once.of(slow, text), once.of_each(slow_each, messages)):
        go_on.clear()
        begun.clear()
        asking = asyncio.ensure_future(asked)
        await asyncio.to_thread(begun.wait)
        waiting = asyncio.ensure_future(once.of(counted.lower, text))
        await asyncio.sleep(0)
        for task in (asking, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        go_on.set()
        await once.of(counted.upper, text + str(len(counted.runs)))  # the one thread is free again
    counted.runs.clear()
    assert await once.of(slow, text) == text.upper()
    assert await once.of_each(slow_each, messages) == [messages[0].text.upper()]
    assert counted.runs == [], "both were there"
    await once.of(counted.lower, text)
    assert counted.runs == [text], "what had not begun was dropped"


async def test_work_that_fails_is_not_remembered(service: OnceService) -> None:
    tries = list[str]()

    def fail(text: str) -> str:
        tries.append(text)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await service.bind(Identity("t")).of(fail, "x" * (INLINE + 1))
    assert len(tries) == 2


async def test_each_message_is_worked_on_once(service: OnceService) -> None:
    runs: list[str] = []

    def shout(message: Message) -> str:
        runs.append(message.text)
        return message.text.upper()

    once = service.bind(Identity("t"))
    assert await once.of_each(shout, chat("uab uc").messages) == ["UAB", "UC"]
    assert await once.of_each(shout, chat("uc ud uab").messages) == ["UC", "UD", "UAB"]
    assert runs == ["uab", "uc", "ud"]
    assert await service.bind(Identity("other")).of_each(shout, chat("uc").messages) == ["UC"]
    assert runs == ["uab", "uc", "ud", "uc"]


async def test_what_cannot_be_remembered_is_worked_out_again(counted: Counted) -> None:
    once = OnceService(100).bind(Identity("t"))
    for _ in range(2):
        assert await once.of_each(lambda message: message.text, chat("ua").messages) == ["ua"]
        assert await once.of(counted.upper, "a") == "A"
    assert counted.runs == ["a", "a"]


async def test_a_key_stands_for_work(counted: Counted, service: OnceService) -> None:
    once = service.bind(Identity("t"))
    assert await once.of_key(("k", 1), 1, lambda: counted.upper("a")) == "A"
    assert await once.of_key(("k", 1), 1, lambda: counted.upper("b")) == "A"
    assert await once.of_key(("k", 2), INLINE + 1, lambda: counted.upper("b")) == "B"
    assert await service.bind(Identity("other")).of_key(("k", 1), 1, lambda: counted.upper("c")) == "C"
    assert counted.runs == ["a", "b", "c"]
    assert len(counted.threads) == 2


async def test_what_a_number_stands_in_front_of_counts_in_full() -> None:
    once = OnceService(11_000).bind(Identity("t"))
    for key in range(10):
        once.remember(key, (key, ("x" * 2000,)))
    assert len([each for each in once.known(range(10)) if each is not None]) == 4


async def test_a_long_walk_over_known_texts_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.work_time._TURN", -1.0)
    once, ran = OnceService().bind(Identity("t")), asyncio.Event()
    other = asyncio.create_task(asyncio.sleep(0))
    other.add_done_callback(lambda _: ran.set())
    for _ in range(4):
        await once.of_key("known", 1, lambda: "small")
    assert ran.is_set()


Parsed = Cache[tuple[str, bytes], ParsedList[Any]]


def first_message(parsed: Parsed, tenant: str, raw: bytes) -> int:
    return id(Body(raw, TenantCache(parsed, tenant)).parse().messages[0])


def test_tenants_share_nothing_and_can_be_forgotten() -> None:
    parsed, body = Parsed(2**20), body_of(large("a")).raw
    kept = [Body(body, TenantCache(parsed, tenant)).parse() for tenant in ("ann", "bob")]

    assert first_message(parsed, "ann", body) == id(kept[0].messages[0]) != id(kept[1].messages[0])
    assert parsed.forget("ann") == 2, "its messages and its tools"
    assert first_message(parsed, "ann", body) != id(kept[0].messages[0])
    assert first_message(parsed, "bob", body) == id(kept[1].messages[0])
