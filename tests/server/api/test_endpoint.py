"""Endpoints answer errors, and keep nothing of the request."""

import gc
import weakref

from proxy.access.exchange import Exchange
from proxy.chat.errors import BadRequest
from proxy.server.api.endpoint import Endpoint, Serving
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Observation, Telemetry


class Held:
    """What a handler has of a request."""


async def test_an_answered_error_keeps_nothing_of_its_request() -> None:
    held: list[weakref.ref[Held]] = []

    async def refuse(http: Exchange, seen: Observation) -> None:
        body = Held()
        held.append(weakref.ref(body))
        raise BadRequest("no")

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: object) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [], "query_string": b""}
    gc.disable()
    try:
        serving = Serving(Telemetry(Metrics("0")), "", [], None, None, None, 100)
        await Endpoint(refuse, "/x", serving)(scope, receive, send)
        assert [each() for each in held] == [None]
    finally:
        gc.enable()
