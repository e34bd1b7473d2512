"""What orchestrators ask: whether the process lives, and whether it should get requests."""

from collections.abc import Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from proxy.draining import Draining
from proxy.reload import Reloading


class Health:
    """`/healthz` and `/readyz`. Neither asks an upstream or a store: what they say depends on no load."""

    def __init__(self, reloading: Reloading, draining: Draining, degraded: Callable[[], Sequence[str]]) -> None:
        """`degraded` names what does not work right now, though requests go on without it."""
        self._reloading = reloading
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
        detail = {"status": "ready", "config": self._reloading.brief(), "degraded": list(self._degraded())}
        return JSONResponse(detail)


def degraded(services: Mapping[str, object]) -> list[str]:
    """Of services by name, those that say of themselves that they are: `degraded` is why, or None."""
    said = {name: getattr(service, "degraded", None) for name, service in services.items()}
    return [f"{name}: {why}" for name, why in said.items() if why]
