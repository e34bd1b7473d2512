"""HTTP to upstreams, against real servers on the loopback."""

import asyncio
import contextlib
import gzip
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from yarl import URL

from proxy.errors import UpstreamFailed, UpstreamTimeout
from proxy.transport import Timeouts, Transport

LONG = 10.0
"""Seconds that no test waits for: what must happen happens at once, and what must not is told by an event."""

SOON = 1.0
"""Seconds after which a test gives up that waits for what may never happen."""

PLENTY = Timeouts(LONG, LONG)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Connection:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.number = number
        self._writer = writer

    async def request(self) -> bytes:
        """The next request, head and body, as it came over the wire."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)\r\n", head.lower())
        return head + await self.reader.readexactly(int(length[1]) if length else 0)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def closed(self) -> None:
        """Wait until the other end has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Handler = Callable[[Connection], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handler) -> AsyncIterator[URL]:
    """A server on a free port; when its handler returns, the connection is closed."""
    tasks: set[asyncio.Task[Any]] = set()
    count = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handle(Connection(reader, writer, count))
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def transport(timeouts: Timeouts = PLENTY) -> AsyncIterator[Transport]:
    made = Transport("main", timeouts)
    try:
        yield made
    finally:
        await made.aclose()


class Clock:
    """The event loop's clock, which a test can put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._ahead = 0.0
        monkeypatch.setattr(loop, "time", lambda: self._now() + self._ahead)

    async def waits_in_vain(self, work: Coroutine[Any, Any, object]) -> UpstreamTimeout:
        """The timeout that some work ends with, without waiting for it."""
        task = asyncio.create_task(work)
        while not task.done():
            self._ahead += LONG
            await asyncio.sleep(0)
        with pytest.raises(UpstreamTimeout) as caught:
            await task
        return caught.value


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def answering(*answers: bytes) -> tuple[Handler, list[bytes]]:
    """A handler that gives each connection its answer (the last one for all further), and the requests it got."""
    got: list[bytes] = []

    async def handle(connection: Connection) -> None:
        got.append(await connection.request())
        await connection.send(answers[min(connection.number, len(answers)) - 1])

    return handle, got


# --- bytes ------------------------------------------------------------------------------------------------------------

BODY = b'{ "model" :"m",\n\t"x":1.0 , "y":"\\u00e9 \xc3\xa9" }\r\n'


async def test_a_body_goes_out_as_it_is_with_the_given_headers_and_no_others() -> None:
    handle, got = answering(OK)
    async with listening(handle) as url, transport() as http:
        sent = {
            "authorization": "Bearer k",
            "content-type": "application/json",
            "accept-encoding": "identity",
            "x-a": "1",
        }
        response = await http.request("POST", url, sent, BODY)
        assert await response.read() == b"ok"

    head, _, body = got[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert body == BODY
    assert lines[0] == "POST /v1 HTTP/1.1"
    assert dict(line.lower().split(": ", 1) for line in lines[1:]) == {
        "host": url.authority, "content-length": str(len(BODY)), **{k: v.lower() for k, v in sent.items()}
    }  # fmt: skip


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_request_without_a_body_has_none(method: str) -> None:
    handle, got = answering(OK)
    async with listening(handle) as url, transport() as http:
        await (await http.request(method, url, {})).read()

    assert got[0].startswith(f"{method} /v1 HTTP/1.1\r\n".encode())
    assert got[0].endswith(b"\r\n\r\n")
    assert b"content-type" not in got[0].lower()


async def test_a_large_body_goes_out_whole_and_without_a_warning() -> None:
    handle, got = answering(OK)
    body = bytes(range(256)) * 4 * 1024 * 3
    async with listening(handle) as url, transport() as http:
        await (await http.request("POST", url, {}, body)).read()

    assert got[0].partition(b"\r\n\r\n")[2] == body


async def test_status_and_headers_come_back_without_what_concerns_one_connection() -> None:
    answer = (
        b"HTTP/1.1 429 Slow Down\r\nContent-Type: application/json\r\nX-RateLimit: 1\r\nLink: a\r\nX-Name: caf\xe9\r\n"
        b"Link: b\r\nSet-Cookie: a=b\r\nSet-Cookie2: c\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
        b"Proxy-Authenticate: Basic\r\nTrailer: x\r\nUpgrade: h2c\r\nAlt-Svc: h3\r\nStrict-Transport-Security: a\r\n"
        b"X-Request-Id: up\r\nContent-Length: 2\r\n\r\nno"
    )
    handle, _ = answering(answer)
    async with listening(handle) as url, transport() as http:
        response = await http.request("POST", url, {}, b"{}")
        body = await response.read()

    assert (response.status, body, response.is_event_stream) == (429, b"no", False)
    assert response.headers == [
        (b"content-type", b"application/json"), (b"x-ratelimit", b"1"), (b"link", b"a"), (b"x-name", b"caf\xe9"),
        (b"link", b"b"), (b"x-request-id", b"up"),
    ]  # fmt: skip


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_like_any_other(status: int) -> None:
    handle, got = answering(f"HTTP/1.1 {status} Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n".encode())
    async with listening(handle) as url, transport() as http:
        response = await http.request("POST", url, {"authorization": "k"}, b"{}")
        await response.read()

    assert response.status == status
    assert (b"location", b"/elsewhere") in response.headers
    assert len(got) == 1


async def test_a_compressed_answer_is_relayed_as_it_is() -> None:
    packed = gzip.compress(b"hello" * 100)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    handle, _ = answering(head + packed)
    async with listening(handle) as url, transport() as http:
        whole = await http.request("POST", url, {}, b"{}")
        assert await whole.read() == packed
        streamed = await http.request("POST", url, {}, b"{}")
        async with aclosing(streamed.chunks()) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == packed

    assert (b"content-encoding", b"gzip") in whole.headers
    assert (b"content-encoding", b"gzip") in streamed.headers


async def test_a_cookie_is_not_kept() -> None:
    handle, got = answering(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 2\r\n\r\nok")
    async with listening(handle) as url, transport() as http:
        for _ in range(2):
            # a name, because cookies are never kept for addresses
            await (await http.request("POST", url.with_host("localhost"), {}, b"{}")).read()

    assert len(got) == 2
    assert all(b"cookie" not in request.lower() for request in got)


async def test_proxy_settings_of_the_environment_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    handle, _ = answering(OK)
    async with listening(handle) as url, transport() as http:
        assert await (await http.request("POST", url, {}, b"{}")).read() == b"ok"


async def test_a_connection_is_used_again() -> None:
    numbers: list[int] = []

    async def handle(connection: Connection) -> None:
        while True:
            await connection.request()
            numbers.append(connection.number)
            await connection.send(OK)

    async with listening(handle) as url, transport() as http:
        for _ in range(3):
            assert await (await http.request("POST", url, {}, b"{}")).read() == b"ok"

    assert numbers == [1, 1, 1]


# --- streams ----------------------------------------------------------------------------------------------------------

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def framed(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def test_a_stream_arrives_chunk_by_chunk() -> None:
    received = [asyncio.Event() for _ in range(3)]

    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        for number, event in enumerate(received):
            await connection.send(framed(f"data: {number}\n\n".encode()))
            await event.wait()
        await connection.send(framed(b""))

    async with listening(handle) as url, transport() as http:
        response = await http.request("POST", url, {}, b"{}")
        assert response.is_event_stream
        async with aclosing(response.chunks()) as chunks:
            for number, event in enumerate(received):
                # the server waits for the event before it says more
                assert await anext(aiter(chunks)) == f"data: {number}\n\n".encode()
                event.set()
            assert [chunk async for chunk in chunks] == []


async def test_the_head_of_a_stream_is_there_before_its_first_chunk() -> None:
    have_head = asyncio.Event()

    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM)
        await have_head.wait()
        await connection.send(framed(b"data: 1\n\n") + framed(b""))

    async with listening(handle) as url, transport() as http:
        response = await http.request("POST", url, {}, b"{}")
        have_head.set()
        async with aclosing(response.chunks()) as chunks:
            assert [chunk async for chunk in chunks] == [b"data: 1\n\n"]


async def endless(connection: Connection, closed: asyncio.Event) -> None:
    await connection.request()
    await connection.send(STREAM + framed(b"data: 1\n\n"))
    await connection.closed()
    closed.set()


async def test_closing_a_stream_closes_the_connection() -> None:
    closed = asyncio.Event()

    async with listening(lambda connection: endless(connection, closed)) as url, transport() as http:
        chunks = (await http.request("POST", url, {}, b"{}")).chunks()
        assert await anext(aiter(chunks)) == b"data: 1\n\n"
        await chunks.aclose()
        await asyncio.wait_for(closed.wait(), LONG)


async def test_so_does_closing_one_that_nobody_has_read() -> None:
    closed = asyncio.Event()

    async with listening(lambda connection: endless(connection, closed)) as url, transport() as http:
        response = await http.request("POST", url, {}, b"{}")
        await response.chunks().aclose()
        await asyncio.wait_for(closed.wait(), SOON)


async def test_cancelling_a_stream_closes_the_connection() -> None:
    closed, begun = asyncio.Event(), asyncio.Event()

    async def consume(url: URL, http: Transport) -> None:
        async with aclosing((await http.request("POST", url, {}, b"{}")).chunks()) as chunks:
            async for _ in chunks:
                begun.set()

    async with listening(lambda connection: endless(connection, closed)) as url, transport() as http:
        task = asyncio.create_task(consume(url, http))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), LONG)


async def test_cancelling_a_request_that_waits_for_its_answer_closes_the_connection() -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def handle(connection: Connection) -> None:
        await connection.request()
        asked.set()
        await connection.closed()
        closed.set()

    async with listening(handle) as url, transport() as http:
        task = asyncio.create_task(http.request("POST", url, {}, b"{}"))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), LONG)


async def test_closing_the_transport_closes_idle_connections() -> None:
    closed = asyncio.Event()

    async def handle(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.closed()
        closed.set()

    async with listening(handle) as url:
        http = Transport("main", PLENTY)
        await (await http.request("POST", url, {}, b"{}")).read()
        await http.aclose()
        await asyncio.wait_for(closed.wait(), LONG)
        await http.aclose()


async def test_a_transport_that_was_never_used_can_be_closed() -> None:
    await Transport("main", PLENTY).aclose()


# --- a second try -----------------------------------------------------------------------------------------------------


async def test_a_connection_that_is_closed_without_a_byte_is_tried_once_more() -> None:
    handle, got = answering(b"", OK)
    async with listening(handle) as url, transport() as http:
        assert await (await http.request("POST", url, {}, BODY)).read() == b"ok"

    assert len(got) == 2
    assert got[0].partition(b"\r\n\r\n")[2] == got[1].partition(b"\r\n\r\n")[2] == BODY


async def test_but_not_twice_more() -> None:
    handle, got = answering(b"")
    async with listening(handle) as url, transport() as http:
        with pytest.raises(UpstreamFailed) as caught:
            await http.request("POST", url, {}, BODY)

    assert len(got) == 2
    assert caught.value.status == 502


async def test_an_idle_connection_that_the_server_has_closed_meanwhile_does_no_harm() -> None:
    closing = asyncio.Event()
    got: list[int] = []

    async def handle(connection: Connection) -> None:
        got.append(connection.number)
        await connection.request()
        await connection.send(OK)
        if connection.number == 1:
            await closing.wait()

    async with listening(handle) as url, transport() as http:
        await (await http.request("POST", url, {}, b"{}")).read()
        closing.set()
        assert await (await http.request("POST", url, {}, b"{}")).read() == b"ok"

    assert got == [1, 2]


class Dialling:
    """Stands between the event loop and the network: refuses or holds up the first connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *behaviours: Callable[[], Awaitable[None]]) -> None:
        self.count = 0
        self._behaviours = behaviours
        loop = asyncio.get_running_loop()
        self._connect = loop.sock_connect
        monkeypatch.setattr(loop, "sock_connect", self._dial)

    async def _dial(self, sock: socket.socket, address: Any) -> None:
        self.count += 1
        if self.count <= len(self._behaviours):
            await self._behaviours[self.count - 1]()
        await self._connect(sock, address)


