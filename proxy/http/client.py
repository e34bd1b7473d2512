"""HTTP to upstreams: one connection pool, raw bytes in and out. The only file that knows aiohttp."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from proxy.chat.errors import UpstreamFailed, UpstreamTimeout
from proxy.http.headers import HOP_BY_HOP
from proxy.state.warnings import Warnings

_NOT_RELAYED = {name.encode() for name in HOP_BY_HOP} | {
    b"alt-svc",
    b"content-length",
    b"set-cookie",
    b"set-cookie2",
    b"strict-transport-security",
}
"""Response headers that are not relayed: they concern one connection, carry state, or are set anew."""

_NOT_ADDED = ("User-Agent", "Accept", "Content-Type")
"""Headers that aiohttp would add by itself. Only the client's own headers travel on."""


_LARGEST = 64 * 2**20

_log = logging.getLogger("penstock.http")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds: to connect, and for the silence after which an answer is given up."""

    connect: float
    idle: float


class Response:
    """An answer of which the head has arrived."""

    def __init__(self, response: aiohttp.ClientResponse, name: str, largest: int = _LARGEST) -> None:
        self._response = response
        self._name = name
        self._largest = largest
        self.status = response.status
        kind = response.headers.get("content-type", "").lower()
        is_read = self.status >= 300 or not kind or kind.startswith(("application/json", "text/"))
        self.is_stream = kind.startswith("text/event-stream") or not is_read
        """Whether it is passed on as it arrives: events, or what is neither text nor JSON, such as sound."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers to relay, in the upstream's order."""
        dropped = _NOT_RELAYED
        named = self._response.headers.get("connection")
        if named:
            dropped = dropped | {name.strip().lower().encode() for name in named.split(",")}
        return [(low, value) for name, value in self._response.raw_headers if (low := name.lower()) not in dropped]

    async def read(self) -> bytes:
        """Return the whole body; the connection goes back to the pool. Raise `UpstreamFailed` if the body is too
        large."""
        try:
            declared = self._response.content_length
            if declared is None or declared > self._largest:
                return await self._read_some(declared or 0)
            return await self._response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _failure(error, self._name) from None
        finally:
            self._response.close()

    async def _read_some(self, declared: int) -> bytes:
        """Return a body of unknown length, or refuse one that is too large without reading the rest."""
        parts: list[bytes] = []
        size = declared
        while size <= self._largest and (part := await self._response.content.readany()):
            parts.append(part)
            size += len(part)
        if size > self._largest:
            raise UpstreamFailed(
                f"the upstream {self._name!r} sent an answer of more than {self._largest} bytes",
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
        """Whether the answer broke off; the breaker of the upstream looks for it."""
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

    def __init__(self, name: str, timeouts: Timeouts, *, largest: int = _LARGEST) -> None:
        """`name` stands for the server in errors, because clients must not learn its address. `largest` is the size
        in bytes of the largest answer that is read whole.
        """
        self._name = name
        self._largest = largest
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect, sock_read=timeouts.idle)
        self._session: aiohttp.ClientSession | None = None
        self._warnings = Warnings(_log, "server not reached")

    async def request(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        server_name: str | None = None,
    ) -> Response:
        """Send a request and wait for the head of its answer. Cancelling it closes the connection.

        `server_name` is whose certificate the server must have, where `url` has its IP address.

        Try once more if no connection could be made, or if the server closed it without a byte of answer. Raise
        `UpstreamFailed` or `UpstreamTimeout`.
        """
        for last in (False, True):
            try:
                data = None if body is None else _Bytes(body)
                response = await self._open().request(
                    method,
                    url,
                    headers=headers,
                    data=data,
                    allow_redirects=False,
                    skip_auto_headers=_NOT_ADDED,
                    server_hostname=server_name,
                )
                if not 200 <= response.status < 600:
                    response.close()
                    raise _invalid(self._name)  # nothing that could be relayed
                return Response(response, self._name, self._largest)
            except (aiohttp.ClientError, TimeoutError) as error:
                if last or not _may_retry(error):
                    raise self._told(_failure(error, self._name), url, error) from None
        raise AssertionError("unreachable")

    def _told(self, failed: UpstreamFailed, url: URL, error: Exception) -> UpstreamFailed:
        """Return the failure, which tells clients no address, with its cause; the log has it too."""
        failed.cause = f"{url.host}:{url.port}: {_cause(error)}"
        self._warnings.warn(server=self._name, cause=failed.cause)
        return failed

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30, socket_factory=_socket),
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await asyncio.sleep(0)


class _Bytes(aiohttp.payload.BytesPayload):
    """A body that is written to the socket in one piece, whatever its size. aiohttp warns of that above 1 MiB. The
    write does not block, because the transport buffers; the warning would cost time.
    """

    def __init__(self, value: bytes) -> None:
        aiohttp.payload.Payload.__init__(self, value, content_type="application/octet-stream")
        self._size = len(value)


def _socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    made = socket.socket(family=address[0], type=address[1], proto=address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return made


def _may_retry(error: Exception) -> bool:
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
        return False
    if isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str):
        return False  # it carries the head of an answer that had begun
    return isinstance(error, (aiohttp.ClientConnectionError, aiohttp.ConnectionTimeoutError))


def _failure(error: Exception, name: str) -> UpstreamFailed:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return UpstreamTimeout(f"the upstream {name!r} could not be reached in time")
    if isinstance(error, TimeoutError):
        return UpstreamTimeout(f"the upstream {name!r} sent nothing for too long")
    if isinstance(error, aiohttp.ClientConnectorError):
        return UpstreamFailed(f"the upstream {name!r} could not be reached")
    if isinstance(error, aiohttp.ClientResponseError):
        return _invalid(name)
    return UpstreamFailed(f"the upstream {name!r} broke off its answer", code="upstream_broke_off")


def _cause(error: Exception) -> str:
    """What went wrong, in the system's words, for operators."""
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


def _invalid(name: str) -> UpstreamFailed:
    """Return the error for an answer that is not HTTP, or whose head does not end."""
    return UpstreamFailed(f"the upstream {name!r} sent an answer that is not valid HTTP", code="upstream_invalid")
