"""One HTTP exchange over bare ASGI: a bounded request body, a streamed answer, and the disconnect of the client.

Starlette's BaseHTTPMiddleware would hide the disconnect, and its StreamingResponse starts a task group per answer.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from time import perf_counter
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from proxy.access.callers import Caller
from proxy.access.limits import Admission
from proxy.chat import encode
from proxy.chat.errors import BadRequest, Overloaded
from proxy.chat.parse import Body, do_sized
from proxy.chat.sse import ByteStream
from proxy.http.codings import decompressor
from proxy.http.headers import Headers, request_id, retry_after
from proxy.telemetry.observation import Observation

_PROCESSING = b"openai-processing-ms"
_MOMENT = 0.05
"""Seconds after which a request begins to listen for the disconnect of its client."""

_GRACE = 5.0
"""Seconds in which an upstream must close a stream after `[DONE]`."""

_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]\s*$")

LEAST = 256 * 1024
"""Bytes that an incomplete body counts at least, because its connection takes memory too."""

NO_STORE = (b"cache-control", b"no-store")


class ClientGone(Exception):
    """The client closed the connection."""


class Intake:
    """Bounds of request bodies in memory; of incomplete ones also by client address, against slow clients."""

    def __init__(
        self,
        most: int,
        most_of_one: int,
        refused: Callable[[str], None] = lambda reason: None,
        most_together: int = sys.maxsize,
    ) -> None:
        """Set the bounds; `refused` is called with the reason of each refusal."""
        self._refused = refused
        self.bound(most, most_of_one, most_together)
        self._by_address: dict[str, int] = {}
        self.incomplete = 0
        self.complete = 0
        """Bytes of the complete bodies of requests under way."""

    def bound(self, most: int, most_of_one: int, most_together: int) -> None:
        """Set the bounds in bytes: of all incomplete bodies, of those from one address, and of all bodies."""
        self._most, self._most_of_one, self._most_together = most, most_of_one, most_together

    def keep(self, size: int) -> None:
        """Count a complete body until its `release`. Raise `Overloaded` if it does not fit."""
        if size and self.incomplete + self.complete + size > self._most_together:
            raise self._overloaded()
        self.complete += size

    def release(self, size: int) -> None:
        self.complete -= size

    def take(self, address: str, size: int, expected: int = 0) -> int:
        """Count bytes of an incomplete body until `give_back`. Raise `Overloaded` if it does not fit as `expected`."""
        more, of_one = max(size, expected), self._by_address.get(address, 0)
        is_over = self.incomplete + more > self._most or of_one + more > self._most_of_one
        if is_over or self.incomplete + self.complete + more > self._most_together:
            raise self._overloaded()
        self._by_address[address] = of_one + size
        self.incomplete += size
        return size

    def give_back(self, address: str, size: int) -> None:
        self.incomplete -= size
        if left := self._by_address.pop(address, 0) - size:
            self._by_address[address] = left

    def _overloaded(self) -> Overloaded:
        self._refused("bodies")
        message = "Penstock has too many large requests under way. Try again soon."
        return Overloaded(message, headers={**retry_after(1.0), "connection": "close"})


class Exchange:
    """One request and its answer."""

    seen: Observation
    """Its observation, which the endpoint begins."""
    caller: Caller
    """Its sender, whom the gate has found."""
    admission: Admission
    """Account of the request with the limits of its key."""
    status: int | None = None
    streamed = False
    sends_events = False
    names_events = False
    """True if the events of the stream have names, as in Anthropic's API and in OpenAI's Responses."""
    _counted = 0
    _last = b""
    _done = False
    _watch: "Watch | None" = None

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        intake: Intake | None = None,
        largest: int = sys.maxsize,
    ) -> None:
        """Wrap an ASGI connection; its body may have at most `largest` bytes."""
        self.scope = scope
        self._largest = largest
        self._intake = intake or Intake(sys.maxsize, sys.maxsize)
        self.headers = _headers(scope["headers"])
        """Request headers, names in lower case; values of a repeated header joined by commas (RFC 9110 §5.3)."""
        self.request_id = request_id(self.headers.get("x-request-id"))
        self.own_headers: Headers = [(b"x-request-id", self.request_id.encode())]
        """Headers that Penstock adds to the answer; the list grows while the request is processed."""
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self._begun = perf_counter()
        self._receive = receive
        self._send = send

    async def read(self) -> bytes:
        """Return the whole body. Raise `BadRequest` (413) as soon as it is too large, `Overloaded` if all are."""
        length = self.headers.get("content-length", "0").lstrip("0")
        declared = int(length[:19]) if length.isascii() and length.isdigit() else 0
        if declared > self._largest:
            raise _too_large(self._largest)
        named = self.headers.get("content-encoding")
        coding = coding_of(named) if named else None
        parts: list[bytes] = []
        size = 0
        more = True
        client, counted = self.scope.get("client"), 0
        address = client[0] if client else ""
        try:
            counted += self._intake.take(address, LEAST, declared)
            while more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                size += len(part)
                if size > self._largest:
                    raise _too_large(self._largest)
                if size > counted:
                    counted += self._intake.take(address, size - counted)
                parts.append(part)
                more = message.get("more_body", False)
        finally:
            self._intake.give_back(address, counted)
        raw = parts[0] if len(parts) == 1 else b"".join(parts)
        if coding is not None and raw:
            content = await asyncio.to_thread(decoded, raw, coding, self._largest)
            if content is None:
                raise _too_large(self._largest)
            raw = content
        self._intake.keep(len(raw))
        self._counted += len(raw)
        return raw

    async def body(self) -> Body:
        """Return the body as a JSON object. Raise `BadRequest` if it is none."""
        raw = await self.read()
        return await do_sized(len(raw), partial(Body, raw))

    def release(self) -> None:
        self._intake.release(self._counted)
        self._counted = 0

    async def tell(self, answer: Any) -> None:
        """Send an answer in JSON that no cache may store."""
        await self.respond(200, [(b"content-type", b"application/json"), NO_STORE], encode(answer))

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        await self._begin(status, [*headers, *self.own_headers, (b"content-length", str(len(body)).encode())])
        await self._send({"type": "http.response.body", "body": body})

    async def relay(self, status: int, headers: Headers, chunks: ByteStream, begun: Callable[[], None]) -> None:
        """Send an answer chunk by chunk; call `begun` before the first. After `[DONE]` the client may leave."""
        try:
            async with asyncio.timeout(None) as rest, aclosing(chunks):
                async for chunk in chunks:
                    if self.status is None:
                        self.streamed, self.names_events = True, chunk.startswith(b"event:")
                        self.sends_events = any(
                            name == b"content-type" and value.lower().startswith(b"text/event-stream")
                            for name, value in headers
                        )
                        begun()
                        await self._begin(status, [*headers, *self.own_headers])
                    self._last = (self._last + chunk[-32:])[-32:]
                    if b"[DONE]" in self._last and not self._done and _DONE.search(self._last):
                        self._done = True
                        rest.reschedule(asyncio.get_running_loop().time() + _GRACE)
                        if self._watch is not None:
                            self._watch.release()
                    await self._put({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            if not rest.expired():
                raise
        if self.status is None:
            await self._begin(status, [*headers, *self.own_headers])
        await self.finish()

    @property
    def between_events(self) -> bool:
        return self._last.endswith((b"\n\n", b"\r\n\r\n")) or not self._last

    async def finish(self, last: bytes = b"") -> None:
        """End a streamed answer, with a last chunk if there is one."""
        await self._put({"type": "http.response.body", "body": last})

    async def _put(self, message: Message) -> None:
        try:
            await self._send(message)
        except RuntimeError as error:
            if not (self._done and is_gone(error)):
                raise

    async def _begin(self, status: int, headers: Headers) -> None:
        self.status = status
        if _PROCESSING not in dict(headers):  # else it is the upstream's
            headers = [*headers, (_PROCESSING, b"%d" % (1000 * (perf_counter() - self._begun)))]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def watch(self) -> "Watch":
        """Return a context that cancels the running task if the client disconnects. Use it once the body is read."""
        self._watch = Watch(self._receive)
        return self._watch


class Watch:
    """A context that turns the disconnect of the client into `ClientGone`, also before the first byte of the answer.

    It listens after 50 ms only: the task and the exception would cost a faster answer a tenth of the request.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False
        self._owner: asyncio.Task[Any] | None = None
        self._listener: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._owner = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(_MOMENT, self._begin)

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.release()
        owner, self._owner = self._owner, None
        if self._gone and isinstance(error, asyncio.CancelledError):
            if owner is not None:
                owner.uncancel()
            raise ClientGone from None

    def release(self) -> None:
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None  # breaks a reference cycle, which would wait for the garbage collector

    def _begin(self) -> None:
        self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._owner is not None:
            self._owner.cancel()


