"""What is made when, what is remembered, and what happens when it fails; with a backend that does as it is told."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any

import pytest

from proxy.context import Identity
from proxy.text.small_talk import phrases
from proxy.vectors.base import LONGEST, EmbeddingFailed, Scope
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.index import IndexService
from proxy.vectors.making import MOST
from tests.clock import Clock
from tests.vectors.made import embedded
from tests.vectors.scripted import Scripted

LONG = 30.0
"""Seconds that no test waits for."""


class SpyIndex(IndexService):
    """An index that counts what is asked of it, and fails when it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(embedded(folder), timeout=LONG)
        self.points: set[tuple[Scope, str]] = set()
        self.calls: list[tuple[str, str, int]] = []
        self.broken = False
        self.written = asyncio.Event()

    async def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        self.calls.append(("get", scope.tenant, len(ids)))
        if self.broken:
            return [None] * len(ids)
        return await super().vectors(scope, ids)

    async def put(self, scope: Scope, points: Mapping[str, bytes]) -> None:
        self.calls.append(("put", scope.tenant, len(points)))
        if self.broken:
            return
        await super().put(scope, points)
        self.points |= {(scope, id) for id in points}
        self.written.set()

    def count(self, tenant: str, version: str = "scripted-1") -> int:
        """The number of a tenant's points that were written."""
        return sum(scope == Scope(tenant, version) for scope, _ in self.points)

    async def has(self, count: int, version: str = "scripted-1") -> None:
        """Wait until so many points of the tenant `t` are written."""
        while self.count("t", version) < count:
            self.written.clear()
            await self.written.wait()


@pytest.fixture
async def index(tmp_path: Path) -> AsyncGenerator[SpyIndex]:
    spy = SpyIndex(tmp_path / "vectors")
    yield spy
    await spy.aclose()


@pytest.fixture
def backend() -> Scripted:
    return Scripted()


@pytest.fixture
def service(backend: Scripted) -> EmbeddingService:
    return EmbeddingService(backend)


@pytest.fixture
def kept(backend: Scripted, index: SpyIndex) -> EmbeddingService:
    """A service that keeps vectors in the index."""
    return EmbeddingService(backend, index)


async def ask(service: EmbeddingService, query: str, *texts: str, tenant: str = "t", wait: float = LONG) -> list[Any]:
    found = await service.bind(Identity(tenant)).similarities(query, texts, wait=wait)
    return [None if near is None else round(near, 2) for near in found]


async def test_quick_vectors_are_not_kept_in_the_index(index: SpyIndex) -> None:
    class Quick(Scripted):
        is_quick = True

    service = EmbeddingService(Quick(), index)
    assert await ask(service, "a", "a1", "b1") == [1.0, 0.0]
    await service.aclose()
    assert index.calls == []


async def test_nothing_is_loaded_before_anything_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.embedding")
    backend = Scripted()
    service = EmbeddingService(backend)
    assert await ask(service, "a") == []
    assert await ask(service, " ", "\n", wait=LONG) == [None]
    assert backend.loads == 0
    service.warm()
    await service.ready()
    assert (backend.loads, backend.batches) == (1, [])
    assert [record.__dict__["fields"] for record in caplog.records] == [{"model": "scripted"}], "which one is said"
    await service.aclose()
    assert backend.closed


async def test_the_floor_is_the_nearest_phrase_that_asks_nothing() -> None:
    backend = Scripted(batch=500)
    service = EmbeddingService(backend)
    embedder = service.bind(Identity("t"))
    backend.free.clear()
    assert await embedder.floor("c", wait=0) is None
    backend.free.set()
    first = await embedder.floor("c", wait=LONG)
    assert first == pytest.approx(1.0, abs=0.01)  # phrases that begin with neither `a` nor `b`
    assert await embedder.floor(" ", wait=LONG) is None
    made = len(backend.texts)
    await service.bind(Identity("other")).floor("d", wait=LONG)
    assert backend.texts[made:] == ["d"], "the phrases are made once, for all tenants"


