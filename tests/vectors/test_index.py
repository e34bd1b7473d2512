"""What the service does while an index is broken, slow or gone, and when it comes back."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.telemetry.metrics import Metrics
from proxy.vectors.base import IndexFailed, Scope
from proxy.vectors.embedded import Embedded
from proxy.vectors.index import IndexService
from proxy.vectors.qdrant_server import PointServer
from tests.clock import Clock
from tests.vectors.made import T, points
from tests.vectors.qdrant_server import QdrantServer

LONG = 30.0


class Faulty(Embedded):
    """Fails or waits when it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 2**20, ttl=3600.0)
        self.fault: Callable[[], Exception] | None = None
        self.free = threading.Event()
        self.free.set()
        self.calls = 0

    def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        self.calls += 1
        self.free.wait()
        if self.fault is not None:
            raise self.fault()
        return super().vectors(scope, ids)


@pytest.fixture
async def faulty(tmp_path: Path) -> AsyncGenerator[Faulty]:
    index = Faulty(tmp_path / "vectors")
    yield index
    index.free.set()


async def cause(index: IndexService) -> str:
    try:
        await index._run("vectors", partial(index._index.vectors, T, ["p0"]))
    except IndexFailed as error:
        return error.cause
    return ""


async def test_it_is_left_alone_for_a_while_and_says_so_once(faulty: Faulty, caplog: pytest.LogCaptureFixture) -> None:
    clock, metrics = Clock(), Metrics("1")
    index = IndexService(
        faulty,
        failed=lambda *labels: metrics.of("index_failures", *labels).inc(),
        degraded=metrics.of("index_degraded").set,
        clock=clock,
    )
    assert await cause(index) == ""
    assert index.degraded is None
    faulty.fault = lambda: RuntimeError("about the secret")
    with caplog.at_level(logging.INFO):
        assert [await cause(index) for _ in range(5)] == ["RuntimeError"] * 5
        assert faulty.calls == 2
        assert index.degraded == "RuntimeError"
        assert b"penstock_index_degraded 1.0" in metrics.render("")[1]
        clock.now += 1.0
        faulty.fault = lambda: IndexFailed("full")
        assert [await cause(index) for _ in range(2)] == ["full"] * 2  # one more try, and a longer pause
        clock.now += 1.0
        assert await cause(index) == "full"
        assert faulty.calls == 3
        clock.now += 1.0
        faulty.fault = None
        assert await cause(index) == ""
    assert index.degraded is None
    shown = metrics.render("")[1]
    assert b"penstock_index_degraded 0.0" in shown
    assert b'penstock_index_failures_total{cause="full",operation="vectors"} 1.0' in shown
    assert len(caplog.records) == 2
    assert "secret" not in caplog.text
    for _ in range(2):
        await index.aclose()
        assert await cause(index) == "closed"


async def test_a_slow_index_is_given_up_and_does_not_hold_up_others(faulty: Faulty) -> None:
    clock = Clock()
    index = IndexService(faulty, timeout=1.0, clock=clock)
    faulty.free.clear()
    assert [await cause(index) for _ in range(3)] == ["slow"] * 3
    assert faulty.calls == 1
    faulty.free.set()
    clock.now += 60
    while await cause(index):  # the timeout of this test is short: it may need some tries
        clock.now += 60
    await index.aclose()


async def test_a_caller_that_leaves_harms_nobody(faulty: Faulty) -> None:
    index = IndexService(faulty, timeout=LONG)
    faulty.free.clear()
    asking = asyncio.create_task(index.vectors(T, ["p0"]))
    while not faulty.calls:
        await asyncio.sleep(0.001)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    faulty.free.set()
    assert await cause(index) == ""
    await index.aclose()


async def test_more_than_enough_is_refused(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.vectors.index._MOST_WAITING", 4)
    index = IndexService(faulty, timeout=LONG)
    faulty.free.clear()
    asking = [asyncio.create_task(cause(index)) for _ in range(6)]
    for _ in range(10):
        await asyncio.sleep(0)
    faulty.free.set()
    assert sorted(await asyncio.gather(*asking)) == ["", "", "", "", "busy", "busy"]
    assert index.degraded is None
    await index.aclose()


async def test_without_the_library_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "qdrant_client", None)
    index = IndexService(PointServer("http://127.0.0.1:9", None, "penstock", LONG), timeout=LONG, clock=Clock())
    for _ in range(2):
        await index.put(T, points(1))
    assert index.degraded == "not_installed"
    await index.aclose()


@pytest.fixture
def server() -> Iterator[QdrantServer]:
    with QdrantServer() as made:
        yield made


def asking(server: QdrantServer, **options: Any) -> IndexService:
    return IndexService(PointServer(server.url, "secret-key", "penstock", LONG), timeout=LONG, **options)


@pytest.fixture
async def remote(server: QdrantServer) -> AsyncGenerator[IndexService]:
    """An index on the server."""
    made = asking(server)
    yield made
    await made.aclose()


async def test_a_look_finds_out_what_no_call_would(faulty: Faulty) -> None:
    clock, server = Clock(), QdrantServer()
    index = asking(server, clock=clock)
    await index.look()
    assert index.degraded is None
    server.close()
    await index.look()
    assert index.degraded == "unreachable"
    with QdrantServer(server.port, server.client):
        await index.look()
        assert index.degraded == "unreachable", "it is left alone for a while"
        clock.now += 60
        await index.look()
        assert index.degraded is None
        await index.aclose()
    # one without a server shows what is wrong when it is used, and only then
    embedded = IndexService(faulty, clock=clock)
    faulty.fault = RuntimeError
    assert await cause(embedded) == "RuntimeError"
    clock.now += 60
    await embedded.look()
    assert embedded.degraded == "RuntimeError"


async def test_a_server_that_was_flushed_is_filled_again(server: QdrantServer, remote: IndexService) -> None:
    await remote.put(T, points(5))
    server.flush()
    assert await remote.vectors(T, ["p0"]) == [None]
    await remote.put(T, points(5))
    assert None not in await remote.vectors(T, ["p0", "p4"])
    server.flush()
    await remote.put(T, points(4))
    assert [each is not None for each in await remote.vectors(T, ["p3", "p4"])] == [True, False]
    assert remote.degraded is None


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_what_a_server_refuses(server: QdrantServer, remote: IndexService, status: int) -> None:
    server.status = status
    await remote.put(T, points(1))
    assert remote.degraded == f"status_{status}"
    assert await remote.vectors(T, ["p0"]) == [None]


async def test_replicas_share_a_server_and_make_collections_once(server: QdrantServer, remote: IndexService) -> None:
    other = asking(server)
    await asyncio.gather(*(each.put(T, points(20)) for each in (remote, other)))
    assert all([None not in await each.vectors(T, ["p0", "p19"]) for each in (remote, other)])
    assert [each is not None for each in await remote.vectors(T, ["p1", "x"])] == [True, False]
    assert server.keys == {"secret-key"}
    (name,) = [each.name for each in server.client.get_collections().collections]
    assert name.startswith("penstock-texts-model-1-")
    assert {field: schema.is_tenant for field, schema in server.indexes[name].items()} == {"tenant": True}
    await other.aclose()


async def test_a_batch_is_one_request_each_way(server: QdrantServer, remote: IndexService) -> None:
    await remote.put(T, points(1))
    server.requests.clear()
    await remote.put(T, points(100))
    await remote.vectors(T, [f"p{n}" for n in range(100)])
    assert [method for method, _ in server.requests] == ["PUT", "POST"]
