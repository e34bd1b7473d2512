"""Limits over real sockets: workers that count together, overload, and clients that are too slow or say too much."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.served import Served, served
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, send
from tests.e2e.test_kills import Turns, workers

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{url}"}}
models: [{{match: "*", upstream: main}}]
state: {{directory: "{state}", max_mib: 8}}
embedding: {{kind: none}}
telemetry: {{log_level: warning}}
server: {{keep_alive: 1, drain: 2}}
limits: {{{limits}}}
"""
HURRIED = "max_header_bytes: 2048, header_timeout: 2, body_timeout: 2, write_timeout: 0.5"
TALK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def running(limits: str, folder: Path, behind: Upstream, *arguments: str) -> AsyncGenerator[Served, None]:
    made = CONFIG.format(url=behind.url, state=folder / "state", limits=limits)
    async with served(made, folder, *arguments) as proxy:
        yield proxy


async def ask(http: aiohttp.ClientSession, proxy: Served, key: str = "k", **options: Any) -> tuple[int, Any, Any]:
    options = {"json": TALK, **options}
    headers = {"authorization": f"Bearer {key}"}
    async with http.post(f"{proxy.base}/v1/chat/completions", headers=headers, **options) as response:
        return response.status, response.headers, await response.json()


async def is_alive(http: aiohttp.ClientSession, proxy: Served) -> bool:
    async with http.get(f"{proxy.base}/healthz") as response:
        return response.status == 200


