"""The HTTP client for upstreams: a pool of connections, raw bytes in and out.

A connection carries one request after the other, in HTTP/1.1 as llhttp reads it.
"""

import asyncio
import logging
import os
import socket
import ssl
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import cast
from urllib.parse import unquote_to_bytes

import httptools
from aiohappyeyeballs import AddrInfoType, start_connection
from yarl import URL

from proxy.chat.errors import Unanswered, UpstreamFailed, UpstreamTimeout
from proxy.http.codings import DecodedBody, InvalidAnswer, coding_of_answer
from proxy.http.headers import NOT_RELAYED
from proxy.state.warnings import Warnings

_KEPT = 30.0
"""Seconds for which an idle connection is kept."""
_LONGEST_HEAD = 64 * 1024
_MOST_WAITING = 128 * 1024
"""Bytes of an answer that wait for their reader. Behind that the server is not read."""
_PRINTABLE = bytes(32 if (each < 32 and each != 9) or each == 127 else each for each in range(256))
"""Blanks in place of control characters, which the server for clients does not send in headers."""
_COUNTS_BYTES = sys.platform == "linux"
"""True if the system reports the acknowledged bytes of a connection."""


class BrokeOff(ConnectionError):
    """The connection ended before its answer."""

    def __init__(self, cause: Exception | None, *, has_begun: bool, was_received: bool) -> None:
        """`has_begun`: a byte of the answer came. `was_received`: the server may have a byte of the request."""
        super().__init__("the connection was closed" if cause is None else str(cause))
        self.errno = cause.errno if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) else None
        self.has_begun, self.was_received = has_begun, was_received


