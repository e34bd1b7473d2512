"""Records of requests in a store: who reads them, how many there are, and what happens when it is away."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import time
from typing import Any

import pytest

from proxy.state.store import Cause, MemoryStore, StoreError
from proxy.step import Step
from proxy.telemetry import replicas as shared_records
from proxy.telemetry.recent import Record
from proxy.telemetry.replicas import AT_ONCE, LARGEST, SharedRecords


class Shelf(MemoryStore):
    """A store that fails when told to, and notes what is written at once."""

    def __init__(self) -> None:
        super().__init__(2**26)
        self.fault: Cause | None = None
        self.writes: list[int] = []
        self.asked: list[str] = []

    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        self._fail()
        self.writes.append(len(values))
        await super().put_all(values, ttl=ttl)

    async def get(self, key: str, *, ttl: float | None = None) -> bytes | None:
        self._fail()
        self.asked.append(key)
        return await super().get(key, ttl=ttl)

    async def latest(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        self._fail()
        self.asked.append(prefix)
        return await super().latest(prefix, limit=limit)

    def _fail(self) -> None:
        if self.fault is not None:
            raise StoreError(self.fault)


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    made = Shelf()
    yield made
    await made.aclose()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_records, "_GATHER", 0.001)
    monkeypatch.setattr(shared_records, "_AGAIN_EVERY", 0.01)


def record(request_id: str, tenant: str = "ann", *, why: str = "two turns", status: int = 200) -> Record:
    steps = [Step("window_history", "keep", why, 0.001, 1.0)]
    known: dict[str, str | None] = {
        "route": "/v1/chat/completions",
        "model": "m",
        "upstream": "main",
        "chain": "default",
    }
    return Record(
        request_id, tenant, "v1", time(), known, steps, 9, 9, 100, None, None, None, status, 0.1, None, False, None
    )


@asynccontextmanager
async def writing(shared: SharedRecords) -> AsyncGenerator[SharedRecords, None]:
    task = asyncio.ensure_future(shared.write())
    try:
        yield shared
    finally:
        task.cancel()
        await asyncio.wait([task])
        await shared.aclose()


async def found(shared: SharedRecords, request_id: str, tenant: str | None = "ann") -> list[dict[str, Any]]:
    """What there is of an id as soon as there is something."""
    async with asyncio.timeout(60):
        while not (there := await shared.find(request_id, tenant)):
            await asyncio.sleep(0.001)
    return there


async def test_what_one_process_adds_another_finds(shelf: Shelf) -> None:
    async with writing(SharedRecords(shelf)) as here:
        made = record("one")
        here.add(made)
        assert await found(SharedRecords(shelf), "one") == [made.shown()]


async def test_a_record_is_its_tenants_alone(shelf: Shelf) -> None:
    async with writing(SharedRecords(shelf)) as here:
        here.add(record("one", "ann", status=200))
        here.add(record("one", "bob", status=404))
        assert [each["status"] for each in await found(here, "one", "bob")] == [404]
        assert [each["status"] for each in await found(here, "one", "ann")] == [200]
        assert await here.find("one", "eve") == []
        assert {each["tenant"] for each in await here.find("one")} == {"ann", "bob"}, "an operator sees both"


@pytest.mark.parametrize("forged", ["ann/one", "one/", "", "*", "%6fne", "../ann/one", "ann", "/"])
async def test_no_id_reaches_into_another_tenant(shelf: Shelf, forged: str) -> None:
    async with writing(SharedRecords(shelf)) as here:
        here.add(record("one", "ann"))
        here.add(record(forged, "a"))
        await found(here, "one", "ann")
        for tenant in ("a", "", "ann/one", "an"):
            assert not [each for each in await here.find(forged, tenant) if each["tenant"] != tenant]
            assert await here.find("one", tenant) == []
        assert [each["tenant"] for each in await found(here, forged, "a")] == ["a"]


async def test_an_operator_asks_for_no_more_than_there_is_of_an_id(shelf: Shelf) -> None:
    one, other = SharedRecords(shelf), SharedRecords(shelf)
    for n in range(50):
        for tenant in ("ann", "bob", "a/b"):
            one.add(record(f"id/{n}", tenant))
    other.add(record("id/7", "a/b"))
    await one.aclose()
    await other.aclose()
    shelf.asked.clear()
    assert sorted(each["tenant"] for each in await one.find("id/7")) == ["a/b", "a/b", "ann", "bob"]
    assert len(shelf.asked) == 1 + 4, "the names, and the records that they lead to"
    assert await shelf.keys(shelf.asked[0]) == await shelf.keys("explained/id%2F7/")
    assert await one.find("id") == []


async def test_a_value_under_the_wrong_key_is_told_to_nobody(shelf: Shelf) -> None:
    other = json.dumps(record("one", "bob").shown()).encode()
    for n, value in enumerate((other, b"[]", b"no json", b"\xff", b'{"tenant": "ann"}')):
        await shelf.put(f"explain/ann/one/{n}", value, ttl=100)
        await shelf.put(f"explained/two/ann/{n}", b"", ttl=100)
        await shelf.put(f"explain/ann/two/{n}", value, ttl=100)
    assert await SharedRecords(shelf).find("one", "ann") == []
    assert await SharedRecords(shelf).find("two") == [], "nor is one of another id"


async def test_each_process_keeps_its_last_only(shelf: Shelf) -> None:
    here, there = SharedRecords(shelf, most=20), SharedRecords(shelf, most=20)
    for n in range(50):
        for each in (here, there):
            each.add(record(f"{n}"))
            await each.aclose()  # what waits is written at once
    here.add(record("49"))  # once more under the same id: no record more
    await here.aclose()
    assert len(await shelf.keys("explain/")) == len(await shelf.keys("explained/")) == 40
    assert await here.find("29", "ann") == []
    assert len(await here.find("30", "ann")) == 2


async def test_writes_are_few_and_small(shelf: Shelf) -> None:
    here = SharedRecords(shelf)
    for n in range(5 * AT_ONCE):
        here.add(record(f"{n}"))
    assert shelf.writes == [], "adding writes nothing"
    async with writing(here):
        await found(here, f"{5 * AT_ONCE - 1}")
    assert shelf.writes == [2 * AT_ONCE] * 5, "each with its name"


async def test_one_that_is_too_large_or_no_json_holds_up_no_other(shelf: Shelf) -> None:
    async with writing(SharedRecords(shelf)) as here:
        here.add(record("large", why="x" * LARGEST))
        here.add(record("odd", why="\ud800"))
        here.add(record("one"))
        await found(here, "one")
        assert len(await shelf.keys("explain/")) == 1


async def test_records_go_by_themselves(shelf: Shelf) -> None:
    async with writing(SharedRecords(shelf, ttl=0.05)) as here:
        async with asyncio.timeout(60):
            while not await here.find("one", "ann"):  # it may be gone before it was looked for
                here.add(record("one"))
                await asyncio.sleep(0.01)
            while await here.find("one", "ann"):
                await asyncio.sleep(0.01)
        assert here.readable


async def test_a_store_that_is_away_is_said_once_and_made_up_for(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.records")
    async with writing(SharedRecords(shelf, most=30)) as here:
        shelf.fault = "unreachable"
        for n in range(100):
            here.add(record(f"{n}"))
            await asyncio.sleep(0.001)
        assert await here.find("99", "ann") == []
        assert not here.readable
        shelf.fault = None
        for n in range(70, 100):  # as many as there is room for, and the newest of them
            assert await found(here, f"{n}")
        assert here.readable
        assert len(await shelf.keys("explain/")) == 30
    said = [each.getMessage() for each in caplog.records]
    assert said == ["records are not shared", "records are shared again"]


async def test_what_the_store_will_never_take_is_given_up(shelf: Shelf) -> None:
    async with writing(SharedRecords(shelf)) as here:
        shelf.fault = "too_large"
        here.add(record("one"))
        async with asyncio.timeout(60):
            while here._waiting:
                await asyncio.sleep(0.001)
        shelf.fault = None
        here.add(record("two"))
        await found(here, "two")
        assert await here.find("one", "ann") == []
