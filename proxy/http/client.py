"""The HTTP client for upstreams: one connection pool, raw bytes in and out. The only file that imports aiohttp."""

import asyncio
import errno
import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import cast

import aiohttp
import aiohttp.abc
from yarl import URL

from proxy.chat.errors import Unanswered, UpstreamFailed, UpstreamTimeout
from proxy.http.headers import NOT_RELAYED
from proxy.state.warnings import Warnings

_NOT_ADDED = ("User-Agent", "Accept", "Content-Type")
"""Headers that aiohttp would add by itself. Only the client's own headers are forwarded."""

_LARGEST = 64 * 2**20

_log = logging.getLogger("penstock.http")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds."""

    connect: float
    idle: float
    """Longest silence within an answer."""


class Response:
    """An answer whose status and headers have arrived."""

    def __init__(self, response: aiohttp.ClientResponse, name: str, largest: int = _LARGEST) -> None:
        self._response = response
        self._name = name
        self._largest = largest
        self.status = response.status
        kind = response.headers.get("content-type", "").lower()
        is_read = self.status >= 300 or not kind or kind.startswith(("application/json", "text/"))
        self.is_stream = kind.startswith("text/event-stream") or not is_read
        """True for a body that is relayed as it arrives: events, or binary data such as sound."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        dropped = NOT_RELAYED
        named = self._response.headers.get("connection")
        if named:
            dropped = dropped | {name.strip().lower().encode() for name in named.split(",")}
        return [(low, value) for name, value in self._response.raw_headers if (low := name.lower()) not in dropped]

    async def read(self) -> bytes:
        """Return the whole body and free the connection. Raise `UpstreamFailed` if the body is too large."""
        try:
            declared = self._response.content_length
            if declared is None or declared > self._largest:
                return await self._read_bounded(declared or 0)
            return await self._response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _failure(error, self._name) from None
        finally:
            self._response.close()

    async def _read_bounded(self, declared: int) -> bytes:
        """Read a body of unknown length. Raise `Unanswered`, without reading the rest, once it is too large."""
        parts: list[bytes] = []
        size = declared
        while size <= self._largest and (part := await self._response.content.readany()):
            parts.append(part)
            size += len(part)
        if size > self._largest:
            raise Unanswered(
                f"the answer of upstream {self._name!r} is larger than {self._largest} bytes",
                code="upstream_answer_too_large",
            )
        return b"".join(parts)

    def close(self) -> None:
        self._response.close()

    def chunks(self) -> "Chunks":
        return Chunks(self._response, self._name)


class Chunks:
    """A body as it arrives. Closing it drops the connection, also if no chunk was read."""

    def __init__(self, response: aiohttp.ClientResponse, name: str) -> None:
        self.broken = False
        """True once the answer broke off. The circuit breaker of the upstream reads it."""
        self._response = response
        self._arriving = self._read(response, name)

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks. Raise `UpstreamFailed` or `UpstreamTimeout` if the answer breaks off."""
        return self._arriving

    async def aclose(self) -> None:
        await self._arriving.aclose()
        self._response.close()

    async def _read(self, response: aiohttp.ClientResponse, name: str) -> AsyncGenerator[bytes, None]:
        read = response.content.readany
        try:
            while chunk := await read():
                yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            self.broken = True
            raise _failure(error, name) from None
        finally:
            response.close()


class Transport:
    """A connection pool. It follows no redirect, keeps no cookie, reads no proxy setting, and decodes nothing."""

    def __init__(
        self, name: str, timeouts: Timeouts, *, largest: int = _LARGEST, unix_socket: str | None = None
    ) -> None:
        """Set up the pool, without connecting.

        `name` stands for the server in errors, because clients must not learn its address. `largest` is the size in
        bytes of the largest answer that is read whole. With `unix_socket`, all requests go to that socket.
        """
        self._name = name
        self._largest = largest
        self._unix_socket = unix_socket
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect, sock_read=timeouts.idle)
        self._session: aiohttp.ClientSession | None = None
        self._warnings = Warnings(_log, "server not reached")

    async def request(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None) -> Response:
        """Send a request and wait for the head of its answer. Cancelling it closes the connection.

        Retry once if no connection could be made, or if an idle connection was closed before the server received a
        byte of this request; for a safe method, also if the server closed the connection before it answered. Raise
        `UpstreamFailed`: `Unanswered` if the server may have processed the request.
        """
        for last in (False, True):
            data = None if body is None else _Bytes(body)
            try:
                response = await self._open().request(method, url, headers=headers, data=data, allow_redirects=False)
                if not 200 <= response.status < 600:
                    response.close()
                    raise _invalid(self._name)  # nothing that could be relayed
                return Response(response, self._name, self._largest)
            except (aiohttp.ClientError, TimeoutError) as error:
                if isinstance(error, _BrokeOff):
                    error = error.cause
                is_sent = _is_connected(error) and (data is None or data.was_received(error))
                if last or not _may_retry(error, is_sent and method not in _SAFE):
                    failure = _failure(error, self._name, is_sent=is_sent)
                    if method in _SAFE:
                        failure.headers.pop("x-should-retry", None)
                    raise self._logged(failure, url, error) from None
            finally:
                if data is not None:
                    data.close_socket()
        raise AssertionError("unreachable")

    def _logged(self, failure: UpstreamFailed, url: URL, error: Exception) -> UpstreamFailed:
        """Log the address and the cause of a failure, which clients must not see, and return the failure."""
        failure.cause = f"{url.host}:{url.port}: {_cause(error)}"
        self._warnings.warn(server=self._name, cause=failure.cause)
        return failure

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector: aiohttp.BaseConnector = (
                aiohttp.TCPConnector(limit=0, keepalive_timeout=30, socket_factory=_socket)
                if self._unix_socket is None
                else aiohttp.UnixConnector(self._unix_socket, limit=0)
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_NOT_ADDED,
                trust_env=False,
                middlewares=[_once],
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await asyncio.sleep(0)


_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that may be sent twice: they change nothing and cost nothing."""