class ServerConnection(asyncio.Protocol):
    """Carries one request at a time. The parser calls the methods that begin with `on_`."""

    transport: asyncio.Transport

    def __init__(self, patience: float, all: set["ServerConnection"], idle: list["ServerConnection"]) -> None:
        """Set up a connection that is not open yet.

        `patience` is the longest silence within an answer, in seconds. The connection is in `all` while it is open, and
        in `idle`, the connections to its server that can be used, between two requests.
        """
        self._loop, self._patience, self._all, self._idle = asyncio.get_running_loop(), patience, all, idle
        self._parser = httptools.HttpResponseParser(self)
        # servers write headers with odd bytes, lines without a carriage return, and spaces behind a chunk's size
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self.socket: socket.socket | None = None
        """The TCP socket, of which the system counts the bytes."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Headers of the answer, names in lower case."""
        self._is_idle = self._is_given_up = self._is_secure = False
        self._arriving: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._waiting = self._head = self._arrived = self._unsent = self._size = 0
        self._acknowledged = 1  # the first packet
        self._has_head = self._is_over = True
        self._keeps = self._is_paused = self._has_begun = self._lacks_body = False
        self._fault: ConnectionError | TimeoutError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0

    async def ask(self, head: bytes, body: bytes | None, method: str) -> None:
        """Send a request, and wait for the head of its answer.

        Raise `BrokeOff`, `InvalidAnswer` or `TimeoutError`. Whatever is raised, the connection is closed.
        """
        if self.transport.is_closing():
            raise BrokeOff(None, has_begun=False, was_received=False)
        self._has_head = self._is_over = self._keeps = self._has_begun = self._is_idle = False
        # without TLS these are the bytes of all requests before, for which the system is not asked
        sent = (self._count_acknowledged() or 0) if self._is_secure else self._acknowledged + self._size
        self._lacks_body, self._acknowledged = method == "HEAD", sent
        self._head, self._arrived, self._size = 0, 0, len(head) + len(body or b"")
        if body:
            self.transport.writelines((head, body))
        else:
            self.transport.write(head)
        try:
            while not self._has_head:
                await self._wait()
        except BaseException:
            self.transport.abort()
            raise

    async def read(self) -> bytes:
        """Return what has arrived of the body, empty behind its end. Raise as `ask` does."""
        while not self._parts and not self._is_over:
            await self._wait()
        parts, self._parts, self._waiting = self._parts, [], 0
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def free(self) -> None:
        """Keep the connection if the answer is over and was read, else close it. Call it once for an answer."""
        is_read = not self._parts  # the rest of an answer must not be that of the next request
        is_over = self._is_over and self._keeps and is_read and not self.transport.is_closing()
        if is_over and not self._count_unsent():
            self._is_idle = True
            self._idle.append(self)
            self._expire_in(_KEPT)
        else:
            self.transport.abort()

    def give_up(self) -> None:
        """Close the connection, also one that is about to open: uvloop tells of none that it gives up."""
        self._is_given_up = True
        if self in self._all:
            self.transport.abort()
            self._all.discard(self)

    def _expire_in(self, seconds: float) -> None:
        """Close the connection after so many seconds in which it is idle, or somebody waits for the server."""
        self._until = until = self._loop.time() + seconds
        if self._timer is None or until < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(until, self._look)

    def _look(self) -> None:
        self._timer, unsent, before = None, self._count_unsent(), self._unsent
        self._unsent = unsent
        if 0 < unsent != before:  # a large request is still on its way
            self._expire_in(self._patience)
        elif self._until > self._loop.time():
            self._timer = self._loop.call_at(self._until, self._look)
        elif self._is_idle or self._waiter is not None:
            self._end(TimeoutError())

    async def _wait(self) -> None:
        if self._fault is not None:
            raise self._fault
        self._expire_in(self._patience)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self, fault: ConnectionError | TimeoutError) -> None:
        """Close the connection. What waits for an answer, or for its rest, gets the fault."""
        if not self._is_over:
            self._fault = self._fault or fault
        self.transport.abort()
        self._wake()

    # --- the event loop's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._is_secure = self.transport.get_extra_info("sslcontext") is not None
        if self.socket is not None and self._is_secure:
            self.socket = self.socket.dup()  # TLS closes its own before `connection_lost`
        if self._is_given_up:
            self.transport.abort()
        else:
            self._all.add(self)

    def data_received(self, data: bytes) -> None:
        self._has_begun = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            cause = error.__context__  # of one that was raised in a call of the parser's
            self._end(cause if isinstance(cause, InvalidAnswer) else InvalidAnswer("its answer is not valid HTTP"))
        self._wake()  # a part of the head is no silence either
        if not self._has_head:
            self._arrived += len(data)
            if self._arrived > _LONGEST_HEAD:
                self._end(InvalidAnswer("the head of its answer is too long"))

    def connection_lost(self, exc: Exception | None) -> None:
        # without a length, the end of the connection is that of the answer
        has_length = any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        self._is_over = self._is_over or (self._has_head and exc is None and self._fault is None and not has_length)
        if not self._is_over and self._fault is None:
            is_counted = exc is None or isinstance(exc, BrokenPipeError)  # a reset takes the count with it
            count = self._count_acknowledged() if is_counted else None
            got = count is None or count > self._acknowledged
            self._fault = BrokeOff(exc, has_begun=self._has_begun, was_received=got)
        if self.socket is not None:
            self.socket.close()
        if self._timer is not None:
            self._timer.cancel()
        self._wake()
        self._all.discard(self)
        if self in self._idle:
            self._idle.remove(self)

    def _count_unsent(self) -> int:
        """Return the bytes of the request that wait here. With TLS, the transport knows none that it has encrypted."""
        count = self._count_acknowledged() if self._is_secure else None
        if count is None:
            return self.transport.get_write_buffer_size()
        return max(0, self._size - count + self._acknowledged)

    def _count_acknowledged(self) -> int | None:
        """Return the field `tcpi_bytes_acked` of Linux's `tcp_info`; None where the system does not count."""
        if self.socket is None or not _COUNTS_BYTES:
            return None
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        return int.from_bytes(info[120:128], sys.byteorder) or None  # an open connection has counted its first packet

    # --- the parser's calls ---

    def on_message_begin(self) -> None:
        if self._is_over:
            raise InvalidAnswer("its answer goes on behind its end")
        self._arriving = []

    def on_status(self, reason: bytes) -> None:
        self._count_head(len(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        self._arriving.append((name.lower(), value.translate(_PRINTABLE)))

    def _count_head(self, size: int) -> None:
        self._head += size
        if self._head > _LONGEST_HEAD:
            raise InvalidAnswer("the head of its answer is too long")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        for name, value in self._arriving:
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                raise InvalidAnswer("its answer has a transfer coding that was not asked for")
        if self.status >= 200 or self.status == 101:  # else another head follows
            self.headers, self._arriving = self._arriving, []  # trailers go to the new list
            self._has_head, self._is_over = True, self._lacks_body

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._waiting += len(body)
        if self._waiting > _MOST_WAITING and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._has_head:
            self._is_over, self._keeps = True, self._parser.should_keep_alive()


# --- the pool ---

_LARGEST = 64 * 2**20
_HEAD_START = 0.25
"""Seconds after which another address of a server is tried, too."""

_log = logging.getLogger("penstock.http")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds."""

    connect: float
    idle: float
    """Longest silence within an answer."""


class Response:
    """An answer whose status and headers have arrived. Its body is read whole, or as a stream of bytes."""

    broken = False
    """True once the answer broke off. The circuit breaker of the upstream reads it."""
    _arriving: AsyncGenerator[bytes, None] | None = None

    def __init__(self, connection: ServerConnection, name: str, largest: int) -> None:
        self._connection, self._name, self._largest = connection, name, largest
        self._is_open = True
        self.status, self._head = connection.status, connection.headers
        self._known = dict(self._head)
        # nobody asked for a coding, but some servers send one; a part of a body (206) cannot be decoded
        named = self._known.get(b"content-encoding")
        coding = None if named is None or self.status == 206 else coding_of_answer(named)
        self.is_unread = coding == ""
        """True for a body in a coding that cannot be decoded: it is relayed as it is."""
        self._read = DecodedBody(connection.read, coding) if coding else connection.read
        self._dropped = NOT_RELAYED | {b"content-encoding"} if coding else NOT_RELAYED
        kind = self._known.get(b"content-type", b"").lower()
        is_read = self.status >= 300 or not kind or kind.startswith((b"application/json", b"text/"))
        self.is_stream = kind.startswith(b"text/event-stream") or not is_read
        """True for a body that is relayed as it arrives: events, or binary data such as sound."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        dropped = self._dropped
        if named := self._known.get(b"connection"):
            dropped = dropped | {name.strip() for name in named.lower().split(b",")}
        return [each for each in self._head if each[0] not in dropped]

    async def read(self) -> bytes:
        """Return the whole body and free the connection.

        Raise `UpstreamFailed`: `Unanswered`, without the rest being read, for a body that is too large.
        """
        parts: list[bytes] = []
        size = int(self._known.get(b"content-length", 0))
        try:
            if size <= self._largest:
                size = 0
                while size <= self._largest and (part := await self._read()):
                    parts.append(part)
                    size += len(part)
        except OSError as error:
            raise _failure(error, self._name) from None
        finally:
            self.close()
        if size > self._largest:
            told = f"the answer of upstream {self._name!r} is larger than {self._largest} bytes"
            too_large = Unanswered(told, code="upstream_answer_too_large")
            too_large.is_down = False
            raise too_large
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Free the connection; one whose answer is not over is closed."""
        if self._is_open:
            self._is_open = False
            self._connection.free()

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks as they arrive. Raise `UpstreamFailed` or `UpstreamTimeout` if the answer breaks off."""
        self._arriving = self._arriving or self._arrive()
        return self._arriving

    async def aclose(self) -> None:
        """Drop the connection, also if no chunk was read."""
        if self._arriving is not None:
            await self._arriving.aclose()
        self.close()

    async def _arrive(self) -> AsyncGenerator[bytes, None]:
        try:
            while chunk := await self._read():
                yield chunk
        except OSError as error:
            self.broken = True
            raise _failure(error, self._name) from None
        finally:
            self.close()


class Transport:
    """A connection pool. It follows no redirect, keeps no cookie and reads no proxy setting."""

    def __init__(
        self, name: str, timeouts: Timeouts, *, largest: int = _LARGEST, unix_socket: str | None = None
    ) -> None:
        """Set up the pool, without connecting.

        `name` stands for the server in errors, because clients must not learn its address. `largest` is the size in
        bytes of the largest answer that is read whole. With `unix_socket`, all requests go to that socket.
        """
        self._name, self._timeouts, self._largest, self._unix_socket = name, timeouts, largest, unix_socket
        self._all = set[ServerConnection]()
        self._idle: dict[tuple[str, str | None, int | None], list[ServerConnection]] = {}
        """Idle connections by scheme, host and port."""
        self._warnings = Warnings(_log, "server not reached")
        self._unread = Warnings(_log, "answers are relayed unread: their Content-Encoding cannot be decoded")

    async def request(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None) -> Response:
        """Send a request and wait for the head of its answer. Cancelling it closes the connection.

        Retry once if no connection could be opened, or if an idle connection was closed before the server received a
        byte of this request; for a safe method, also if the server closed the connection before it answered. Raise
        `UpstreamFailed`: `Unanswered` if the server may have processed the request.
        """
        head = _head(method, url, headers, body)
        for last in (False, True):
            connection: ServerConnection | None = None
            try:
                idle = self._idle.setdefault((url.scheme, url.raw_host, url.port), [])
                connection = idle.pop() if idle and not last else await self._connect(url, idle)
                await connection.ask(head, body, method)
            except OSError as error:
                is_sent = connection is not None and not (isinstance(error, BrokeOff) and not error.was_received)
                if last or not _may_retry(error, is_sent, is_safe=method in _SAFE):
                    failure = _failure(error, self._name, is_sent=is_sent)
                    if method in _SAFE:
                        failure.headers.pop("x-should-retry", None)
                    raise self._logged(failure, url, error, is_sent=is_sent) from None
                continue
            is_redirect = method == "POST" and 300 <= connection.status < 400
            if is_redirect or not 200 <= connection.status < 600:
                connection.free()
                raise redirected(self._name) if is_redirect else _invalid(self._name)  # nothing that could be relayed
            response = Response(connection, self._name, self._largest)
            if response.is_unread:
                self._unread.warn(server=self._name)
            return response
        raise AssertionError("unreachable")

    def _logged(self, failure: UpstreamFailed, url: URL, error: OSError, *, is_sent: bool) -> UpstreamFailed:
        """Log the address and the cause of a failure, which clients must not see, and return the failure."""
        failure.cause = f"{url.host}:{url.port}: {_cause(error, is_sent=is_sent)}"
        self._warnings.warn(server=self._name, cause=failure.cause)
        return failure

    async def _connect(self, url: URL, idle: list[ServerConnection]) -> ServerConnection:
        opened = ServerConnection(self._timeouts.idle, self._all, idle)
        try:
            await self._open(opened, url)
        except BaseException:
            opened.give_up()
            raise
        return opened

    async def _open(self, opened: ServerConnection, url: URL) -> None:
        loop, host, secure = asyncio.get_running_loop(), url.raw_host, None
        if self._unix_socket is not None:
            async with asyncio.timeout(self._timeouts.connect):
                await loop.create_unix_connection(lambda: opened, self._unix_socket)
            return
        if url.scheme == "https":
            secure = await asyncio.to_thread(tls)
        async with asyncio.timeout(self._timeouts.connect):
            try:
                found = await loop.getaddrinfo(host, url.port, type=socket.SOCK_STREAM)
            except UnicodeError:  # a label is empty or too long
                raise socket.gaierror from None
            opened.socket = await start_connection(found, happy_eyeballs_delay=_HEAD_START, socket_factory=_socket)
            named = host.rstrip(".") if host and secure else None  # as it stands in a certificate
            await loop.create_connection(lambda: opened, sock=opened.socket, ssl=secure, server_hostname=named)

    async def aclose(self) -> None:
        for connection in [*self._all]:
            connection.transport.close()
        await asyncio.sleep(0)


_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that may be sent twice: they change nothing and cost nothing."""


@cache
def tls() -> ssl.SSLContext:
    """Return a context with the system's certificates, which take some 20 ms to load."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _socket(address: AddrInfoType) -> socket.socket:
    opened = socket.socket(family=address[0], type=address[1], proto=address[2])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return opened


def _head(method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the head of a request. Raise `ValueError` for a header of several lines."""
    lines = [f"{method} {url.raw_path_qs} HTTP/1.1"]
    if "host" not in headers:
        lines.append(f"host: {url.host_port_subcomponent}")
    if url.raw_user is not None and "authorization" not in headers:
        secret = unquote_to_bytes(f"{url.raw_user}:{url.raw_password or ''}")
        lines.append(f"authorization: Basic {b64encode(secret).decode()}")
    if body is not None or method not in _SAFE:
        lines.append(f"content-length: {len(body or b'')}")
    lines += map(": ".join, headers.items())
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
        raise ValueError("a header has several lines")
    return f"{text}\r\n\r\n".encode()


def _may_retry(error: OSError, is_sent: bool, *, is_safe: bool) -> bool:
    """Return whether a request may be sent again. `is_sent`: the server may have it, and must not get it twice."""
    if isinstance(error, BrokeOff):
        return not error.has_begun and (is_safe or not is_sent)
    return not is_sent


def _failure(error: OSError, name: str, *, is_sent: bool = True) -> UpstreamFailed:
    if not is_sent:
        return unreached(name, is_late=isinstance(error, TimeoutError))
    if isinstance(error, TimeoutError):
        return too_late(name)
    return _invalid(name) if isinstance(error, InvalidAnswer) else broken_off(name)


def unreached(name: str, *, is_late: bool) -> UpstreamFailed:
    """Return the error for a server that got nothing of a request."""
    told = f"the upstream {name!r} could not be reached{' in time' if is_late else ''}"
    return UpstreamFailed(told, status=504 if is_late else None)


def redirected(name: str) -> UpstreamFailed:
    """Return the error for a redirect. Who follows it goes past the proxy, and takes the key to another host."""
    error = UpstreamFailed(f"the upstream {name!r} redirects: set its base_url to the final address")
    error.is_down = False
    return error


def too_late(name: str) -> UpstreamTimeout:
    """Return the error for a server that is silent."""
    return UpstreamTimeout(f"the upstream {name!r} sent nothing for too long; it may have processed the request")


def broken_off(name: str) -> Unanswered:
    """Return the error for an answer without its end."""
    return Unanswered(f"the upstream {name!r} broke off its answer; it may have processed the request")


def _cause(error: OSError, *, is_sent: bool) -> str:
    """Return the cause of an error for operators, in the system's words where it has any."""
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):  # its number is none of the system's
        return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, TimeoutError):
        return "no answer in time" if is_sent else "the connection could not be opened in time"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error) or type(error).__name__


def _invalid(name: str) -> Unanswered:
    return Unanswered(f"the upstream {name!r} sent an answer that is not valid HTTP", code="upstream_invalid")
