"""Limits over real sockets: workers that count together, overload, and clients that are too slow or say too much."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.e2e.conftest import Client, Lab
from tests.e2e.served import Served
from tests.e2e.servers import Received, Upstream, begin_stream, plainly, said, send_chunk
from tests.e2e.test_kills import Turns, workers

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}"}
models: [{match: "*", upstream: main}]
server: {drain: 2{server}}
limits: {{limits}}
"""


@asynccontextmanager
async def running(
    limits: str, lab: Lab, *arguments: str, server: str = ""
) -> AsyncGenerator[tuple[Served, Client], None]:
    """A server in a process of its own, and a client of it."""
    async with lab.served(CONFIG, *arguments, limits=limits, server=server) as proxy:
        yield proxy, Client(proxy.base, lab.http, "k")


async def test_workers_count_together_and_a_restart_forgets_nothing(lab: Lab) -> None:
    remaining = "x-ratelimit-remaining-requests"
    async with running("requests_per_minute: 4", lab, "--workers", "2") as (proxy, client):
        turn = Turns(await workers(lab.folder, proxy.base, lab.http), lab.folder / "state")
        answers = []
        for _ in range(6):
            with turn:
                answers.append(await client.chat())
        told = [(answer.status, answer.headers[remaining]) for answer in answers]
        assert told == [(200, "3"), (200, "2"), (200, "1"), (200, "0"), (429, "0"), (429, "0")]
        assert answers[-1].refusal == (429, "rate_limit_exceeded")
        assert (await client.chat(key="other")).status == 200
    answer = await (await lab.client(CONFIG, "k", limits="requests_per_minute: 4", server="")).chat()
    # by now some of it may be more than a minute ago
    assert answer.status == 429 or int(answer.headers[remaining]) < 3
    keys = [received.header("authorization") for received in lab.behind.received][:5]
    assert keys == [*["Bearer k"] * 4, "Bearer other"]


async def test_overload_is_answered_at_once_and_the_process_is_alive(lab: Lab) -> None:
    release = asyncio.Event()

    async def hold(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await plainly(upstream, received, writer)

    lab.behind.respond = hold
    async with running("max_concurrent: 2, max_concurrent_per_key: 1", lab) as (proxy, client):
        first = asyncio.ensure_future(client.chat(key="a"))
        await lab.behind.arrived(1)
        answer = await client.chat(key="a")
        assert (answer.refusal, answer.headers["retry-after"]) == ((429, "rate_limit_exceeded"), "1")
        second = asyncio.ensure_future(client.chat(key="b"))
        await lab.behind.arrived(2)
        [(status, head, body)] = await said(proxy.base, LINE + b"content-length: 9999\r\n\r\n{")
        error = json.loads(body)["error"]
        assert (status, error["code"], error["type"]) == (503, "server_is_overloaded", "service_unavailable_error")
        assert b"retry-after: 1\r\nretry-after-ms: 1000\r\n" in head
        assert (await client.get("/healthz")).status == 200
        release.set()
        assert [(await each).status for each in (first, second)] == [200, 200]
        assert (await client.chat(key="a")).status == 200


LINE = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
TALK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
GOOD = json.dumps(TALK).encode()
WHOLE = LINE + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD
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
GOOD_ONES = {"a body in pieces": [WHOLE[:-20], WHOLE[-20:-9], WHOLE[-9:]]}


async def refused(proxy: Served, *expected: tuple[dict[str, list[bytes]], int, str | None]) -> None:
    """Raises `AssertionError` unless each of what is sent has its answer."""
    cases = [(name, parts, status, code) for sent, status, code in expected for name, parts in sent.items()]
    answers = await asyncio.gather(*(said(proxy.base, *parts) for _, parts, _, _ in cases))
    for (name, _, status, code), [(told, _, body)] in zip(cases, answers, strict=True):
        assert (told, json.loads(body).get("error", {}).get("code")) == (status, code), name


async def test_clients_that_say_too_much_are_refused(lab: Lab) -> None:
    async with running("max_header_bytes: 2048, header_timeout: 60, body_timeout: 60", lab) as (proxy, _):
        too_long = (TOO_LONG, 431, "request_header_fields_too_large")
        await refused(proxy, too_long, (NO_HTTP, 400, "malformed_request"), (GOOD_ONES, 200, None))


async def test_clients_that_are_slow_say_nothing_read_nothing_or_talk_across_an_answer(lab: Lab) -> None:
    hurried = "max_header_bytes: 2048, header_timeout: 2, body_timeout: 2, write_timeout: 0.5"
    async with running(hurried, lab, server=", keep_alive: 1") as (proxy, client):
        await asyncio.gather(refused(proxy, (TOO_SLOW, 408, "request_timeout")), is_closed_without_a_word(proxy))
        for misbehaves in (reads_nothing, talks_across_an_answer):
            lab.behind.reset()
            await misbehaves(proxy, lab.behind)
            assert (await client.get("/healthz")).status == 200, misbehaves.__name__
        assert not [line for line in proxy.log if "unexpected" in line or "Traceback" in line]


async def connected(proxy: Served, **options: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(proxy.base.rpartition(":")[2]), **options)


async def is_closed_without_a_word(proxy: Served) -> None:
    reader, writer = await connected(proxy)
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
    reader, writer = await connected(proxy)
    writer.write(WHOLE)
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
        await begin_stream(writer)
        while True:
            await send_chunk(writer, b"data: {}\n\n" * 4096)

    behind.respond = endless
    reader, writer = await connected(proxy, limit=1024)
    body = json.dumps({**TALK, "stream": True}).encode()
    writer.write(LINE + b"content-length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(60):
        await behind.gone.wait()
    writer.transport.abort()
    del reader
