"""Hundreds of malformed and hostile requests at a real process; `python -m benchmarks.hostile` sends thousands."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from tests.e2e.hostile_bodies import encoded, good
from tests.e2e.hostile_requests import LAST, Attack, attacks, request
from tests.e2e.hostile_world import statuses_of, world

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        (b"", []),
        (b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\nno", [404]),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + b"HTTP/1.1 503 X\r\n\r\n", [200, 503]),
    ],
)
def test_answers_are_told_apart(answer: bytes, statuses: list[int]) -> None:
    assert statuses_of(answer) == statuses


async def test_nothing_that_is_sent_does_any_harm(tmp_path: Path) -> None:
    async with world(tmp_path) as under:
        for number, attack in enumerate(attacks(150, 1, under.lure)):
            await under.attack(number, attack)
        assert under.found.faults == []
        assert under.found.lost == 0
        assert under.found.statuses["2xx"] > 15, "some of it is harmless"
        assert under.found.statuses["4xx"] > 50
        assert not [line for line in under.running.log if "Traceback" in line or "unexpected error" in line]


async def test_connections_that_never_finish_hold_up_nobody(tmp_path: Path) -> None:
    whole = request(encoded(good(Random(1))), "x: y")
    async with world(tmp_path) as under, AsyncExitStack() as stack:
        under.quiet = 60
        host, _, port = under.running.base.removeprefix("http://").partition(":")
        for number in range(300):
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(whole[: 1 + number % (len(whole) - 1)])
        for number, attack in enumerate([Attack("honest", whole + LAST)] * 20):
            await under.attack(number, attack)
        assert under.found.faults == []
        assert under.found.statuses == {"2xx": 40}
        assert len(under.behind.received) == 20
