"""What services say of themselves."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from proxy.config.load import load
from proxy.server import health
from proxy.server.app import App
from proxy.server.health import LONGEST_START, Health
from proxy.state.threads import Threads
from proxy.state.workers import Peers, Question


def health_of(
    *pools: Threads,
    peers: Peers | None = None,
    outside: dict[str, Any] | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Health:
    reloading: Any = SimpleNamespace(settings=SimpleNamespace(server=SimpleNamespace(stuck_after=60.0)))
    draining: Any = None
    return Health(reloading, draining, pools or (Threads("test"),), peers or Peers(None), outside or {}, clock)


class Well:
    degraded = None


class Server:
    """Is found to be away at the second look, and back at the third."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def degraded(self) -> str | None:
        return "unreachable" if self.looks == 2 else None

    async def look(self) -> None:
        self.looks += 1


async def test_servers_are_looked_at_although_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOK_EVERY", 0.0)
    told: list[tuple[str, bool]] = []
    has_seen = asyncio.Event()

    def tell(service: str, degraded: bool) -> None:
        told.append((service, degraded))
        if len(told) >= 6:
            has_seen.set()

    outside = {"a": Server(), "b": Well(), "c": None}
    watching = asyncio.ensure_future(health_of(outside=outside).watch(tell))
    async with asyncio.timeout(60):
        await has_seen.wait()
    watching.cancel()
    assert told[:6] == [("a", False), ("b", False), ("a", True), ("b", False), ("a", False), ("b", False)]


async def test_the_start_is_over_once_what_requests_need_is_loaded() -> None:
    starting, loaded = health_of(), asyncio.Event()
    loading = asyncio.ensure_future(starting.until(loaded.wait()))
    await asyncio.sleep(0)
    assert not starting.is_ready
    loaded.set()
    await loading
    assert starting.is_ready
    again = asyncio.ensure_future(starting.until(asyncio.Event().wait()))
    await asyncio.sleep(0)
    assert starting.is_ready, "a reload loads beside what is served"
    again.cancel()


def test_the_start_is_over_after_a_while_whatever_is_still_loaded() -> None:
    now = 5.0
    starting = health_of(clock=lambda: now)
    now += LONGEST_START - 0.1
    assert not starting.is_ready
    now += 0.2
    assert starting.is_ready


class Stuck(Peers):
    """Other workers, of which one is stuck."""

    async def ask(self, question: Question) -> list[Any]:
        assert question == {"ask": "stuck"}
        return [False, True]


@pytest.mark.parametrize(("peers", "status"), [(Peers(None), 200), (Stuck(None), 503)])
def test_liveness_fails_in_each_worker_if_one_is_stuck(peers: Peers, status: int) -> None:
    routes = health_of(peers=peers).routes()
    assert TestClient(Starlette(routes=routes)).get("/healthz").status_code == status


def test_each_job_that_is_stuck_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    pool = Threads("test", clock=lambda: now)
    client = TestClient(Starlette(routes=health_of(pool).routes()))

    def asked() -> tuple[int, int]:
        """The status, and how often a job was told of until now."""
        status = client.get("/healthz").status_code
        return status, [record.message for record in caplog.records].count("thread stuck")

    class Held:
        """A job that has begun."""

        def __init__(self) -> None:
            self.go, self._begun = threading.Event(), threading.Event()
            self._done = pool.submit(self._work)
            assert self._begun.wait(60)

        def _work(self) -> None:
            self._begun.set()
            assert self.go.wait(60)

        def end(self) -> None:
            self.go.set()
            self._done.result(60)

    with caplog.at_level(logging.ERROR, "penstock.health"):
        first = Held()
        assert asked() == (200, 0)
        now = 61.0
        assert asked() == (503, 1)
        now = 62.0
        assert asked() == (503, 1)
        first.end()
        second = Held()
        now = 200.0
        assert asked() == (503, 2), "it is another one, although it took longer when it was first asked for"
        second.end()
        assert asked() == (200, 2)
    pool.shutdown()


async def test_records_have_what_is_left_of_the_time_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.yaml").write_text(
        "server: {drain_delay: 1000, drain: 5000}\nstate: {kind: memory}\nchains: {empty: []}\n"
        "upstreams: {main: {kind: echo}}\nmodels: [{match: m, upstream: main, chain: empty}]\n"
    )
    app, given = App(load(tmp_path / "config.yaml")), list[float]()

    async def aclose(seconds: float) -> None:
        given.append(seconds)

    monkeypatch.setattr(app.stores.records, "aclose", aclose)
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)  # the server's
    try:
        async with app._life(app._rest):
            while not app.health.is_ready:
                await asyncio.sleep(0.01)
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [5000 < seconds <= 6000 for seconds in given] == [True]
