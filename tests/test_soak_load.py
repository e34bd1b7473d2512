"""The load of `benchmarks.soak`: which answers of the proxy it takes for failures, and when."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.soak_load import Clients, Upstream
from proxy.chat.errors import NotInTime, PenstockError, UpstreamFailed

ANSWERS: dict[str, Callable[[], PenstockError]] = {
    "late": lambda: NotInTime("a step that shortens was late"),
    "upstream": lambda: UpstreamFailed("it broke off"),
    "fault": lambda: PenstockError("Penstock failed", code="internal_error"),
}


@asynccontextmanager
async def in_front_of(answer: str) -> AsyncGenerator[Clients, None]:
    """Clients of a proxy that answers everything alike."""

    async def fail(request: web.Request) -> web.Response:
        await request.read()
        error = ANSWERS[answer]()
        return web.Response(status=error.status, body=error.body(), content_type="application/json")

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", fail)
    async with TestServer(app) as server, aiohttp.ClientSession() as http:
        yield Clients(str(server.make_url("")).rstrip("/"), http, Upstream(1), 1, "admin")


@pytest.mark.parametrize(
    ("answer", "may_be_late", "is_expected"),
    [
        ("late", True, True),
        ("late", False, False),
        ("upstream", False, True),
        ("fault", True, False),
        ("fault", False, False),
    ],
)
async def test_only_what_is_the_upstreams_doing_is_expected(answer: str, may_be_late: bool, is_expected: bool) -> None:
    async with in_front_of(answer) as clients:
        clients.may_be_late = may_be_late
        for _ in range(3):
            await clients.one(only_large=True)
        assert sum(clients.outcomes["agent"].values()) == 3
        assert (not clients.unexpected) is is_expected
        clients.begin()
        assert not clients.outcomes
        assert not clients.unexpected