async def test_the_nearest_text_is_found_for_many_queries_at_once() -> None:
    embedder = EmbeddingService(Scripted()).bind(Identity("t"))
    near = await embedder.nearest(["a", "b", "c"], ["a1", "b1", "b2"], wait=LONG)
    assert list(near) == pytest.approx([1.0, 1.0, 0.8], abs=0.01)
    assert list(await embedder.nearest(["a"], [], wait=LONG)) == [None]


async def test_noise_is_the_spread_of_texts_that_nobody_asks_for() -> None:
    backend = Scripted(batch=500)
    service = EmbeddingService(backend)
    embedder = service.bind(Identity("t"))
    backend.free.clear()
    assert await embedder.noise(["a", "b", "c"], wait=0) is None
    backend.free.set()
    texts = ["a", "b", "c"]
    table = [await embedder.similarities(phrase, texts, wait=LONG) for phrase in phrases()]
    spreads = [pvariance([each or 0.0 for each in row]) for row in table]
    assert await embedder.noise(texts, wait=LONG) == pytest.approx(sqrt(fmean(spreads)), abs=0.01)
    assert await embedder.noise(["a", " "], wait=LONG) == pytest.approx(0.0, abs=0.01), "a text without a vector"
    assert await embedder.noise([" "], wait=LONG) is None


async def test_what_was_asked_last_comes_first_then_prepared(backend: Scripted, service: EmbeddingService) -> None:
    backend.free.clear()
    service.prepare("t", ["busy", "prepared 1", "prepared 2"])
    await backend.begun.wait()
    first = asyncio.create_task(ask(service, "q1", "old 1", "old 2"))
    await asyncio.sleep(0)
    second = asyncio.create_task(ask(service, "q2", "new 1", "new 2"))
    await asyncio.sleep(0)
    third = asyncio.create_task(ask(service, "q3", "prepared 2"))
    for _ in range(5):
        await asyncio.sleep(0)
    backend.free.set()
    await asyncio.gather(first, second, third)
    assert backend.texts[2:] == ["q3", "q2", "q1", "prepared 2", "new 1", "new 2", "old 1", "old 2"]


async def test_a_batch_is_bounded_in_characters_and_odd_and_endless_texts_are_texts() -> None:
    backend = Scripted(batch=8, characters=10)
    service = EmbeddingService(backend)
    await ask(service, "q", "1" * 6, "2" * 4, "3" * 30, "4")
    assert [len(batch) for batch in backend.batches] == [1, 2, 1, 1]
    backend = Scripted(characters=10**6)
    service = EmbeddingService(backend)
    assert await ask(service, "a\ud800", "b\udfff" + "x" * 10**6) == [0.0]
    assert [len(text) for text in backend.texts] == [2, LONGEST]
    assert all(text.encode() for text in backend.texts)


async def test_what_is_queued_is_not_queued_again(backend: Scripted, service: EmbeddingService) -> None:
    backend.free.clear()
    service.prepare("t", ["a1", "a1", "b1"])
    asking = [asyncio.create_task(ask(service, "a1", "b1", "a1")) for _ in range(3)]
    await backend.begun.wait()
    backend.free.set()
    assert await asyncio.gather(*asking) == [[0.0, 1.0]] * 3
    assert sorted(backend.texts) == ["a1", "b1"]


async def test_after_the_wait_the_answer_is_what_there_is_and_the_work_goes_on() -> None:
    backend = Scripted(batch=1)
    service = EmbeddingService(backend)
    await ask(service, "a", "a1")
    backend.free.clear()
    backend.begun.clear()
    assert await ask(service, "a", "a1", "b1", wait=0.0) == [1.0, None]
    await backend.begun.wait()
    backend.free.set()
    assert await ask(service, "a", "a1", "b1") == [1.0, 0.0]
    assert backend.texts == ["a", "a1", "b1"]


async def test_a_text_that_can_have_no_vector_is_asked_for_once(backend: Scripted, kept: EmbeddingService) -> None:
    backend.refused.add("odd")
    for _ in range(2):
        assert await ask(kept, "a1", "b1", "odd", " ") == [0.0, None, None]
    assert sorted(backend.texts) == ["a1", "b1", "odd"]


