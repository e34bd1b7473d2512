"""Limits over real sockets: workers that count together, overload, and clients that are too slow or say too much."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.conftest import Lab
from tests.e2e.served import Served, served
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, plainly, send
from tests.e2e.test_kills import Turns, workers

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{url}"}}
models: [{{match: "*", upstream: main}}]
state: {{directory: "{state}", max_mib: 8}}
server: {{drain: 2}}
limits: {{{limits}}}
"""
HURRIED = "max_header_bytes: 2048, header_timeout: 2, body_timeout: 2, write_timeout: 0.5"
TALK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def running(limits: str, folder: Path, behind: Upstream, *arguments: str) -> AsyncGenerator[Served, None]:
    made = CONFIG.format(url=behind.url, state=folder / "state", limits=limits)
    async with served(made, folder, *arguments) as proxy:
        yield proxy


async def ask(http: aiohttp.ClientSession, base: str, key: str = "k", **options: Any) -> tuple[int, Any, Any]:
    options = {"json": TALK, **options}
    headers = {"authorization": f"Bearer {key}"}
    async with http.post(f"{base}/v1/chat/completions", headers=headers, **options) as response:
        return response.status, response.headers, await response.json()


async def is_alive(http: aiohttp.ClientSession, proxy: Served) -> bool:
    async with http.get(f"{proxy.base}/healthz") as response:
        return response.status == 200


async def test_workers_count_together_and_a_restart_forgets_nothing(lab: Lab) -> None:
    async with running("requests_per_minute: 4", lab.folder, lab.behind, "--workers", "2") as proxy:
        turn = Turns(await workers(lab.folder, proxy.base, lab.http), lab.folder / "state")
        statuses = []
        for _ in range(6):
            with turn:
                status, headers, answer = await ask(lab.http, proxy.base)
                statuses.append((status, headers["x-ratelimit-remaining-requests"]))
        assert statuses == [(200, "3"), (200, "2"), (200, "1"), (200, "0"), (429, "0"), (429, "0")]
        assert answer["error"]["code"] == "rate_limit_exceeded"
        assert (await ask(lab.http, proxy.base, key="other"))[0] == 200
    limits = "requests_per_minute: 4"
    base = await lab.start(CONFIG.format(url=lab.behind.url, state=lab.folder / "state", limits=limits))
    status, headers, _ = await ask(lab.http, base)
    # by now some of it may be more than a minute ago
    assert status == 429 or int(headers["x-ratelimit-remaining-requests"]) < 3
    assert [received.header("authorization") for received in lab.behind.received][:5] == ["Bearer k"] * 4 + [
        "Bearer other"
    ]


async def test_overload_is_answered_at_once_and_the_process_is_alive(lab: Lab) -> None:
    release = asyncio.Event()

    async def hold(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await send(writer, 200, DEFAULT_ANSWER)

    lab.behind.respond = hold
    async with running("max_concurrent: 2, max_concurrent_per_key: 1", lab.folder, lab.behind) as proxy:
        first = asyncio.ensure_future(ask(lab.http, proxy.base, "a"))
        await lab.behind.arrived(1)
        status, headers, answer = await ask(lab.http, proxy.base, "a")
        assert (status, answer["error"]["code"], headers["retry-after"]) == (429, "rate_limit_exceeded", "1")
        second = asyncio.ensure_future(ask(lab.http, proxy.base, "b"))
        await lab.behind.arrived(2)
        head, body = await raw(*address(proxy), LINE + b"content-length: 9999\r\n\r\n{")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\nretry-after-ms: 1000\r\n" in head
        assert json.loads(body)["error"]["code"] == "server_is_overloaded"
        assert json.loads(body)["error"]["type"] == "service_unavailable_error"
        assert await is_alive(lab.http, proxy)
        release.set()
        assert [(await each)[0] for each in (first, second)] == [200, 200]
        assert (await ask(lab.http, proxy.base, "a"))[0] == 200


def address(proxy: Served) -> tuple[str, int]:
    host, _, port = proxy.base.removeprefix("http://").partition(":")
    return host, int(port)


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


async def refused(proxy: Served, *expected: tuple[dict[str, list[bytes]], int, str | None]) -> None:
    """Raises `AssertionError` unless each of what is sent has its answer."""
    cases = [(name, parts, status, code) for sent, status, code in expected for name, parts in sent.items()]
    answers = await asyncio.gather(*(raw(*address(proxy), *parts) for _, parts, _, _ in cases))
    for (name, _, status, code), (head, body) in zip(cases, answers, strict=True):
        assert head.startswith(b"HTTP/1.1 %d " % status), name
        assert json.loads(body).get("error", {}).get("code") == code, name


async def test_clients_that_say_too_much_are_refused(lab: Lab) -> None:
    limits = "max_header_bytes: 2048, header_timeout: 60, body_timeout: 60"
    async with running(limits, lab.folder, lab.behind) as proxy:
        too_long = (TOO_LONG, 431, "request_header_fields_too_large")
        await refused(proxy, too_long, (NO_HTTP, 400, "malformed_request"), (GOOD_ONES, 200, None))


async def test_clients_that_are_slow_say_nothing_read_nothing_or_talk_across_an_answer(lab: Lab) -> None:
    hurried = CONFIG.format(url=lab.behind.url, state=lab.folder / "state", limits=HURRIED)
    async with served(hurried.replace("drain: 2", "drain: 2, keep_alive: 1"), lab.folder) as proxy:
        await asyncio.gather(refused(proxy, (TOO_SLOW, 408, "request_timeout")), is_closed_without_a_word(proxy))
        for misbehaves in (reads_nothing, talks_across_an_answer):
            lab.behind.reset()
            await misbehaves(proxy, lab.behind)
            assert await is_alive(lab.http, proxy), misbehaves.__name__
        assert not [line for line in proxy.log if "unexpected" in line or "Traceback" in line]


async def is_closed_without_a_word(proxy: Served) -> None:
    reader, writer = await asyncio.open_connection(*address(proxy))
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()


async def talks_across_an_answer(proxy: Served, behind: Upstream) -> None:
    """A client that goes on with what is no HTTP gets the refusal behind the answer to what it sent before."""
    sent = asyncio.Event()

    async def wait(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await sent.wait()
        await plainly(upstream, received, writer)

    behind.respond = wait
    reader, writer = await asyncio.open_connection(*address(proxy))
    writer.write(LINE + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD)
    await behind.arrived(1)
    writer.write(b"\x16\x03\x01 no HTTP\r\n\r\n")
    await writer.drain()
    sent.set()
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"400"]
    writer.close()


async def reads_nothing(proxy: Served, behind: Upstream) -> None:
    """It loses its connection, and the upstream with it."""

    async def endless(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b"data: {}\n\n" * 4096)
            await writer.drain()

    behind.respond = endless
    reader, writer = await asyncio.open_connection(*address(proxy), limit=1024)
    body = json.dumps({**TALK, "stream": True}).encode()
    writer.write(LINE + b"content-length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(60):
        await behind.gone.wait()
    writer.transport.abort()
    del reader
