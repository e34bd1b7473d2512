"""What every store promises, in memory, on disk and on a Redis server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.state.sqlite import SqliteStore
from proxy.state.store import Store, StoreError
from tests.redis_process import RedisProcess
from tests.state.conftest import MovedClock

MIB = 2**20


@pytest.fixture
async def store(place: str, server: RedisProcess | None, tmp_path: Path, clock: MovedClock) -> AsyncIterator[Store]:
    made: Store
    if server is not None:
        made = server.store(largest=MIB // 4, timeout=30.0)
    elif place == "memory":
        made = SqliteStore(None, MIB, clock=clock)
    else:
        made = SqliteStore(tmp_path / "state", MIB, clock=clock)
    yield made
    await made.aclose()


bounded = pytest.mark.parametrize("place", ["memory", "disk"])
"""Of stores with a bound of their own; a Redis server has one for all that it keeps."""


async def test_a_value_comes_back_and_what_was_used_last_comes_first(store: Store, clock: MovedClock) -> None:
    assert await store.get("a") is None
    await store.put("a", b"\0\xff2", ttl=10)
    assert await store.get("a") == b"\0\xff2"
    for _ in range(40):
        clock.now += 1
        await store.put("a", bytes(200_000), ttl=10)
    assert await store.keys("") == ("a",), "overwriting does not add up"
    assert await store.get("a") == bytes(200_000)
    for key in ("a/1", "a/3", "a/2", "b/1", "a/gone"):
        clock.now += 1
        await store.put(key, b"", ttl=10 if key == "a/gone" else 1000)
    clock.now += 100
    await store.touch(["a/1"], ttl=1000)
    assert await store.keys("a/", limit=10, latest=True) == ("a/1", "a/2", "a/3")
    assert await store.keys("a/", limit=1, latest=True) == ("a/1",)
    assert await store.keys("c/", limit=1, latest=True) == ()


async def test_a_value_lives_from_its_last_use(store: Store, clock: MovedClock) -> None:
    await store.put("used", b"1", ttl=100)
    await store.put("touched", b"1", ttl=100)
    await store.put("read", b"1", ttl=100)
    clock.now += 60
    assert await store.get("used", ttl=100)
    assert await store.get("read")
    assert await store.touch(["touched", "missing"], ttl=100) == {"touched"}
    clock.now += 60
    assert await store.get("read") is None
    assert await store.touch(["read"], ttl=100) == frozenset()
    assert await store.keys("") == ("touched", "used")
    clock.now += 60
    assert await store.get("used", ttl=100) is None


async def test_keys_are_found_by_prefix_in_order(store: Store) -> None:
    for key in ("b/2", "a/2", "a/1", "a0", "A/1", "a/1/x"):
        await store.put(key, b"", ttl=10)
    assert await store.keys("a/") == ("a/1", "a/1/x", "a/2")
    assert await store.keys("a/", limit=2) == ("a/1", "a/1/x")
    await store.delete(["a/1", "missing"])
    assert await store.keys("a/") == ("a/1/x", "a/2")
    assert await store.keys("none") == ()


@bounded
async def test_what_was_used_longest_ago_leaves_first(store: Store, clock: MovedClock) -> None:
    for number in range(8):
        clock.now += 1
        await store.put(str(number), bytes(100_000), ttl=10_000)
    clock.now += 1000
    await store.touch(["0"], ttl=10_000)
    await store.get("1", ttl=10_000)
    for number in range(8, 12):
        clock.now += 1
        await store.put(str(number), bytes(100_000), ttl=10_000)
    left = await store.keys("")
    assert {"0", "1", "8", "9", "10", "11"} <= set(left)
    assert "2" not in left
    assert len(left) >= 8


@bounded
async def test_what_was_just_used_never_leaves(store: Store, clock: MovedClock) -> None:
    for number in range(8):
        await store.put(str(number), bytes(100_000), ttl=10_000)
    before = await store.keys("")
    with pytest.raises(StoreError, match="full"):
        for number in range(8, 20):
            await store.put(str(number), bytes(100_000), ttl=10_000)
    assert set(before) <= set(await store.keys(""))
    clock.now += 121
    await store.put("later", bytes(100_000), ttl=10_000)
    assert await store.get("later")


@bounded
async def test_a_busy_store_gives_up_the_oldest_content_and_says_so_before(store: Store, clock: MovedClock) -> None:
    told = []
    for number in range(100):
        clock.now += 10
        await store.put(str(number), bytes(25_000), ttl=10_000)
        told.append((await why_degraded(store), len(await store.keys("0"))))
    begun = told.index(("full", 1))
    assert 25 < begun < 40
    assert told[:begun] == [(None, 1)] * begun
    assert told[-1] == ("full", 0)
    assert [await store.get(str(number)) is None for number in (50, 75)] == [True, False]
    clock.now += 900
    assert await why_degraded(store) is None


async def why_degraded(store: Store) -> str | None:
    assert isinstance(store, SqliteStore)
    await store.look()
    return store.degraded


@bounded
async def test_expired_values_make_room(store: Store, clock: MovedClock) -> None:
    for number in range(8):
        await store.put(str(number), bytes(100_000), ttl=10)
    clock.now += 11
    for number in range(8, 16):
        await store.put(str(number), bytes(100_000), ttl=10)
    assert len(await store.keys("")) == 8


async def test_a_value_that_would_fill_the_store_is_refused_and_a_closed_store_says_so(store: Store) -> None:
    with pytest.raises(StoreError) as refused:
        await store.put("a", bytes(MIB // 4 + 1), ttl=10)
    assert refused.value.cause == "too_large"
    await store.put("a", bytes(MIB // 8), ttl=10)
    await store.put("a", b"1", ttl=10)
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.get("a")


async def test_several_values_are_set_together_or_not_and_adding_at_once_settles_one(store: Store) -> None:
    await store.put("a", b"old", ttl=10)
    await store.put_all({"a": b"1", "b": b"2"}, ttl=10)
    assert (await store.get("a"), await store.get("b")) == (b"1", b"2")
    with pytest.raises(StoreError, match="too_large"):
        await store.put_all({"a": b"3", "c": bytes(MIB // 2)}, ttl=10)
    assert await store.keys("") == ("a", "b")
    assert await store.get("a") == b"1"
    found = await asyncio.gather(*(store.add("a", b"%d" % n, ttl=100) for n in range(20)))
    assert len(set(found)) == 1
    assert await store.get("a") == found[0]


@bounded
async def test_several_values_that_do_not_fit_together_are_not_set_at_all(store: Store) -> None:
    await store.put_all({"a": b"1", "b": b"2"}, ttl=10)
    with pytest.raises(StoreError, match="full"):
        await store.put_all({"a": b"3", **{str(number): bytes(200_000) for number in range(8)}}, ttl=10)
    assert await store.keys("") == ("a", "b")
    assert await store.get("a") == b"1"


async def test_of_several_values_that_are_added_the_first_stays(store: Store, clock: MovedClock) -> None:
    assert await store.add("a", b"1", ttl=100) == b"1"
    assert await store.add("a", b"2", ttl=100) == b"1"
    clock.now += 60
    assert await store.add("a", b"3", ttl=100) == b"1"
    clock.now += 60
    assert await store.get("a") == b"1", "adding is a use"
    clock.now += 60
    assert await store.add("a", b"4", ttl=100) == b"4", "what has expired is gone"
    with pytest.raises(StoreError, match="too_large"):
        await store.add("b", b"x" * MIB, ttl=100)
