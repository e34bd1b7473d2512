"""Servers on the loopback that say what a test tells them, byte by byte, and a transport to them."""

import asyncio
import contextlib
import random
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from yarl import URL

from proxy.http.client import Timeouts, Transport

LONG = 60.0
"""Seconds that no test waits for: what must happen happens at once, and what must not is told by an event."""

PLENTY = Timeouts(LONG, LONG)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'{ "model" :"m",\n\t"x":1.0 , "y":"\\u00e9 \xc3\xa9" }\r\n'


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

    async def end(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    def reset(self) -> None:
        """End the connection with a reset."""
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.close()

    async def closed(self) -> None:
        """Wait until the other end has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


def free_port() -> int:
    """A port that nobody listens on, and that the system gives to nobody who asks for any: it stays free for a while."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = random.SystemRandom().randrange(10_000, 30_000)
            probe.bind(("127.0.0.1", port))
            return port


Handler = Callable[[Connection], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[URL]:
    """A server on a free port, with TLS if it has a context; when its handler returns, the connection is closed."""
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

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
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


@asynccontextmanager
async def serving(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """A server of HTTP on a free port, with one handler for all paths; its address."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def answering(*answers: bytes) -> tuple[Handler, list[bytes]]:
    """A handler that gives each connection its answer (the last one for all further), and the requests it got."""
    got: list[bytes] = []

    async def handle(connection: Connection) -> None:
        got.append(await connection.request())
        await connection.send(answers[min(connection.number, len(answers)) - 1])

    return handle, got


def framed(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def serves(
    *answers: bytes, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Transport, URL, list[bytes]]]:
    """A transport, the address of a server with these answers, and the requests that it gets."""
    handle, got = answering(*answers)
    async with listening(handle, tls) as url, transport() as http:
        yield http, url, got
