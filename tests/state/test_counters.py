"""Counts of one process and of several: what is added is there, what is old is gone, what is broken says so."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from proxy.state.redis import RedisCounters
from proxy.state.sqlite import SqliteCounters
from proxy.state.store import Counters
from tests.redis_process import RedisProcess
from tests.state.conftest import MovedClock


@pytest.fixture
async def counters(
    server: RedisProcess | None, place: str, tmp_path: Path, clock: MovedClock
) -> AsyncGenerator[Counters, None]:
    if server is not None:
        async with aclosing(server.store(timeout=30.0)) as store:
            yield RedisCounters(store.server)
        return
    async with aclosing(SqliteCounters(None if place == "memory" else tmp_path, clock=clock)) as made:
        yield made


async def test_adding_gives_what_the_counts_then_are(counters: Counters) -> None:
    assert await counters.add({"a": 1, "b": 0.25}, ttl=60) == {"a": 1, "b": 0.25}
    assert await counters.add({"a": 2, "c": 0}, ttl=60) == {"a": 3, "c": 0}
    assert await counters.add({"a": -1, "b": 0.5}, ttl=60) == {"a": 2, "b": 0.75}
    assert await counters.add({}, ttl=60) == {}


async def test_a_count_is_forgotten_so_long_after_it_was_last_added_to(counters: Counters, clock: MovedClock) -> None:
    await counters.add({"a": 1}, ttl=60)
    clock.now += 59
    assert await counters.add({"a": 1}, ttl=60) == {"a": 2}
    clock.now += 59
    assert await counters.add({"a": 0}, ttl=60) == {"a": 2}
    clock.now += 60
    assert await counters.add({"a": 1}, ttl=60) == {"a": 1}
    for _ in range(2):
        assert await counters.add({"short": 1}, ttl=1) == {"short": 1}
        clock.now += 1


async def test_reading_adds_nothing_and_prolongs_nothing(counters: Counters, clock: MovedClock) -> None:
    await counters.add({"a": 2, "b": 0.25}, ttl=60)
    clock.now += 59
    many = {f"none{n}": 0.0 for n in range(600)}
    assert await counters.read(["b", *many, "a"]) == {"b": 0.25, "a": 2, **many}
    assert await counters.read([]) == {}
    clock.now += 1
    assert await counters.read(["a"]) == {"a": 0}


async def test_no_addition_is_lost_among_many_at_once(counters: Counters) -> None:
    given = await asyncio.gather(*(counters.add({"a": 1, f"own{n}": 1}, ttl=60) for n in range(100)))
    assert sorted(each["a"] for each in given) == list(range(1, 101))


on_disk = pytest.mark.parametrize("place", ["disk"])


@pytest.fixture
async def disks(tmp_path: Path, clock: MovedClock) -> AsyncGenerator[Callable[[], SqliteCounters], None]:
    made: list[SqliteCounters] = []

    def another() -> SqliteCounters:
        made.append(SqliteCounters(tmp_path / "counters", clock=clock))
        return made[-1]

    yield another
    for each in made:
        await each.aclose()


@on_disk
async def test_workers_share_what_is_on_disk_and_restarts_keep_it(disks: Callable[[], SqliteCounters]) -> None:
    one, other = disks(), disks()
    given = await asyncio.gather(*(worker.add({"a": 1}, ttl=60) for _ in range(40) for worker in (one, other)))
    assert sorted(each["a"] for each in given) == list(range(1, 81))
    await one.aclose()
    await other.aclose()
    assert await disks().add({"a": 0}, ttl=60) == {"a": 80}


@on_disk
async def test_the_forgotten_is_removed(disks: Callable[[], SqliteCounters], tmp_path: Path, clock: MovedClock) -> None:
    counters = disks()
    await counters.add({f"once{n}": 1 for n in range(50)}, ttl=10)
    clock.now += 100
    await counters.add({"a": 1}, ttl=10)
    assert await counters._database.run(lambda rows: rows.execute("SELECT key FROM counts").fetchall()) == [("a",)]


@on_disk
async def test_a_file_that_is_no_database_is_begun_anew(disks: Callable[[], SqliteCounters], tmp_path: Path) -> None:
    (tmp_path / "counters").mkdir()
    (tmp_path / "counters" / "counters.db").write_bytes(b"no database" * 500)
    assert await disks().add({"a": 1}, ttl=60) == {"a": 1}