async def refuse() -> None:
    raise ConnectionRefusedError(111, "refused")


async def hold() -> None:
    await asyncio.Event().wait()


async def test_a_refused_connection_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, got = answering(OK)
    async with listening(handle) as url, transport() as http:
        dialling = Dialling(monkeypatch, refuse)
        assert await (await http.request("POST", url, {}, BODY)).read() == b"ok"

    assert (dialling.count, len(got)) == (2, 1)


async def test_a_server_that_is_not_there_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        url = URL(f"http://127.0.0.1:{taken.getsockname()[1]}/v1?secret=1")
        dialling = Dialling(monkeypatch)
        async with transport() as http:
            with pytest.raises(UpstreamFailed) as caught:
                await http.request("POST", url, {}, b"{}")

    assert dialling.count == 2
    assert (caught.value.status, caught.value.code) == (502, "upstream_unreachable")
    assert caught.value.message == "the upstream 'main' could not be reached"


async def test_a_server_that_does_not_pick_up_is_a_timeout(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    handle, got = answering(OK)
    async with listening(handle) as url, transport() as http:
        dialling = Dialling(monkeypatch, hold, hold)
        error = await clock.waits_in_vain(http.request("POST", url, {}, b"{}"))

    assert (dialling.count, got) == (2, [])
    assert (error.status, error.code) == (504, "upstream_timeout")
    assert error.message == "the upstream 'main' could not be reached in time"


@pytest.mark.parametrize("status", [400, 401, 408, 409, 429, 500, 502, 503, 504])
async def test_an_answer_is_an_answer_whatever_it_says(status: int) -> None:
    handle, got = answering(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nno".encode())
    async with listening(handle) as url, transport() as http:
        response = await http.request("POST", url, {}, b"{}")
        assert (response.status, await response.read()) == (status, b"no")

    assert len(got) == 1


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", "upstream_broke_off", id="half a head"),
        pytest.param(b"H", "upstream_broke_off", id="one byte"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "upstream_invalid", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "upstream_invalid", id="a head that is wrong"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", "upstream_invalid", id="a long line"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 200_000 + b"\r\n", "upstream_invalid", id="a long head"),
        pytest.param(b"HTTP/1.1 200 " + b"K" * 70_000 + b"\r\n\r\n", "upstream_invalid", id="a long reason"),
        pytest.param(b"HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n", "upstream_invalid", id="no such status"),
        pytest.param(b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "upstream_invalid", id="101"),
    ],
)
async def test_a_server_that_has_begun_to_answer_is_not_asked_again(answer: bytes, code: str) -> None:
    handle, got = answering(answer)
    async with listening(handle) as url, transport() as http:
        with pytest.raises(UpstreamFailed) as caught:
            await http.request("POST", url, {}, b"{}")

    assert len(got) == 1
    assert (caught.value.status, caught.value.code) == (502, code)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx", id="it says so"),
        pytest.param(STREAM + framed(b"x" * 600) * 2, id="it comes to that"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, id="until the end of the connection"),
    ],
)
async def test_an_answer_that_is_too_large_to_hold_is_not_read(answer: bytes) -> None:
    handle, _ = answering(answer)
    async with listening(handle) as url:
        http = Transport("main", PLENTY, largest=1000)
        response = await http.request("POST", url, {}, b"{}")
        with pytest.raises(UpstreamFailed) as caught:
            await response.read()
        await http.aclose()

    assert (caught.value.status, caught.value.code) == (502, "upstream_answer_too_large")