def is_gone(error: Exception) -> bool:
    """Return whether an error means that the connection was closed during an answer."""
    return isinstance(error, RuntimeError) and "handler is closed" in str(error)


def _headers(sent: Headers) -> dict[str, str]:
    with suppress(ValueError):  # some are not valid UTF-8, or there are none
        names, texts = (map(bytes.decode, each) for each in zip(*sent, strict=True))
        headers = dict(zip(names, texts, strict=True))
        if len(headers) == len(sent):
            return headers
    values: dict[bytes, list[bytes]] = {}
    for name, value in sent:
        values.setdefault(name, []).append(value)
    return {name.decode("latin-1"): _text(b", ".join(each)) for name, each in values.items()}


def _text(value: bytes) -> str:
    """Return the value of a header as text: UTF-8 where it is valid, so that it is forwarded with the same bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _too_large(limit: int) -> BadRequest:
    return BadRequest(
        f"the body is larger than {limit} bytes",
        status=413,
        code="request_too_large",
        headers={"connection": "close", "x-should-retry": "false"},
    )


# --- compressed bodies ---

ENCODINGS = ("gzip", "zstd")
"""The content codings that are decoded: those in which clients send requests."""

_PIECE = 2**16
_FRAMES = 10_000
"""More frames than a body of the largest size has from writers that make one for each block."""


def coding_of(header: str) -> str | None:
    """Return the coding in a `Content-Encoding`, or None. Raise `BadRequest` (415) for an unknown or second coding."""
    names = [name for name in (each.strip().lower() for each in header.split(",")) if name not in ("", "identity")]
    if not names:
        return None
    name = names[0].removeprefix("x-")
    if len(names) > 1 or name not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise BadRequest(
            f"Content-Encoding must be one of: {known}, identity",
            code="unsupported_content_encoding",
            status=415,
            headers={"accept-encoding": known, "connection": "close"},
        )
    return name


def decoded(raw: bytes, coding: str, most: int) -> bytes | None:
    """Return a decoded body, or None as soon as it has more than `most` bytes.

    Raise `BadRequest` if the body is damaged or incomplete.
    """
    try:
        parts = [*_parts(raw, coding, most + 1)]
    except Exception:  # each library has errors of its own
        raise BadRequest(f"the body is not valid {coding}", code="invalid_content_encoding") from None
    return None if sum(map(len, parts)) > most else b"".join(parts)


def _parts(raw: bytes, coding: str, room: int) -> Iterator[bytes]:
    """Yield the decoded parts of a body, piece by piece: behind each frame, all that was given is copied.

    Raise an exception if it is damaged or incomplete, or has very many frames. Stop behind `room` bytes.
    """
    frame, frames = decompressor(coding), 1
    padding = b"\0" if coding == "gzip" else b""  # some writers fill up a block with zeros
    for start in range(0, len(raw), _PIECE):
        rest = raw[start : start + _PIECE]
        while room and frames <= _FRAMES and (rest := rest.lstrip(padding) if frame.eof else rest):
            if frame.eof:
                frame, frames = decompressor(coding), frames + 1
            part = frame.decompress(rest, room)
            room -= len(part)
            rest = frame.unused_data
            yield part
    if frames > _FRAMES or (room and not frame.eof):
        raise EOFError
