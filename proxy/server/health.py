"""Probes for orchestrators: is the process alive, and should it get requests?"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
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


class Starting:
    """The time from the start until everything is loaded that all requests need; earlier requests wait for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._latest = clock() + LONGEST_START
        self._is_loaded = False

    @property
    def is_over(self) -> bool:
        """True if orchestrators may send requests. A reload does not change it."""
        return self._is_loaded or self._clock() >= self._latest

    async def until(self, loaded: Awaitable[object]) -> None:
        """End the start once this is done, also with a failure: Penstock works without what cannot be loaded."""
        try:
            await loaded
        finally:
            self._is_loaded = True


class Health:
    """`/healthz` and `/readyz`. Neither asks an upstream or a store, and neither depends on the load."""

    def __init__(
        self,
        reloading: Reloading,
        starting: Starting,
        draining: Draining,
        pools: Iterable[Threads],
        peers: Peers,
        degraded: Callable[[], Sequence[str]],
    ) -> None:
        """Answer probes from the state of the process.

        `pools` are those for the work of chains, which waits for nothing outside the process. `degraded` returns the
        services that fail while requests go on without them.
        """
        self._reloading = reloading
        self._starting = starting
        self._draining = draining
        self._pools = tuple(pools)
        self._peers = peers
        self._degraded = degraded
        self._reported: float | None = None
        """The start of the job that was reported as stuck; each is reported once."""
        peers.on("stuck", self._is_stuck)

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
        if not self._starting.is_over:
            return JSONResponse({"status": "starting"}, 503)
        detail = {"status": "ready", "config": self._reloading.brief(), "degraded": list(self._degraded())}
        return JSONResponse(detail)


def degraded(services: Mapping[str, object]) -> list[str]:
    """Return the names and causes of the services that report `degraded`."""
    said = {name: getattr(service, "degraded", None) for name, service in services.items()}
    return [f"{name}: {why}" for name, why in said.items() if why]


async def watch(services: Mapping[str, object], tell: Callable[[str, bool], None]) -> None:
    """Check the external services and report whether each is degraded, until cancelled.

    Without this, a missing server would be noticed only by the first request that needs it.
    """
    looks = [service.look for service in services.values() if hasattr(service, "look")]
    while True:
        await asyncio.gather(*(look() for look in looks))
        for name, service in services.items():
            if service is not None:
                tell(name, bool(degraded({name: service})))
        await asyncio.sleep(LOOK_EVERY)
