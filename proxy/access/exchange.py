"""One HTTP exchange over bare ASGI: reads a bounded body, sends the answer as it comes, and notices a client that
disconnects.

Starlette's BaseHTTPMiddleware would hide the disconnect, and its StreamingResponse starts a task group per answer.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from proxy.access.callers import Caller
from proxy.access.limits import Admission
from proxy.chat import encode
from proxy.chat.errors import BadRequest, Overloaded
from proxy.chat.parse import Body
from proxy.chat.sse import ByteStream
from proxy.http.encodings import coding_of, decoded
from proxy.http.headers import Headers, request_id, retry_after
from proxy.identity import tenant_of
from proxy.state.threads import do_sized

_MOMENT = 0.05
"""Seconds before a request begins to listen for a disconnect of its client."""

_REST = 5.0
"""Seconds that an upstream has to close a stream after `[DONE]`."""

_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]\s*$")

LEAST = 256 * 1024
"""The least bytes that an incomplete body counts for, because its connection takes memory too."""


NO_STORE = (b"cache-control", b"no-store")


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


class Intake:
    """Bounds the bytes of bodies: of incomplete ones, in all and per client address, so that slow clients cannot fill
    the memory, and of all together, for as long as their requests are under way."""

    def __init__(
        self,
        most: int,
        most_of_one: int,
        refused: Callable[[str], None] = lambda reason: None,
        most_together: int = sys.maxsize,
    ) -> None:
        """`refused` is called with the reason of each refusal."""
        self._refused = refused
        self.bound(most, most_of_one, most_together)
        self._held: dict[str, int] = {}
        self.held = 0
        """Bytes of all incomplete bodies."""
        self.complete = 0
        """Bytes of the complete bodies whose requests are under way."""

    def bound(self, most: int, most_of_one: int, most_together: int) -> None:
        """Set the bounds in bytes: of incomplete bodies in all, of those of one address, and of all bodies."""
        self._most, self._most_of_one, self._most_together = most, most_of_one, most_together

    def keep(self, size: int) -> None:
        """Count a complete body, until `release`. Raise `Overloaded` if it does not fit."""
        self._check("", size, incomplete=False)
        self.complete += size

    def release(self, size: int) -> None:
        """Count a body no longer."""
        self.complete -= size

    @contextmanager
    def receiving(self, address: str, declared: int) -> Iterator[Callable[[int], None]]:
        """Count a body as incomplete while the context is open. Call the function that it yields with the size of
        each part before keeping the part.

        Raise `Overloaded` if a part, or the declared length, does not fit.
        """
        size = counted = 0

        def take(part: int) -> None:
            nonlocal size, counted
            size += part
            more = max(size, LEAST) - counted
            self._check(address, more)
            self._held[address] = self._held.get(address, 0) + more
            self.held += more
            counted += more

        self._check(address, declared)
        try:
            take(0)
            yield take
        finally:
            self.held -= counted
            if counted:
                self._held[address] -= counted
                if not self._held[address]:
                    del self._held[address]

    def _check(self, address: str, more: int, *, incomplete: bool = True) -> None:
        is_over = more and self.held + self.complete + more > self._most_together
        if more and incomplete:
            own = self._held.get(address, 0)
            is_over = is_over or self.held + more > self._most or own + more > self._most_of_one
        if is_over:
            self._refused("bodies")
            told = "Penstock has too many large requests under way. Try again soon."
            raise Overloaded(told, headers={**retry_after(1.0), "connection": "close"})


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        intake: Intake | None = None,
        largest: int = sys.maxsize,
    ) -> None:
        """A body may have at most `largest` bytes."""
        self.scope = scope
        self._largest = largest
        self._intake = intake or Intake(sys.maxsize, sys.maxsize)
        self._kept = 0
        self.headers = _headers(scope["headers"])
        """The request headers, names in lower case; the values of a repeated one joined by commas (RFC 9110 §5.3)."""
        self.request_id = request_id(self.headers.get("x-request-id"))
        self.own_headers: Headers = [(b"x-request-id", self.request_id.encode())]
        """The headers that Penstock adds to the answer; more come as they become known."""
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        """The query string as the client encoded it."""
        self.caller: Caller | None = None
        """The caller, where the gate has identified one."""
        self.admission: Admission | None = None
        """What the request takes of its caller's limits, if there are any."""
        self.status: int | None = None
        """The status of the answer once it has been sent."""
        self.streamed = False
        """Whether the answer was sent chunk by chunk."""
        self.sends_events = False
        """Whether the answer is an event stream."""
        self.names_events = False
        """Whether the events of a streamed answer have names, as in Anthropic's and in OpenAI's Responses."""
        self._last = b""
        self._done = False
        """Whether `[DONE]` of a stream was sent: the client may disconnect."""
        self._watch: Watch | None = None
        self._receive = receive
        self._send = send

    async def read(self) -> bytes:
        """Return the whole body. Raise `BadRequest` (413) as soon as it is too large, and `Overloaded` if too much is
        being received already."""
        length = self.headers.get("content-length", "0").lstrip("0")
        declared = int(length[:19]) if length.isascii() and length.isdigit() else 0
        if declared > self._largest:
            raise _too_large(self._largest)
        coding = coding_of(self.headers.get("content-encoding", ""))
        parts: list[bytes] = []
        size = 0
        more = True
        client = self.scope.get("client")
        with self._intake.receiving(client[0] if client else "", declared) as take:
            while more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                size += len(part)
                if size > self._largest:
                    raise _too_large(self._largest)
                take(len(part))
                parts.append(part)
                more = message.get("more_body", False)
        raw = parts[0] if len(parts) == 1 else b"".join(parts)
        if coding is not None and raw:
            raw = await self._decoded(raw, coding)
        self._intake.keep(len(raw))
        self._kept += len(raw)
        return raw

    async def _decoded(self, raw: bytes, coding: str) -> bytes:
        """Return a body without its compression, which may be undone to the size that any body may have."""
        content = await asyncio.to_thread(decoded, raw, coding, self._largest)
        if content is None:
            raise _too_large(self._largest)
        return content

    async def body(self) -> Body:
        """Return the whole body as a JSON object. Raise `BadRequest` for one that is none."""
        raw = await self.read()
        return await do_sized(len(raw), partial(Body, raw))

    def release(self) -> None:
        """Count the body no longer: the request is over."""
        self._intake.release(self._kept)
        self._kept = 0

    @property
    def tenant(self) -> str:
        """Whose data the request may see."""
        return tenant_of(self.headers) if self.caller is None else self.caller.tenant

    async def tell(self, answer: Any) -> None:
        """Send an answer in JSON that no cache may keep."""
        await self.respond(200, [(b"content-type", b"application/json"), NO_STORE], encode(answer))

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole answer."""
        await self._begin(status, [*headers, *self.own_headers, (b"content-length", str(len(body)).encode())])
        await self._send({"type": "http.response.body", "body": body})

    async def relay(self, status: int, headers: Headers, chunks: ByteStream, begun: Callable[[], None]) -> None:
        """Send an answer chunk by chunk, each as soon as it is there. Errors of `chunks` pass through.

        `begun` is called once, with the first chunk. A client that disconnects after `[DONE]` has the whole answer.
        """
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
                        rest.reschedule(asyncio.get_running_loop().time() + _REST)
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
        """Whether the stream so far ends with a whole event."""
        return self._last.endswith((b"\n\n", b"\r\n\r\n")) or not self._last

    async def finish(self, last: bytes = b"") -> None:
        """End an answer that has begun."""
        await self._put({"type": "http.response.body", "body": last})

    async def _put(self, message: Message) -> None:
        try:
            await self._send(message)
        except RuntimeError as error:
            if not (self._done and is_gone(error)):
                raise

    async def _begin(self, status: int, headers: Headers) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def watch(self) -> "Watch":
        """Cancel the running task if the client disconnects while the context is open. Use it once the body is read."""
        self._watch = Watch(self._receive)
        return self._watch


class Watch:
    """Turns a disconnect of the client into `ClientGone`, also before the first byte of the answer.

    It begins to listen after 50 ms. A faster answer needs no listener, whose task and exception would cost a tenth
    of a small request.
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
        """Stop listening: the client may disconnect."""
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()
            self._listener = None  # it knows this object: together they would wait for the garbage collector

    def _begin(self) -> None:
        self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._owner is not None:
            self._owner.cancel()


def is_gone(error: Exception) -> bool:
    """Return whether an error means that the connection was closed under an answer."""
    return isinstance(error, RuntimeError) and "handler is closed" in str(error)


def _headers(sent: Headers) -> dict[str, str]:
    headers = {name.decode("latin-1"): _text(value) for name, value in sent}
    if len(headers) == len(sent):
        return headers
    values: dict[bytes, list[bytes]] = {}
    for name, value in sent:
        values.setdefault(name, []).append(value)
    return {name.decode("latin-1"): _text(b", ".join(each)) for name, each in values.items()}


def _text(value: bytes) -> str:
    """Return a header's value in a form that is sent with the bytes that came, wherever they are UTF-8."""
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
