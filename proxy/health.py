"""What orchestrators ask: whether the process lives, and whether it should get requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from proxy.draining import Draining
from proxy.reload import Reloading

LOOK_EVERY = 10.0
"""Seconds between two looks at servers that no request may have asked meanwhile."""


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


class Health:
    """`/healthz` and `/readyz`. Neither asks an upstream or a store, or depends on what other requests do."""

    def __init__(
        self, reloading: Reloading, starting: Starting, draining: Draining, degraded: Callable[[], Sequence[str]]
    ) -> None:
        """`degraded` names what does not work right now, though requests go on without it."""
        self._reloading = reloading
        self._starting = starting
        self._draining = draining
        self._degraded = degraded

    def routes(self) -> list[BaseRoute]:
        """Where they are."""
        return [Route("/healthz", self._healthz, methods=["GET"]), Route("/readyz", self._readyz, methods=["GET"])]

    async def _healthz(self, request: Request) -> Response:
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
