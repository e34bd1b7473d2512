"""What orchestrators ask: whether the process lives, and whether it should get requests."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from proxy.server.reload import Reloading
from proxy.server.shutdown import Draining
from proxy.state.threads import Threads
from proxy.state.workers import Peers, Question

_log = logging.getLogger("penstock.health")

LOOK_EVERY = 10.0
"""Seconds between two looks at servers that no request may have asked meanwhile."""


_PATIENCE = 1.0
"""Seconds that other workers have to say whether they are stuck; probes wait for little more."""

LONGEST_START = 30.0
"""Seconds from the start on after which Penstock says that it is ready, whatever is still being loaded."""


class Starting:
    """The time from the start until what every request needs is loaded; requests that come earlier wait for that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._latest = clock() + LONGEST_START
        self._is_loaded = False

    @property
    def is_over(self) -> bool:
        """Whether orchestrators may send requests. It stays so: a reload loads beside what is served."""
        return self._is_loaded or self._clock() >= self._latest

    async def until(self, loaded: Awaitable[object]) -> None:
        """Over once this is done. Failures end it as well: what cannot be loaded is done without."""
        try:
            await loaded
        finally:
            self._is_loaded = True


class Stuck:
    """Whether a thread, of this worker or of another one of this server, will probably never be done."""

    def __init__(self, pools: Iterable[Threads], reloading: Reloading, peers: Peers) -> None:
        """The pools are those in which the work of chains is done: it waits for nothing outside of the process."""
        self._pools = tuple(pools)
        self._reloading = reloading
        self._peers = peers
        self._told = False
        peers.on("stuck", self._here)

    async def anywhere(self) -> bool:
        """Whether one is. Workers that do not say so at once are left out: they may just have much to do."""
        if await self._here():
            return True
        try:
            async with asyncio.timeout(_PATIENCE):
                return any(await self._peers.ask({"ask": "stuck"}))
        except TimeoutError:
            return False

    async def _here(self, question: Question | None = None) -> bool:
        pool = max(self._pools, key=Threads.busy)
        seconds = pool.busy()
        is_stuck = seconds > self._reloading.settings.server.stuck_after
        if is_stuck and not self._told:
            _log.error("thread stuck", extra={"fields": {"seconds": round(seconds), "at": pool.places()}})
        self._told = is_stuck
        return is_stuck


class Health:
    """`/healthz` and `/readyz`. Neither asks an upstream or a store, or depends on how many requests there are."""

    def __init__(
        self,
        reloading: Reloading,
        starting: Starting,
        draining: Draining,
        stuck: Stuck,
        degraded: Callable[[], Sequence[str]],
    ) -> None:
        """`degraded` names what does not work right now, though requests go on without it."""
        self._reloading = reloading
        self._starting = starting
        self._draining = draining
        self._stuck = stuck
        self._degraded = degraded

    def routes(self) -> list[BaseRoute]:
        """Where they are."""
        return [Route("/healthz", self._healthz, methods=["GET"]), Route("/readyz", self._readyz, methods=["GET"])]

    async def _healthz(self, request: Request) -> Response:
        if await self._stuck.anywhere():
            return JSONResponse({"status": "stuck"}, 503)
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def _readyz(self, request: Request) -> Response:
        if self._draining.begun:
            return JSONResponse({"status": "draining"}, 503)
        if not self._starting.is_over:
            return JSONResponse({"status": "starting"}, 503)
        detail = {"status": "ready", "config": self._reloading.brief(), "degraded": list(self._degraded())}
        return JSONResponse(detail)


def degraded(services: Mapping[str, object]) -> list[str]:
    """Of services by name, those that say of themselves that they are: `degraded` is why, or None."""
    said = {name: getattr(service, "degraded", None) for name, service in services.items()}
    return [f"{name}: {why}" for name, why in said.items() if why]


async def watch(services: Mapping[str, object], tell: Callable[[str, bool], None]) -> None:
    """Look at those of the services that are elsewhere, and tell of each whether it is degraded, until cancelled.

    Without this a server that is gone, or was never there, would be noticed with the first request that needs it.
    """
    looks = [service.look for service in services.values() if hasattr(service, "look")]
    while True:
        await asyncio.gather(*(look() for look in looks))
        for name, service in services.items():
            if service is not None:
                tell(name, bool(degraded({name: service})))
        await asyncio.sleep(LOOK_EVERY)
