"""HTTP to upstreams that are not there, fall silent or break off: what is tried again, and what is told."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from yarl import URL

from proxy.chat.errors import Unanswered, UpstreamFailed
from proxy.http import client
from proxy.http.client import ServerConnection, Timeouts, Transport
from tests.loopback import BODY, LONG, OK, PLENTY, STREAM, Connection, answering, framed, listening, serves, transport

LOOPS = ("asyncio", "uvloop")


class Timer:
    """A call that is due at a time of a `Clock`."""

    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self._when, self.call = when, call

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.call = lambda: None


class Clock:
    """The event loop's clock, which a test can put forward, and its timers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        self._ahead = 0.0
        self._timers: list[Timer] = []
        monkeypatch.setattr(loop, "time", lambda: self._now() + self._ahead)
        monkeypatch.setattr(loop, "call_at", self._call_at)

    def _call_at(self, when: float, call: Callable[..., object], *given: Any, context: object = None) -> Timer:
        self._timers.append(timer := Timer(when, partial(call, *given)))
        return timer

    def pass_by(self, seconds: float) -> None:
        self._ahead += seconds
        now = self._now() + self._ahead
        due = [timer for timer in self._timers if timer.when() <= now]
        self._timers = [timer for timer in self._timers if timer.when() > now]
        for timer in due:
            asyncio.get_running_loop().call_soon(lambda each: each.call(), timer)

    async def waits_in_vain(self, work: Coroutine[Any, Any, object]) -> UpstreamFailed:
        """The timeout that some work ends with, without waiting for it."""
        task = asyncio.create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            self.pass_by(LONG)
        with pytest.raises(UpstreamFailed) as caught:
            await task
        return caught.value


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


Breaks = Callable[[Connection], Awaitable[None]]


async def closes(connection: Connection) -> None:
    pass


async def resets(connection: Connection) -> None:
    connection.reset()


@pytest.mark.parametrize("breaks", [closes, resets])
@pytest.mark.parametrize("is_reused", [False, True], ids=["fresh", "reused"])
@pytest.mark.parametrize(
    ("method", "body", "most"),
    [("POST", BODY, 1), ("POST", BODY * 20_000, 1), ("PUT", BODY, 1), ("PATCH", BODY, 1), ("DELETE", None, 1), ("GET", None, 2)],
)  # fmt: skip
async def test_a_request_that_the_server_has_read_is_sent_again_only_where_it_is_safe(
    breaks: Breaks, is_reused: bool, method: str, body: bytes | None, most: int
) -> None:
    got: list[bytes] = []

    async def handle(connection: Connection) -> None:
        if is_reused and connection.number == 1:
            await connection.request()
            await connection.send(OK)
        got.append(await connection.request())
        await breaks(connection)

    async with listening(handle) as url, transport() as http:
        if is_reused:
            await (await http.request("POST", url, {}, b"{}")).read()
        with pytest.raises(Unanswered) as caught:
            await http.request(method, url, {}, body)

    assert len(got) == most
    assert (caught.value.status, caught.value.code) == (502, "upstream_broke_off")
    assert caught.value.headers.get("x-should-retry") == (None if method == "GET" else "false")
    assert "may have processed the request" in caught.value.message