async def test_tenants_share_nothing(backend: Scripted, kept: EmbeddingService, index: SpyIndex) -> None:
    for tenant in ("t", "u"):
        assert await ask(kept, "a", "b1", tenant=tenant) == [0.0]
    assert backend.texts == ["a", "b1"] * 2
    await kept.aclose()
    assert {tenant for _, tenant, _ in index.calls} == {"t", "u"}


async def test_a_restart_finds_the_vectors_of_its_own_version_in_the_index(index: SpyIndex) -> None:
    texts = [f"b{number}" for number in range(70)]
    service = EmbeddingService(Scripted(), index)
    await ask(service, "a", *texts)
    await service.aclose()
    await index.has(71)
    assert index.calls[:2] == [("get", "t", 1), ("get", "t", 70)], "one look for all texts"
    backend = Scripted()
    service = EmbeddingService(backend, index)
    assert await ask(service, "a", *texts) == [0.0] * 70
    assert (backend.loads, backend.batches) == (0, [])
    other = Scripted()
    other.version = "scripted/2"
    await ask(EmbeddingService(other, index), "a", "b1")
    assert other.texts == ["a", "b1"]


async def test_a_broken_index_only_costs_time(kept: EmbeddingService, index: SpyIndex) -> None:
    index.broken = True
    assert [await ask(kept, "a", text) for text in ("b1", "b2")] == [[0.0]] * 2
    index.broken = False
    assert await ask(kept, "a", "b3") == [0.0]
    await kept.aclose()
    await index.has(1)


async def test_what_is_forgotten_is_not_made_later(index: SpyIndex) -> None:
    backend = Scripted(batch=1)
    service = EmbeddingService(backend, index)
    backend.free.clear()
    service.prepare("t", ["a1", "a2"])
    await backend.begun.wait()
    service.prepare("u", ["b1"])
    while service._looking:  # until it is in the queue
        await asyncio.sleep(0)
    service.forget("t")
    backend.free.set()
    await service.settled()
    await service.aclose()
    assert backend.texts == ["a1", "b1"]
    assert [index.count(tenant) for tenant in ("t", "u")] == [0, 1]


