"""Probes for orchestrators, and stop signals: not ready at once, then no new connections, then uvicorn's own stop."""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from proxy.server.reload import Reloading
from proxy.state.threads import Threads
from proxy.state.workers import Peers, Question


class Draining:
    """The handler of stop signals, ahead of the server's, and of SIGHUP. A worker whose parent is gone stops too."""

    def __init__(self, begin: Callable[[], float], reload: Callable[[], None]) -> None:
        """Call `begin` once; it returns the seconds to go on taking connections. Call `reload` on SIGHUP."""
        self.begun, self._begin, self._reload = False, begin, reload
        self._before: dict[int, Any] = {}
        self._parent: BaseProcess | None = None

    def install(self) -> None:
        """Install the signal handlers. Do nothing outside the main thread, where Python allows none."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop = self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            if callable(signal.getsignal(number)):
                self._before[number] = signal.signal(number, self._stop)
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(self._reload))
        self._parent = multiprocessing.parent_process()
        if self._parent is not None:
            self._loop.add_reader(self._parent.sentinel, self._orphaned)

    def remove(self) -> None:
        self._forget_parent()
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        server = self._before[number]
        delay = 0.0
        if not self.begun:  # asked for again, it is now
            self.begun, delay = True, self._begin()
        if delay and number == signal.SIGTERM:
            self._loop.call_soon_threadsafe(self._loop.call_later, delay, server, number, None)
        else:
            server(number, frame)

    def _orphaned(self) -> None:
        self._forget_parent()
        os.kill(os.getpid(), signal.SIGTERM)

    def _forget_parent(self) -> None:
        if self._parent is not None:
            self._loop.remove_reader(self._parent.sentinel)
            self._parent = None


_log = logging.getLogger("penstock.health")

LOOK_EVERY = 10.0
"""Seconds between two checks of services."""

_PATIENCE = 1.0
"""Seconds that other workers have to report whether they are stuck; probes wait little longer."""

LONGEST_START = 30.0
"""Seconds after the start from which Penstock is ready, even if something is still being loaded."""


class Health:
    """`/healthz` and `/readyz`. Neither asks an upstream or a store, and neither depends on the load."""

    def __init__(
        self,
        reloading: Reloading,
        draining: Draining,
        pools: Iterable[Threads],
        peers: Peers,
        outside: Mapping[str, object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pools` do the chains' work; `outside` services may fail while requests go on. `clock` is in seconds."""
        self._reloading, self._draining, self._peers = reloading, draining, peers
        self._pools = tuple(pools)
        self._outside = {name: service for name, service in outside.items() if service is not None}
        self._clock, self._ready = clock, clock() + LONGEST_START
        self._reported: float | None = None
        """The start of the job that was reported as stuck; each is reported once."""
        peers.on("stuck", self._is_stuck)

    @property
    def is_ready(self) -> bool:
        """True if orchestrators may send requests. A reload does not change it."""
        return self._clock() >= self._ready

    async def until(self, loaded: Awaitable[object]) -> None:
        """Be ready once this is done, also with a failure: Penstock works without what cannot be loaded."""
        try:
            await loaded
        finally:
            self._ready = min(self._ready, self._clock())

    def routes(self) -> list[BaseRoute]:
        return [Route("/healthz", self._healthz, methods=["GET"]), Route("/readyz", self._readyz, methods=["GET"])]

    async def _healthz(self, request: Request) -> Response:
        question = {"ask": "stuck"}
        is_stuck = await self._is_stuck(question)
        # a worker that does not answer at once is left out: it may just be busy
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                is_stuck = is_stuck or any(await self._peers.ask(question))
        return JSONResponse({"status": "stuck"}, 503) if is_stuck else JSONResponse({"status": "ok"})

    async def _is_stuck(self, question: Question) -> bool:
        """Return whether a thread is busy with one job for so long that it will probably never end."""
        pool = max(self._pools, key=Threads.busy)
        began, seconds = pool.began, pool.busy()
        is_stuck = seconds > self._reloading.settings.server.stuck_after
        if is_stuck and began != self._reported:
            _log.error("thread stuck", extra={"fields": {"seconds": round(seconds), "at": pool.places()}})
            self._reported = began
        return is_stuck

    async def _readyz(self, request: Request) -> Response:
        if self._draining.begun or not self.is_ready:
            return JSONResponse({"status": "draining" if self._draining.begun else "starting"}, 503)
        degraded = [f"{name}: {why}" for name, why in self._degraded().items() if why]
        return JSONResponse({"status": "ready", "config": self._reloading.brief(), "degraded": degraded})

    def _degraded(self) -> dict[str, str | None]:
        return {name: getattr(service, "degraded", None) for name, service in self._outside.items()}

    async def watch(self, tell: Callable[[str, bool], None]) -> None:
        """Check the external services until cancelled: else only a request would notice that one is missing."""
        looks = [service.look for service in self._outside.values() if hasattr(service, "look")]
        while True:
            await asyncio.gather(*(look() for look in looks))
            for name, why in self._degraded().items():
                tell(name, bool(why))
            await asyncio.sleep(LOOK_EVERY)
