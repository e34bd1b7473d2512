"""The places of stores and counters: in memory, on disk and on a Redis server."""

from collections.abc import Generator

import pytest

from tests.redis_process import RedisProcess, redis_process


class MovedClock:
    """A clock that tests move; what a server keeps is made older instead."""

    def __init__(self, server: RedisProcess | None = None) -> None:
        self._server = server
        self._now = 1_000_000.0

    def __call__(self) -> float:
        return self._now

    @property
    def now(self) -> float:
        return self._now

    @now.setter
    def now(self, now: float) -> None:
        if self._server is not None:
            self._server.age(now - self._now)
        self._now = now


@pytest.fixture(params=["memory", "disk", "redis"])
def place(request: pytest.FixtureRequest) -> str:
    """Where the store is."""
    return str(request.param)


@pytest.fixture
def server(place: str) -> Generator[RedisProcess | None, None, None]:
    if place != "redis":
        yield None
        return
    with redis_process() as running:
        yield running


@pytest.fixture
def clock(server: RedisProcess | None) -> MovedClock:
    return MovedClock(server)
