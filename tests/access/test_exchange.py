"""One exchange over bare ASGI: bodies under a limit, answers as they are made, clients that leave."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import pytest
from backports import zstd
from starlette.types import Message

from proxy.access.exchange import LEAST, ClientGone, Exchange, Intake, decoded
from proxy.chat.errors import BadRequest, Overloaded

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
GONE: Message = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class Server:
    """The server's side of an exchange: what it hands in, and what it was given to send."""

    def __init__(self, *received: Message, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        for message in received:
            self.inbox.put_nowait(message)
        self.sent: list[Message] = []
        self.reads = 0
        self.http = Exchange({"type": "http", "headers": list(headers)}, self._receive, self._send, largest=10)

    async def _receive(self) -> Message:
        self.reads += 1
        return await self.inbox.get()

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


async def stream(*chunks: bytes, error: Exception | None = None) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk
    if error is not None:
        raise error


def begun() -> None:
    pass


async def refusal(http: Exchange) -> BadRequest:
    """What the body of a request is refused with."""
    with pytest.raises(BadRequest) as caught:
        await http.read()
    return caught.value


async def test_headers_have_lower_case_names_and_an_answer_echoes_a_safe_request_id() -> None:
    server = Server(headers=[(b"x-team", b"a"), (b"x-team", b"b"), (b"x-name", b"caf\xe9")])

    assert server.http.headers == {"x-team": "a, b", "x-name": "caf\xe9"}
    for sent, kept in ((b"req-1", True), (b"a b", False)):
        http = Server(headers=[(b"x-request-id", sent)]).http
        assert (http.request_id == sent.decode()) is kept
        assert http.own_headers == [(b"x-request-id", http.request_id.encode())]


@pytest.mark.parametrize("length", [b"11", b"99999999999999999999", b"9" * 5000], ids=["one more", "huge", "absurd"])
async def test_a_body_is_refused_unread_if_its_declared_length_is_too_large(length: bytes) -> None:
    server = Server(part(b"x"), headers=[(b"content-length", length)])

    error = await refusal(server.http)
    assert (error.status, error.code, server.reads) == (413, "request_too_large", 0)
    assert error.headers == {"connection": "close", "x-should-retry": "false"}


@pytest.mark.parametrize("headers", [
    [], [(b"content-length", b"3")], [(b"content-length", b"x")], [(b"content-length", b"\xb2")],
], ids=["no length", "a length that lies", "a length that is none", "a digit that is none"])  # fmt: skip
async def test_a_body_is_refused_while_it_is_read_once_it_is_too_large(headers: list[tuple[bytes, bytes]]) -> None:
    server = Server(*(part(b"x" * 6, more=True) for _ in range(5)), headers=headers)

    assert ((await refusal(server.http)).status, server.reads) == (413, 2)


@pytest.mark.parametrize("encoding", [b"br", b"zstd, gzip", b"aws-chunked"])
async def test_a_body_is_refused_unread_in_an_unknown_coding(encoding: bytes) -> None:
    server = Server(part(b"x"), headers=[(b"content-encoding", encoding)])

    error = await refusal(server.http)
    assert (error.status, error.code, server.reads) == (415, "unsupported_content_encoding", 0)
    assert error.headers["accept-encoding"] == "gzip, zstd"


@pytest.mark.parametrize("encoding", [b"gzip", b"x-gzip", b"zstd", b"identity, gzip"])
async def test_a_compressed_body_is_decoded_within_the_bound_of_bodies(encoding: bytes) -> None:
    compress = COMPRESS[encoding.decode().removeprefix("identity, ").removeprefix("x-")]
    headers = [(b"content-encoding", encoding)]

    assert await exchange(compress(b"x" * 2000), headers).read() == b"x" * 2000
    error = await refusal(exchange(compress(b"x" * 2001), headers))
    assert (error.status, error.code) == (413, "request_too_large")
    for damaged in (compress(b"x" * 2000)[:-3], compress(b"x" * 2000) + b"y", b"x"):
        error = await refusal(exchange(damaged, headers))
        assert (error.status, error.code) == (400, "invalid_content_encoding")


@pytest.mark.parametrize("coding", COMPRESS)
def test_a_body_may_have_many_frames_but_not_without_end(coding: str) -> None:
    compress = COMPRESS[coding]
    blocks = [f"{n} {'x' * (n * 97 % 3000)}".encode() for n in range(400)]
    raw = b"".join(map(compress, blocks))
    assert len(raw) > 2**12
    assert decoded(raw, coding, 2**20) == b"".join(blocks)
    assert decoded(raw, coding, len(b"".join(blocks)) - 1) is None
    with pytest.raises(BadRequest):
        decoded(compress(b"") * 50_000, coding, 2**20)


async def test_zeros_behind_the_end_of_gzip_are_ignored() -> None:
    padded = gzip.compress(b"x") + bytes(300) + gzip.compress(b"y") + bytes(9)
    assert await exchange(padded, [(b"content-encoding", b"gzip")]).read() == b"xy"


def exchange(body: bytes, headers: list[tuple[bytes, bytes]], intake: Intake | None = None) -> Exchange:
    server = Server(part(body), headers=headers)
    return Exchange({"type": "http", "headers": headers}, server._receive, server._send, intake, largest=2000)


async def test_bodies_are_counted_until_their_requests_are_over() -> None:
    refused: list[str] = []
    intake = Intake(10 * LEAST, 10 * LEAST, refused.append, LEAST + 2999)
    first, second = exchange(b"x" * 1500, [], intake), exchange(b"x" * 1500, [], intake)
    await first.read()
    await second.read()
    assert (intake.complete, intake.incomplete) == (3000, 0)
    with pytest.raises(Overloaded):
        await exchange(b"x", [], intake).read()
    second.release()
    await exchange(COMPRESS["gzip"](bytes(1000)), [(b"content-encoding", b"gzip")], intake).read()
    first.release()
    first.release()
    assert (intake.complete, refused) == (1000, ["bodies"])


@pytest.mark.parametrize("parts", [[], [part(b"ab", more=True)]], ids=["before the body", "in the middle of it"])
async def test_read_raises_client_gone_if_the_client_disconnects(parts: list[Message]) -> None:
    with pytest.raises(ClientGone):
        await Server(*parts, GONE).http.read()


async def receiving(intake: Intake, address: str, size: int, declared: int = 0) -> "asyncio.Task[bytes]":
    """A client that sends so many bytes and then nothing."""
    headers = [(b"content-length", str(declared).encode())] if declared else []
    server = Server(part(bytes(size), more=True), headers=headers)
    scope = {"type": "http", "headers": headers, "client": (address, 1)}
    http = Exchange(scope, server._receive, server._send, intake)
    task = asyncio.ensure_future(http.read())
    await asyncio.sleep(0.001)
    return task


async def test_incomplete_bodies_are_bounded_together_and_by_address() -> None:
    refused: list[str] = []
    intake = Intake(40 * LEAST, 10 * LEAST, refused.append)
    open_ = [await receiving(intake, "a", LEAST) for _ in range(40)]
    assert sum(not each.done() for each in open_) == 10
    assert intake.incomplete == 10 * LEAST
    with pytest.raises(Overloaded) as caught:
        await open_[-1]
    assert caught.value.headers == {"retry-after": "1", "retry-after-ms": "1000", "connection": "close"}
    assert refused == ["bodies"] * 30
    open_ += [await receiving(intake, str(n), 3 * LEAST) for n in range(20)]
    assert intake.incomplete == 40 * LEAST, "what does not fit is not kept"
    for each in open_:
        each.cancel()
    await asyncio.gather(*open_, return_exceptions=True)
    assert intake.incomplete == 0


async def test_an_incomplete_body_counts_its_declared_length_or_the_least_size() -> None:
    intake = Intake(10 * LEAST, 10 * LEAST)
    small = await receiving(intake, "a", 1)
    assert intake.incomplete == LEAST
    large = await receiving(intake, "b", 1, declared=9 * LEAST + 1)
    assert large.done()
    assert intake.incomplete == LEAST
    small.cancel()
    await asyncio.wait({small})
    with pytest.raises(Overloaded):
        await large


async def test_headers_are_sent_if_added_before_the_first_chunk() -> None:
    server = Server()

    async def late() -> AsyncGenerator[bytes, None]:
        server.http.own_headers.append((b"x-late", b"1"))
        yield b"a"

    await server.http.relay(200, [], late(), begun)

    assert (b"x-late", b"1") in server.sent[0]["headers"]


async def test_a_stream_without_a_chunk_is_an_empty_answer() -> None:
    server = Server()

    await server.http.relay(204, [], stream(), begun)

    assert [message["type"] for message in server.sent] == ["http.response.start", "http.response.body"]
    assert (server.http.status, server.http.streamed) == (204, False)


async def test_a_task_continues_after_its_client_has_gone() -> None:
    with pytest.raises(ClientGone):
        async with Server(GONE).http.watch():
            await asyncio.Event().wait()

    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await asyncio.sleep(0)


@pytest.mark.parametrize("cut", [3, 20, 100])
async def test_a_client_may_disconnect_after_done(cut: int) -> None:
    server = Server()
    data = b'data: {"choices":[]}\n\ndata: [DONE]\n\n'

    async def chunks() -> AsyncGenerator[bytes, None]:
        for at in range(0, len(data), cut):
            yield data[at : at + cut]
        server.inbox.put_nowait(GONE)
        for _ in range(5):
            await asyncio.sleep(0)
        yield b": last\n\n"

    async with server.http.watch():
        while not server.reads:
            await asyncio.sleep(0.01)
        await server.http.relay(200, [], chunks(), begun)

    assert b"".join(message.get("body", b"") for message in server.sent) == data + b": last\n\n"
    assert server.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_watch_ignores_other_messages_and_stops_listening_at_the_end() -> None:
    server = Server(part(b""))

    async with server.http.watch():
        while not server.inbox.empty():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    server.inbox.put_nowait(GONE)
    for _ in range(5):
        await asyncio.sleep(0)

    assert server.inbox.qsize() == 1


async def test_watch_passes_on_other_cancellations() -> None:
    waiting = asyncio.Event()

    async def work() -> None:
        async with Server().http.watch():
            waiting.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await waiting.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.parametrize(("headers", "own"), [([], True), ([(b"openai-processing-ms", b"12000")], False)])
async def test_an_answer_says_its_time_unless_the_upstream_does(headers: list[tuple[bytes, bytes]], own: bool) -> None:
    server = Server()
    await server.http.respond(200, headers, b"{}")
    (value,) = [value for name, value in server.sent[0]["headers"] if name == b"openai-processing-ms"]
    assert (value != b"12000") == own
    assert int(value) >= 0
