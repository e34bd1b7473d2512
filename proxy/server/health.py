"""Probes for orchestrators: is the process alive, and should it get requests?"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from proxy.server.reload import Reloading
from proxy.server.shutdown import Draining
from proxy.state.threads import Threads
from proxy.state.workers import Peers, Question

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
        self._pools, self._outside = tuple(pools), outside
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
        if is_stuck:
            return JSONResponse({"status": "stuck"}, 503)
        return Response(b'{"status":"ok"}', media_type="application/json")

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
        if self._draining.begun:
            return JSONResponse({"status": "draining"}, 503)
        if not self.is_ready:
            return JSONResponse({"status": "starting"}, 503)
        degraded = [f"{name}: {why}" for name, why in self._degraded().items() if why]
        return JSONResponse({"status": "ready", "config": self._reloading.brief(), "degraded": degraded})

    def _degraded(self) -> dict[str, str | None]:
        services = {name: each for name, each in self._outside.items() if each is not None}
        return {name: getattr(service, "degraded", None) for name, service in services.items()}

    async def watch(self, tell: Callable[[str, bool], None]) -> None:
        """Check the external services until cancelled: else only a request would notice that one is missing."""
        looks = [service.look for service in self._outside.values() if hasattr(service, "look")]
        while True:
            await asyncio.gather(*(look() for look in looks))
            for name, why in self._degraded().items():
                tell(name, bool(why))
            await asyncio.sleep(LOOK_EVERY)