class _BrokeOff(aiohttp.ClientConnectionError):
    """A broken connection. It hides aiohttp's own error, for which aiohttp would retry by its own rules."""

    def __init__(self, cause: aiohttp.ClientError) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request without aiohttp's own retry. Only a middleware of aiohttp can prevent it."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokeOff(error) from None


class _Bytes(aiohttp.payload.BytesPayload):
    """A body that is written to the socket in one piece, and that knows whether the server received a byte of it.

    aiohttp warns of one write above 1 MiB. The write does not block, because the transport buffers it, so this class
    skips the warning. A server that closed an idle connection acknowledges no byte that arrives later.
    """

    def __init__(self, value: bytes) -> None:
        aiohttp.payload.Payload.__init__(self, value, content_type="application/octet-stream")
        self._size = len(value)
        self._is_written = False
        self._socket: socket.socket | None = None
        self._before = 0

    async def write_with_length(self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None) -> None:
        """Write the body, and remember the number of bytes that the server acknowledged before it."""
        transport = writer.transport
        if transport is not None and not transport.is_closing():
            self._is_written = True
            used = cast("socket.socket | None", transport.get_extra_info("socket"))
            if used is not None and used.family != socket.AF_UNIX and _COUNTS_BYTES:
                # a duplicate descriptor, which outlives the connection
                self._socket = socket.fromfd(used.fileno(), socket.AF_INET, socket.SOCK_STREAM)
                self._before = _acknowledged(self._socket)
        await super().write_with_length(writer, content_length)

    def was_received(self, error: Exception) -> bool:
        """Return whether the server may have received a byte of the request before an error.

        The count of acknowledged bytes is reliable where the server closed the connection (EPIPE, if this side still
        writes), and not after a reset.
        """
        ended = isinstance(error, aiohttp.ServerDisconnectedError) or getattr(error, "errno", None) == errno.EPIPE
        if self._socket is None or not ended:
            return self._is_written
        return _acknowledged(self._socket) > self._before

    def close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()


_COUNTS_BYTES = sys.platform == "linux"
"""True if the system reports the acknowledged bytes of a connection."""


def _acknowledged(connected: socket.socket) -> int:
    """Return the field `tcpi_bytes_acked` of Linux's `tcp_info`."""
    return int.from_bytes(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)[120:128], sys.byteorder)


def _socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    opened = socket.socket(family=address[0], type=address[1], proto=address[2])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return opened


def _is_connected(error: Exception) -> bool:
    return not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))


def _may_retry(error: Exception, is_sent: bool) -> bool:
    """Return whether a request may be sent again. `is_sent`: the server may have it, and must not get it twice."""
    if not _is_connected(error):
        return True
    if is_sent or isinstance(error, TimeoutError):
        return False
    if isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str):
        return False  # the message is the head of an answer that has begun
    return isinstance(error, aiohttp.ClientConnectionError)


def _failure(error: Exception, name: str, *, is_sent: bool = True) -> UpstreamFailed:
    if not is_sent:
        return unreached(name, is_late=isinstance(error, aiohttp.ConnectionTimeoutError))
    if isinstance(error, TimeoutError):
        return too_late(name)
    return _invalid(name) if isinstance(error, aiohttp.ClientResponseError) else broken_off(name)


def unreached(name: str, *, is_late: bool) -> UpstreamFailed:
    """Return the error for a server that got nothing of a request."""
    told = f"the upstream {name!r} could not be reached{' in time' if is_late else ''}"
    return UpstreamFailed(told, status=504 if is_late else None)


def redirected(name: str) -> UpstreamFailed:
    """Return the error for a redirect. Who follows it goes past the proxy, and takes the key to another host."""
    return UpstreamFailed(f"the upstream {name!r} redirects: set its base_url to the final address")


def too_late(name: str) -> UpstreamTimeout:
    """Return the error for a server that is silent."""
    return UpstreamTimeout(f"the upstream {name!r} sent nothing for too long; it may have processed the request")


def broken_off(name: str) -> Unanswered:
    """Return the error for an answer without its end."""
    return Unanswered(f"the upstream {name!r} broke off its answer; it may have processed the request")


def _cause(error: Exception) -> str:
    """Return the cause of an error for operators, in the system's words where it has any."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number) if number and number > 0 else str(error.os_error)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection in time"
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


def _invalid(name: str) -> Unanswered:
    return Unanswered(f"the upstream {name!r} sent an answer that is not valid HTTP", code="upstream_invalid")