@pytest.mark.parametrize("counts", ["not at all", "nothing"])
async def test_where_no_bytes_are_counted_nothing_is_sent_twice(counts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if counts == "nothing":  # as in some sandboxes
        monkeypatch.setattr(socket, "TCP_INFO", socket.TCP_KEEPIDLE)
    else:
        monkeypatch.setattr(client, "_COUNTS_BYTES", False)
    got: list[bytes] = []

    async def handle(connection: Connection) -> None:
        got.append(await connection.request())
        if connection.number == 1:
            await connection.send(OK)
            got.append(await connection.request())

    async with listening(handle) as url, transport() as http:
        await (await http.request("POST", url, {}, b"{}")).read()
        with pytest.raises(Unanswered):
            await http.request("POST", url, {}, BODY)

    assert [request.partition(b"\r\n\r\n")[2] for request in got] == [b"{}", BODY]


@pytest.mark.parametrize("size", [1, 20_000])
async def test_a_reused_connection_that_dies_unread_is_tried_again(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    got: list[bytes] = []
    closing, closed = asyncio.Event(), asyncio.Event()

    async def handle(connection: Connection) -> None:
        got.append(await connection.request())
        await connection.send(OK)
        await closing.wait()
        await connection.end()
        closed.set()

    ask = ServerConnection.ask

    async def late(connection: ServerConnection, head: bytes, body: bytes | None, method: str) -> None:
        """Give the server time to close what this side takes for open."""
        connection.transport.pause_reading()
        closing.set()
        await closed.wait()
        asyncio.get_running_loop().call_soon(connection.transport.resume_reading)
        await ask(connection, head, body, method)

    async with listening(handle) as url, transport() as http:
        await (await http.request("POST", url, {}, b"{}")).read()
        monkeypatch.setattr(ServerConnection, "ask", late)
        assert await (await http.request("POST", url, {}, BODY * size)).read() == b"ok"

    assert [request.partition(b"\r\n\r\n")[2] for request in got] == [b"{}", BODY * size]


class Dialling:
    """Stands between the event loop and the network: refuses or holds up the first connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *behaviours: Callable[[], Awaitable[None]]) -> None:
        self.count = 0
        self._behaviours = behaviours
        loop = asyncio.get_running_loop()
        self._connect = loop.sock_connect
        monkeypatch.setattr(loop, "sock_connect", self._dial)
        monkeypatch.setattr(loop, "getaddrinfo", self._resolve)  # at once: a thread would need real time

    async def _resolve(self, host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

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
    async with serves(OK) as (http, url, got):
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
    async with serves(OK) as (http, url, got):
        dialling = Dialling(monkeypatch, hold, hold)
        error = await clock.waits_in_vain(http.request("POST", url, {}, b"{}"))

    assert (dialling.count, got) == (2, [])
    assert (error.status, error.code) == (504, "upstream_unreachable")
    assert error.cause.endswith(": the connection could not be opened in time")
    assert error.message == "the upstream 'main' could not be reached in time"
    assert "x-should-retry" not in error.headers


BROKE, INVALID = "upstream_broke_off", "upstream_invalid"
CODED, LONG_HEAD = "a transfer coding that was not asked for", "the head of its answer is too long"
WRONG = "its answer is not valid HTTP"


@pytest.mark.parametrize(("answer", "code", "cause"), [
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", BROKE, "", id="half a head"),
    pytest.param(b"H", BROKE, "", id="one byte"),
    pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", INVALID, WRONG, id="another protocol"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", INVALID, WRONG, id="a head that is wrong"),
    pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", INVALID, LONG_HEAD, id="a long line"),
    pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 200_000 + b"\r\n", INVALID, LONG_HEAD, id="a long head"),
    pytest.param(b"HTTP/1.1 200 " + b"K" * 70_000 + b"\r\n\r\n", INVALID, "", id="a long reason"),
    pytest.param(b"HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n", INVALID, "", id="no such status"),
    pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", INVALID, CODED, id="coded"),
    pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", INVALID, CODED, id="coded to its end"),
    pytest.param(b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", INVALID, "", id="101"),
])  # fmt: skip
async def test_a_server_that_has_begun_to_answer_is_not_asked_again(answer: bytes, code: str, cause: str) -> None:
    async with serves(answer) as (http, url, got):
        with pytest.raises(UpstreamFailed) as caught:
            await http.request("POST", url, {}, b"{}")

    assert len(got) == 1
    assert (caught.value.status, caught.value.code) == (502, code)
    assert caught.value.cause.endswith(cause)


async def test_blanks_around_the_transfer_coding_mean_nothing() -> None:
    async with serves(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n") as (http, url, _):
        assert await (await http.request("POST", url, {}, b"{}")).read() == b"{}"


@pytest.mark.parametrize("answer", [
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx", id="it says so"),
    pytest.param(STREAM + framed(b"x" * 600) * 2, id="it comes to that"),
    pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, id="until the end of the connection"),
])  # fmt: skip
async def test_an_answer_is_read_up_to_the_size_that_can_be_held(answer: bytes) -> None:
    handle, _ = answering(answer, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1000)
    async with listening(handle) as url:
        http = Transport("main", PLENTY, largest=1000)
        response = await http.request("POST", url, {}, b"{}")
        with pytest.raises(UpstreamFailed) as caught:
            await response.read()
        assert await (await http.request("POST", url, {}, b"{}")).read() == b"x" * 1000
        await http.aclose()

    assert (caught.value.status, caught.value.code) == (502, "upstream_answer_too_large")
    assert not caught.value.is_down, "who asks for too much shuts the server for nobody else"


@pytest.mark.parametrize("answer", [
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", id="shorter than it says"),
    pytest.param(STREAM + framed(b"half"), id="no last chunk"),
    pytest.param(STREAM + b"4\r\nha", id="half a chunk"),
])  # fmt: skip
async def test_an_answer_that_breaks_off_is_a_failure_and_not_tried_again(answer: bytes) -> None:
    async with serves(answer) as (http, url, got):
        response = await http.request("POST", url, {}, b"{}")
        with pytest.raises(UpstreamFailed) as whole:
            await response.read()
        streamed = await http.request("POST", url, {}, b"{}")
        with pytest.raises(UpstreamFailed) as in_chunks:
            async for chunk in streamed:
                assert chunk in (b"half", b"ha")

    assert len(got) == 2
    for caught in (whole, in_chunks):
        assert (caught.value.status, caught.value.code) == (502, "upstream_broke_off")
        assert caught.value.message == "the upstream 'main' broke off its answer; it may have processed the request"


async def test_a_server_that_never_answers_is_a_timeout_and_not_asked_again(clock: Clock) -> None:
    asked: list[int] = []
    has_asked = asyncio.Event()

    async def handle(connection: Connection) -> None:
        asked.append(connection.number)
        await connection.request()
        has_asked.set()
        await connection.closed()

    async def answer() -> None:
        await request

    async with listening(handle) as url, transport() as http:
        request = asyncio.create_task(http.request("POST", url, {}, b"{}"))
        await has_asked.wait()
        error = await clock.waits_in_vain(answer())

    assert asked == [1]
    assert (error.status, error.code) == (504, "upstream_timeout")
    assert error.cause.endswith(": no answer in time")
    assert error.message == "the upstream 'main' sent nothing for too long; it may have processed the request"


@pytest.mark.parametrize("chunks", [[], [b"data: 1\n\n"]], ids=["behind its head", "in the middle"])
async def test_a_server_that_falls_silent_is_a_timeout(chunks: list[bytes], clock: Clock) -> None:
    async def silent(connection: Connection) -> None:
        await connection.request()
        await connection.send(STREAM + b"".join(map(framed, chunks)))
        await connection.closed()

    async with listening(silent) as url, transport() as http:
        received = await http.request("POST", url, {}, b"{}")
        assert [await anext(aiter(received)) for _ in chunks] == chunks
        await clock.waits_in_vain(anext(aiter(received)))
        whole = await http.request("POST", url, {}, b"{}")
        await clock.waits_in_vain(whole.read())


async def test_parts_of_a_head_are_no_silence(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = ServerConnection.data_received

    def received(connection: ServerConnection, data: bytes) -> None:
        receive(connection, data)
        clock.pass_by(0.6 * PLENTY.idle)

    async def handle(connection: Connection) -> None:
        await connection.request()
        for part in (b"HTTP/1.1 102 Processing\r\n\r\n", OK[:20], OK[20:30], OK[30:]):
            await connection.send(part)
            for _ in range(20):  # until it has arrived
                await asyncio.sleep(0)

    monkeypatch.setattr(ServerConnection, "data_received", received)
    async with listening(handle) as url, transport() as http:
        assert await (await http.request("POST", url, {}, b"{}")).read() == b"ok"


async def test_a_name_that_is_resolved_too_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    async with transport(Timeouts(connect=0.05, idle=60.0)) as http:
        with pytest.raises(UpstreamFailed, match="could not be reached in time"):
            await http.request("GET", URL("http://slow.example/v1"), {})


@pytest.mark.parametrize("host", ["a..example", "a" * 64 + ".example"])
async def test_a_host_that_can_be_no_name_is_not_reached(host: str) -> None:
    async with transport() as http:
        with pytest.raises(UpstreamFailed) as caught:
            await http.request("GET", URL.build(scheme="http", host=host, path="/v1", encoded=True), {})
    assert caught.value.cause.endswith(": its name is not known")


async def test_a_server_without_tls_is_told_as_such() -> None:
    async def handle(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with listening(handle) as url, transport() as http:
        with pytest.raises(UpstreamFailed) as caught:
            await http.request("GET", url.with_scheme("https"), {})
    assert ": TLS failed: " in caught.value.cause