async def test_workers_count_together_and_a_restart_forgets_nothing(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    async with running("requests_per_minute: 4", tmp_path, behind, "--workers", "2") as proxy:
        async with asyncio.timeout(60):
            while len(pids := workers(tmp_path)) < 2:
                await is_alive(http, proxy)
        turn = Turns(pids, tmp_path / "state")
        statuses = []
        for _ in range(6):
            with turn:
                status, headers, answer = await ask(http, proxy)
                statuses.append((status, headers["x-ratelimit-remaining-requests"]))
        assert statuses == [(200, "3"), (200, "2"), (200, "1"), (200, "0"), (429, "0"), (429, "0")]
        assert answer["error"]["code"] == "rate_limit_exceeded"
        assert (await ask(http, proxy, key="other"))[0] == 200
    async with running("requests_per_minute: 4", tmp_path, behind) as proxy:
        status, headers, _ = await ask(http, proxy)
        # by now some of it may be more than a minute ago
        assert status == 429 or int(headers["x-ratelimit-remaining-requests"]) < 3
    assert [received.header("authorization") for received in behind.received][:5] == ["Bearer k"] * 4 + ["Bearer other"]


async def test_a_day_is_counted_by_what_upstreams_report(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    async with running("tokens_per_day: 22", tmp_path, behind) as proxy:
        answers = [await ask(http, proxy) for _ in range(20)]
    statuses = [status for status, _, _ in answers]
    # eleven tokens each, counted behind the answer
    assert statuses == sorted(statuses)
    assert 2 <= statuses.count(200) < 20
    assert answers[-1][2]["error"]["code"] == "insufficient_quota"


async def test_overload_is_answered_at_once_and_the_process_is_alive(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    release = asyncio.Event()

    async def hold(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await send(writer, 200, DEFAULT_ANSWER)

    behind.respond = hold
    async with running("max_concurrent: 2, max_concurrent_per_key: 1", tmp_path, behind) as proxy:
        first = asyncio.ensure_future(ask(http, proxy, "a"))
        await behind.arrived(1)
        status, headers, answer = await ask(http, proxy, "a")
        assert (status, answer["error"]["code"], headers["retry-after"]) == (429, "rate_limit_exceeded", "1")
        second = asyncio.ensure_future(ask(http, proxy, "b"))
        await behind.arrived(2)
        host, _, port = proxy.base.removeprefix("http://").partition(":")
        head, body = await raw(
            host, int(port), b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n{"
        )
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\nretry-after-ms: 1000\r\n" in head
        assert json.loads(body)["error"]["code"] == "server_is_overloaded"
        assert json.loads(body)["error"]["type"] == "service_unavailable_error"
        assert await is_alive(http, proxy)
        release.set()
        assert [(await each)[0] for each in (first, second)] == [200, 200]
        assert (await ask(http, proxy, "a"))[0] == 200


async def raw(host: str, port: int, *parts: bytes) -> tuple[bytes, bytes]:
    """What comes back of what is sent piece by piece: the head and the body of one answer; empty where it was cut."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(60):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            return head, await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b"", b""
    finally:
        writer.close()


LINE = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
GOOD = json.dumps(TALK).encode()


TOO_SLOW = {
    "a head without end": [LINE],
    "a line without end": [LINE[:9]],
    "a body without end": [LINE + b"content-length: 99\r\n\r\n{"],
    "chunks without end": [LINE + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n{\r\n"],
}
TOO_LONG = {
    "a long header": [LINE + b"x-a: " + b"a" * 3000 + b"\r\ncontent-length: 2\r\n\r\n{}"],
    "headers without end": [LINE, *[b"x-a: " + b"1" * 590 + b"\r\n"] * 4],
    "a long path": [b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n"],
}
NO_HTTP = {
    "TLS": [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
    "no HTTP": [b"what is this?\r\n\r\n"],
    "much that is no HTTP": [b"x" * 5000],
    "no path": [b"GET http://[ HTTP/1.1\r\n\r\n"],
    "no length": [LINE + b"content-length: x\r\n\r\n"],
    "two lengths": [LINE + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n"],
    "a chunk of no size": [LINE + b"transfer-encoding: chunked\r\n\r\n", b"zz\r\n"],
}
GOOD_ONES = {"a body in pieces": [LINE + b"content-length: %d\r\n\r\n" % len(GOOD), GOOD[:9], GOOD[9:]]}


REFUSED: list[tuple[str, list[tuple[dict[str, list[bytes]], int, str | None]]]] = [
    (HURRIED, [(TOO_SLOW, 408, "request_timeout")]),
    (
        "max_header_bytes: 2048, header_timeout: 60, body_timeout: 60",
        [
            (TOO_LONG, 431, "request_header_fields_too_large"),
            (NO_HTTP, 400, "malformed_request"),
            (GOOD_ONES, 200, None),
        ],
    ),
]


@pytest.mark.parametrize(("limits", "expected"), REFUSED, ids=["too slow", "too much"])
async def test_clients_that_are_too_slow_or_say_too_much_are_refused(
    tmp_path: Path, behind: Upstream, limits: str, expected: list[tuple[dict[str, list[bytes]], int, str | None]]
) -> None:
    cases = [(name, parts, status, code) for sent, status, code in expected for name, parts in sent.items()]
    async with running(limits, tmp_path, behind) as proxy:
        host, _, port = proxy.base.removeprefix("http://").partition(":")
        answers = await asyncio.gather(*(raw(host, int(port), *parts) for _, parts, _, _ in cases))
    for (name, _, status, code), (head, body) in zip(cases, answers, strict=True):
        assert head.startswith(b"HTTP/1.1 %d " % status), name
        assert json.loads(body).get("error", {}).get("code") == code, name


async def test_nothing_is_said_in_the_midst_of_an_answer(
    impatient: Served, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    """A client that goes on with what is no HTTP gets no second answer before the first, nor a part of it in one."""
    host, _, port = impatient.base.removeprefix("http://").partition(":")
    release = asyncio.Event()

    async def hold(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await release.wait()

    behind.respond = hold
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(LINE + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD)
    await behind.arrived(1)
    writer.write(b"\x16\x03\x01 no HTTP\r\n\r\n")
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        await behind.gone.wait()
    writer.close()
    release.set()
    assert await is_alive(http, impatient)
    assert not [line for line in impatient.log if "unexpected" in line or "Traceback" in line]


@pytest.fixture
async def impatient(tmp_path: Path, behind: Upstream) -> AsyncGenerator[Served, None]:
    async with running(HURRIED, tmp_path, behind) as proxy:
        yield proxy


async def test_a_connection_that_says_nothing_is_closed_without_a_word(impatient: Served) -> None:
    host, _, port = impatient.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()


async def test_a_client_that_reads_nothing_loses_its_connection_and_the_upstream_with_it(
    impatient: Served, behind: Upstream, http: aiohttp.ClientSession
) -> None:
    async def endless(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b"data: {}\n\n" * 4096)
            await writer.drain()

    behind.respond = endless
    host, _, port = impatient.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    body = json.dumps({**TALK, "stream": True}).encode()
    writer.write(LINE + b"content-length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(60):
        await behind.gone.wait()
    assert await is_alive(http, impatient)
    writer.transport.abort()
    del reader
