"""A connection to a server: HTTP/1.1 as llhttp reads it, one request after the other."""

import asyncio
import socket
import sys
from typing import cast

import httptools

_KEPT = 30.0
"""Seconds for which an idle connection is kept."""
_LONGEST_HEAD = 64 * 1024
_MOST_WAITING = 128 * 1024
"""Bytes of an answer that wait for their reader. Behind that the server is not read."""
_PRINTABLE = bytes(32 if (each < 32 and each != 9) or each == 127 else each for each in range(256))
"""Blanks in place of control characters, which the server for clients does not send in headers."""
_COUNTS_BYTES = sys.platform == "linux"
"""True if the system reports the acknowledged bytes of a connection."""


class InvalidAnswer(ConnectionError):
    """The server sent what is not HTTP."""


class BrokeOff(ConnectionError):
    """The connection ended before its answer."""

    def __init__(self, cause: Exception | None, *, has_begun: bool, was_received: bool) -> None:
        """`has_begun`: a byte of the answer came. `was_received`: the server may have a byte of the request."""
        super().__init__("the connection was closed" if cause is None else str(cause))
        self.errno = cause.errno if isinstance(cause, OSError) else None
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
        self._waiting = self._head = self._arrived = self._acknowledged = self._unsent = self._size = 0
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
        self._head, self._arrived, self._size = 0, 0, len(head) + len(body or b"")
        self._lacks_body, self._acknowledged = method == "HEAD", self._count_acknowledged()
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
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._end(InvalidAnswer("its answer is not valid HTTP"))
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
            got = not is_counted or self.socket is None or self._count_acknowledged() > self._acknowledged
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
        if self._is_secure and _COUNTS_BYTES:
            return max(0, self._size - self._count_acknowledged() + self._acknowledged)
        return self.transport.get_write_buffer_size()

    def _count_acknowledged(self) -> int:
        """Return the field `tcpi_bytes_acked` of Linux's `tcp_info`."""
        if self.socket is None or not _COUNTS_BYTES:
            return 0
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        return int.from_bytes(info[120:128], sys.byteorder)

    # --- the parser's calls ---

    def on_message_begin(self) -> None:
        if self._is_over:
            raise InvalidAnswer("its answer goes on behind its end")
        self._arriving = []

    def on_status(self, reason: bytes) -> None:
        self._count_head(reason)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(name + value)
        self._arriving.append((name.lower(), value.translate(_PRINTABLE)))

    def _count_head(self, part: bytes) -> None:
        self._head += len(part)
        if self._head > _LONGEST_HEAD:
            raise InvalidAnswer("the head of its answer is too long")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
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