async def test_an_answer_of_just_the_size_is_read() -> None:
    handle, _ = answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1000)
    async with listening(handle) as url:
        http = Transport("main", PLENTY, largest=1000)
        assert await (await http.request("POST", url, {}, b"{}")).read() == b"x" * 1000
        await http.aclose()


# --- answers that break off -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", id="shorter than it says"),
        pytest.param(STREAM + framed(b"half"), id="no last chunk"),
        pytest.param(STREAM + b"4\r\nha", id="half a chunk"),
    ],
)
async def test_an_answer_that_breaks_off_is_a_failure_and_not_tried_again(answer: bytes) -> None:
    handle, got = answering(answer)
    async with listening(handle) as url, transport() as http:
        response = await http.request("POST", url, {}, b"{}")
        with pytest.raises(UpstreamFailed) as whole:
            await response.read()
        streamed = await http.request("POST", url, {}, b"{}")
        with pytest.raises(UpstreamFailed) as in_chunks:
            async for chunk in streamed.chunks():
                assert chunk in (b"half", b"ha")

    assert len(got) == 2
    for caught in (whole, in_chunks):
        assert (caught.value.status, caught.value.code) == (502, "upstream_broke_off")
        assert caught.value.message == "the upstream 'main' broke off its answer"


async def test_a_server_that_never_answers_is_a_timeout_and_not_asked_again(clock: Clock) -> None:
    asked: list[int] = []
    has_asked = asyncio.Event()

    async def handle(connection: Connection) -> None:
        asked.append(connection.number)
        await connection.request()
        has_asked.set()
        await connection.closed()

    async def answer(request: Awaitable[object]) -> None:
        await request

    async with listening(handle) as url, transport() as http:
        request = asyncio.create_task(http.request("POST", url, {}, b"{}"))
        await has_asked.wait()
        error = await clock.waits_in_vain(answer(request))

    assert asked == [1]
    assert (error.status, error.code) == (504, "upstream_timeout")
    assert error.message == "the upstream 'main' sent nothing for too long"


async def silent(connection: Connection, sent: bytes) -> None:
    await connection.request()
    await connection.send(STREAM + sent)
    await connection.closed()


@pytest.mark.parametrize("chunks", [[], [b"data: 1\n\n"]], ids=["behind its head", "in the middle"])
async def test_a_server_that_falls_silent_is_a_timeout(chunks: list[bytes], clock: Clock) -> None:
    sent = b"".join(map(framed, chunks))

    async with listening(lambda connection: silent(connection, sent)) as url, transport() as http:
        received = (await http.request("POST", url, {}, b"{}")).chunks()
        assert [await anext(aiter(received)) for _ in chunks] == chunks
        await clock.waits_in_vain(anext(aiter(received)))
        whole = await http.request("POST", url, {}, b"{}")
        await clock.waits_in_vain(whole.read())