async def test_what_the_index_has_garbled_is_made_again(
    backend: Scripted, kept: EmbeddingService, index: SpyIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def garbled(scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        return [b"\x02garbage"] * len(ids)

    monkeypatch.setattr(index, "vectors", garbled)
    assert await ask(kept, "a", "b1") == [0.0]
    assert backend.texts == ["a", "b1"]


async def test_memory_is_bounded_and_forgets_what_was_used_longest_ago() -> None:
    backend = Scripted(batch=1)
    service = EmbeddingService(backend, max_bytes=4 * 310)
    await ask(service, "a", "1", "2", "3")
    await ask(service, "a", "1")
    await ask(service, "a", "4")  # takes the place of the second
    backend.batches.clear()
    assert None not in await ask(service, "a", "1", "3", "4", "2")
    assert backend.texts == ["2"]


async def test_the_queue_is_bounded() -> None:
    backend = Scripted(batch=64, characters=10**6)
    service = EmbeddingService(backend)
    backend.free.clear()
    service.prepare("t", ["busy"])
    await backend.begun.wait()
    service.prepare("t", [f"old {number}" for number in range(MOST)])
    asking = asyncio.create_task(ask(service, "a", "new"))
    while not any("new" in wanted.text for wanted in service._pending.values()):
        await asyncio.sleep(0)
    for _ in range(MOST):
        await asyncio.sleep(0)
    backend.free.set()
    assert await asking == [0.6]
    await service.ready()
    assert backend.texts[1:4] == ["a", "new", "old 0"]
    assert MOST // 2 < len(backend.texts) < MOST


async def test_after_a_failure_nothing_is_tried_for_a_while_and_then_again(caplog: pytest.LogCaptureFixture) -> None:
    backend, clock = Scripted(), Clock()
    service = EmbeddingService(backend, clock=clock)
    await ask(service, "a", "a1")
    backend.fault = lambda: EmbeddingFailed("unreachable")
    with caplog.at_level(logging.WARNING):
        assert await ask(service, "a", "a1", "secret", "secret 2", "secret 3") == [1.0, None, None, None]
        tried = len(backend.batches)
        assert await ask(service, "a", "a1", "secret") == [1.0, None]
        service.prepare("t", ["secret"])
        assert len(backend.batches) == tried == 3
        clock.now += 1.0  # the pause is over: one more try, and a longer pause
        assert await ask(service, "a", "secret") == [None]
        clock.now += 1.0
        assert await ask(service, "a", "secret") == [None]
        assert len(backend.batches) == tried + 1
    records = [record.__dict__["fields"] for record in caplog.records]
    assert records == [{"action": "embed", "cause": "unreachable"}]
    assert "secret" not in caplog.text
    clock.now += 60
    backend.fault = None
    assert await ask(service, "a", "secret") == [0.6]


@pytest.mark.parametrize(("fault", "cause", "tries"), [
    (EmbeddingFailed("not_installed", lasting=True), "not_installed", 1),
    (RuntimeError("about the secret"), "RuntimeError", 2),
])  # fmt: skip
async def test_only_a_failure_that_may_pass_is_tried_again(
    caplog: pytest.LogCaptureFixture, fault: Exception, cause: str, tries: int
) -> None:
    backend, clock = Scripted(), Clock()
    backend.fault = lambda: fault
    service = EmbeddingService(backend, clock=clock)
    assert await ask(service, "a", "a1") == [None]
    assert [record.__dict__["fields"]["cause"] for record in caplog.records] == [cause]
    clock.now += 10**9
    assert await ask(service, "a", "a1") == [None]
    assert len(backend.batches) == tries
    assert "secret" not in caplog.text


async def test_another_dimension_makes_the_earlier_vectors_void(backend: Scripted, kept: EmbeddingService) -> None:
    assert await ask(kept, "a", "b1") == [0.0]
    backend.dimensions = 3
    await ask(kept, "a", "b2")
    assert await ask(kept, "a", "b1", "b2") == [0.0, 0.0]
    assert sorted(backend.texts) == ["a", "a", "b1", "b1", "b2"]


async def test_closing_answers_those_who_wait(backend: Scripted, service: EmbeddingService) -> None:
    backend.free.clear()
    asking = asyncio.create_task(ask(service, "a", "b1", "b2", "b3"))
    await backend.begun.wait()
    await service.aclose()
    assert await asking == [None, None, None]
    assert await ask(service, "a", "b1") == [None]


async def test_it_is_behind_while_vectors_come_and_not_failing(backend: Scripted, service: EmbeddingService) -> None:
    embedder = service.bind(Identity("t"))
    assert not embedder.is_behind
    backend.free.clear()
    assert list(await embedder.similarities("a", ["b"], wait=0)) == [None]
    assert embedder.is_behind
    backend.free.set()
    assert list(await embedder.similarities("a", ["b"], wait=LONG)) == [0.0]
    await service.ready()
    assert not embedder.is_behind
    backend.fault = lambda: RuntimeError("broken")
    assert list(await embedder.similarities("a", ["b2"], wait=LONG)) == [None]
    assert not embedder.is_behind


async def test_unpacked_vectors_are_of_the_same_text_and_tenant(backend: Scripted, service: EmbeddingService) -> None:
    texts = ("a1", "b1")
    for _ in range(2):
        assert list(await service.bind(Identity("t")).similarities("a", texts, wait=LONG)) == [1.0, 0.0]
        assert list(await service.bind(Identity("t")).similarities("b", texts, wait=LONG)) == [0.0, 1.0]
    backend.free.clear()
    assert list(await service.bind(Identity("u")).similarities("a", texts, wait=0)) == [None, None]
    assert list(await service.bind(Identity("t")).similarities("a", texts[::-1], wait=LONG)) == [0.0, 1.0]
    assert list(await service.bind(Identity("t")).similarities("new", texts, wait=0)) == [None, None]
    backend.free.set()
