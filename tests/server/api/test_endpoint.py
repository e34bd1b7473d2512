"""Endpoints answer errors, and keep nothing of the request."""

import gc
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proxy.access.exchange import Exchange
from proxy.access.gate import Gate
from proxy.access.limits import KeyLimits
from proxy.chat.errors import BadRequest
from proxy.config.load import load
from proxy.server.api.endpoint import Endpoint, JsonFields, valid
from proxy.server.reload import Generation
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Telemetry


class Held:
    """What a handler has of a request."""


async def test_an_answered_error_keeps_nothing_of_its_request(tmp_path: Path) -> None:
    held: list[weakref.ref[Held]] = []

    async def refuse(http: Exchange) -> None:
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
        (tmp_path / "config.yaml").write_text('upstreams: {a: {kind: echo}}\nmodels: [{match: "*", upstream: a}]\n')
        unused: Any = None
        config, telemetry = load(tmp_path / "config.yaml"), Telemetry(Metrics("0"))
        gate = Gate(config.settings, KeyLimits(config.settings.limits, unused, telemetry.metrics), Counter(), unused)
        await Endpoint(refuse, "/x", Generation(config, {}, unused, unused, telemetry, gate))(scope, receive, send)
        assert [each() for each in held] == [None]
    finally:
        gc.enable()


class _Inner(JsonFields):
    name: str


class _Outer(JsonFields):
    to: _Inner


@pytest.mark.parametrize(("body", "place"), [(5, "the body"), ([], "the body"), ({"to": 5}, "to")])
def test_a_refusal_names_no_class(body: object, place: str) -> None:
    with pytest.raises(BadRequest, match=f"^{place}: Input should be an object$"):
        valid(_Outer, body)
