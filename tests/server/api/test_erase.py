"""Forgetting goes on where a part of it fails, says which, and reaches what a process has in memory."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.config.settings import RecordsSettings
from proxy.context import Identity, Material
from proxy.identity import tenant_named
from proxy.llm.writer import DraftService
from proxy.memories.relevance import MemoryRelevance
from proxy.memories.service import MemoryService
from proxy.memories.table import MemoryTable
from proxy.server.api.erase import Forgetting
from proxy.server.build import Stores
from proxy.state.archive import Archives
from proxy.state.cache import OnceService
from proxy.state.sqlite import SqliteCounters, SqliteStore
from proxy.state.store import StoreError
from proxy.state.workers import Peers, Question
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.record_table import Filters
from proxy.telemetry.records import Records
from proxy.testing import chat
from proxy.vectors.base import Scope
from proxy.vectors.index import IndexService
from tests.telemetry.test_records import made as record
from tests.vectors.made import embedded
from tests.vectors.scripted import Scripted

TENANT = tenant_named("acme")


class Store(SqliteStore):
    """A store in which some keys cannot be deleted."""

    stuck = "-"

    async def delete(self, keys: Collection[str]) -> None:
        if any(key.startswith(self.stuck) for key in keys):
            raise StoreError("read_only")
        await super().delete(keys)


def forgetting(store: SqliteStore, records: Records | None = None, **fields: object) -> Forgetting:
    threads = ThreadPoolExecutor(1)
    count = Metrics("").count_memories
    table = MemoryTable(store, ttl=60, max_users=9, count=count)
    memories = MemoryService(table, MemoryRelevance(None, threads), threads, most=9, merge_at=1.0, count=count)
    given: Any = {"index": None, "peers": Peers(None), "here": (), **fields}
    services: Any = SimpleNamespace(archives=Archives(store), memories=memories)
    stores = Stores(store, SqliteCounters(None), records or Records(RecordsSettings()), 0.0)
    return Forgetting(stores, services, **given)


@pytest.fixture
async def records() -> AsyncGenerator[Records, None]:
    made = Records(RecordsSettings())
    yield made
    await made.aclose()


async def test_what_fails_is_named_and_the_rest_is_forgotten() -> None:
    store = Store(None, 2**20)
    for kind in ("share", "memo", "loop"):
        for tenant in (TENANT, "other"):
            await store.put(f"{kind}/{tenant}/x", b"1", ttl=60)
    store.stuck = "share/"
    told = await forgetting(store).tenant("acme")
    assert (told["complete"], told["failed"]) == (False, {"shares": "read_only"})
    assert (told["forgotten"]["decisions"], told["forgotten"]["tool_rounds"]) == (1, 1)
    assert "shares" not in told["forgotten"]
    store.stuck = "-"
    assert (await forgetting(store).tenant("acme"))["forgotten"]["shares"] == 1
    assert await store.keys("") == ("loop/other/x", "memo/other/x", "share/other/x")


async def test_what_a_request_remembers_meanwhile_is_forgotten_as_well(records: Records) -> None:
    class Slow:
        async def forget_tenant(self, tenant: str) -> None:
            records.add(record("late", tenant))

    records.add(record("early", TENANT))
    told = await forgetting(SqliteStore(None, 2**20), records, index=Slow()).tenant("acme")
    assert told["forgotten"]["requests"] == 2
    assert await records.latest(Filters(), 9) == []


async def test_texts_that_another_worker_has_written_are_written_again(tmp_path: Path) -> None:
    ours, theirs = (Records(RecordsSettings(text=True), tmp_path / "records.db") for _ in range(2))
    there = forgetting(SqliteStore(None, 2**20), theirs)

    class Others(Peers):
        async def ask(self, question: Question) -> list[Any]:
            return [await there._forgotten_here(question)]

    for _ in range(2):
        theirs.add(record("r", TENANT, "u1"))
        (found,) = await theirs.latest(Filters(), 9, text=True)
        assert [message["role"] for message in found["text"]["before"]] == ["user"]
        await forgetting(SqliteStore(None, 2**20), ours, peers=Others(None)).tenant("acme")
        assert await theirs.latest(Filters(), 9) == []
    await ours.aclose()
    await theirs.aclose()


@pytest.mark.parametrize("named", ["acme", TENANT])
async def test_a_tenant_is_known_by_its_name_and_by_its_hash(named: str, records: Records) -> None:
    for tenant in (TENANT, "other", TENANT):
        records.add(record("r", tenant))
    told = await forgetting(SqliteStore(None, 2**20), records).tenant(named)
    assert (told["tenant"], told["forgotten"]["requests"]) == (TENANT, 2)
    assert [each["tenant"] for each in await records.latest(Filters(), 9)] == ["other"]


async def test_vectors_go_and_an_index_that_does_not_work_is_named(tmp_path: Path) -> None:
    made = IndexService(embedded(tmp_path), timeout=30)
    scope = Scope(TENANT, "m")
    await made.put(scope, {"a": (await Scripted().embed(["a"]))[0]})
    told = await forgetting(SqliteStore(None, 2**20), index=made).tenant("acme")
    assert (told["forgotten"]["vectors"], await made.vectors(scope, ["a"])) == (True, [None])
    await made.aclose()
    assert (await forgetting(SqliteStore(None, 2**20), index=made).tenant("acme"))["failed"] == {"vectors": "closed"}


def shouted(text: str) -> str:
    return text.upper()


async def test_results_made_of_its_texts_leave_the_memory() -> None:
    once = OnceService()
    try:
        for tenant in ("t", "other"):
            bound = once.bind(Identity(tenant))
            assert await bound.of(shouted, "abc") == "ABC"
            bound.remember("key", "result")
        assert once.forget("t") == 2
        assert once.bind(Identity("t")).known(["key"]) == [None]
        assert once.bind(Identity("other")).known(["key"]) == ["result"]
        assert once.forget("other") == 2
    finally:
        once.close()


async def test_a_summary_is_not_put_back_by_who_had_it_in_memory() -> None:
    async def write(material: Material, headers: Mapping[str, str]) -> str:
        return "told in short"

    store = SqliteStore(None, 2**20)
    drafts = DraftService(store, write, lambda *_: {}, ttl=1000, deadline=30)
    bound = drafts.bind(Identity("t"), {})
    bound.prepare(Material("d1", "", chat("u1 a1").messages, 500))
    await drafts.drain()
    assert await bound.settled("c1", "d1") == "told in short"
    told = await forgetting(store, here=(drafts.forget,)).tenant("t" * 32)
    assert told["forgotten"]["summaries"] == 0, "another tenant's stay"
    assert drafts.forget("t") == 1
    await store.delete(await store.keys("summary/"))
    assert await bound.settled("c1", "d1") == ""


async def test_what_is_being_written_for_it_is_given_up() -> None:
    begun = asyncio.Event()

    async def write(material: Material, headers: Mapping[str, str]) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    store = SqliteStore(None, 2**20)
    drafts = DraftService(store, write, lambda *_: {}, ttl=1000, deadline=30)
    drafts.bind(Identity("t"), {}).prepare(Material("d1", "", chat("u1 a1").messages, 500))
    await begun.wait()
    drafts.forget("t")
    await drafts.drain()
    assert [key for key in await store.keys("summary/") if not key.endswith("/claim")] == []


async def test_what_was_seen_in_the_store_is_looked_for_again(tmp_path: Path) -> None:
    store = SqliteStore(None, 2**20)
    archives = Archives(store)
    handle = await archives.bind(Identity("t", "named-s")).keep("content")
    await store.delete(await store.keys("archive/"))
    assert archives.forget_seen("t") == 1
    assert await archives.bind(Identity("t", "named-s")).keep("content") == handle
    assert len(await store.keys("archive/")) == 1
