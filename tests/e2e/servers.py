"""A running proxy and a scripted upstream, both on sockets of loopback."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import uvicorn
import yaml

from proxy.config.load import load
from proxy.gateway.saving import Saving
from proxy.server.app import App
from tests.scripted import events

DEFAULT_ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m-2025","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"hi","refusal":null},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}, "x_vendor": 1.0}'
)


JSON, EVENTS = "content-type: application/json\r\n", "content-type: text/event-stream\r\n"


@dataclass
class Received:
    """One request as it arrived at the upstream."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


Seen = TypeVar("Seen")
Respond = Callable[["Upstream", Received, asyncio.StreamWriter], Awaitable[None]]


async def plainly(upstream: "Upstream", received: Received, writer: asyncio.StreamWriter) -> None:
    """The answer that is asked for when nothing else is scripted."""
    await send(writer, 200, DEFAULT_ANSWER)


async def send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: str = JSON) -> None:
    """A whole answer."""
    head = f"HTTP/1.1 {status} Status\r\n{headers}content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def say(writer: asyncio.StreamWriter, received: Received, value: Any) -> None:
    """An answer as the request asks for it: whole, or as a stream."""
    asked = json.loads(received.body)
    if not asked.get("stream"):
        await send(writer, 200, json.dumps(value).encode())
        return
    await begin_stream(writer)
    for part in events(value, usage=bool(asked.get("stream_options"))):
        await send_chunk(writer, part)
    await send_chunk(writer, b"")


async def begin_stream(writer: asyncio.StreamWriter, headers: str = EVENTS, status: int = 200) -> None:
    """The head of an event stream."""
    writer.write(f"HTTP/1.1 {status} OK\r\n{headers}transfer-encoding: chunked\r\n\r\n".encode())
    await writer.drain()


async def send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """One chunk; an empty one ends the stream."""
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


def answering(*bodies: bytes, status: int = 200, headers: str = JSON) -> Respond:
    """Answers with one body after the other, and with the last one for ever."""
    waiting = list(bodies)

    async def respond(upstream: "Upstream", received: Received, writer: asyncio.StreamWriter) -> None:
        await send(writer, status, waiting.pop(0) if len(waiting) > 1 else waiting[0], headers)

    return respond


def streaming(*chunks: bytes, ends: bool = True, status: int = 200, headers: str = EVENTS) -> Respond:
    """Answers with a stream, which breaks off behind its chunks unless it `ends`."""

    async def respond(upstream: "Upstream", received: Received, writer: asyncio.StreamWriter) -> None:
        await begin_stream(writer, headers, status)
        for chunk in chunks:
            await send_chunk(writer, chunk)
        if ends:
            await send_chunk(writer, b"")
        else:
            writer.close()

    return respond


async def silent(upstream: "Upstream", received: Received, writer: asyncio.StreamWriter) -> None:
    """Never answers."""
    await asyncio.Event().wait()


async def breaking_off(upstream: "Upstream", received: Received, writer: asyncio.StreamWriter) -> None:
    """Begins an answer and closes the connection."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n\r\n{")
    writer.close()


@dataclass
class Upstream:
    """A server that records what it is sent and answers as it is told."""

    respond: Respond = plainly
    received: list[Received] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a connection was closed while its answer was still being made."""
    port: int = 0
    _arrival: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def last(self) -> Received:
        return self.received[-1]

    def reset(self) -> None:
        """Be as new: for tests that share it."""
        self.respond = plainly
        self.received.clear()
        self.gone.clear()

    async def arrived(self, requests: int) -> None:
        """Wait until so many requests have arrived in all."""
        async with asyncio.timeout(60), self._arrival:
            await self._arrival.wait_for(lambda: len(self.received) >= requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (received := await read_request(reader)) is not None:
                self.received.append(received)
                async with self._arrival:
                    self._arrival.notify_all()
                answering = asyncio.ensure_future(self.respond(self, received, writer))
                leaving = asyncio.ensure_future(reader.read(1))
                await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    self.gone.set()
                    answering.cancel()
                    return
                leaving.cancel()
                await asyncio.wait({leaving})
                answering.result()
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> Received | None:
    """The next request of a connection, or None at its end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")[:-2]
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    method, path, _ = first.split(" ")
    return Received(method, path, headers, await reader.readexactly(length))


@asynccontextmanager
async def upstream() -> AsyncGenerator[Upstream, None]:
    """A scripted upstream on a free port."""
    made = Upstream()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await made.serve(reader, writer)
        finally:
            connections.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()


def filled(config: str, **values: object) -> str:
    """A configuration with values in the place of their names in braces."""
    for name, value in values.items():
        config = config.replace(f"{{{name}}}", str(value))
    return config


def patient(config: str, folder: Path) -> str:
    """A configuration whose steps have all the time that a busy machine needs, but for times that it names itself: what
    is late leaves a request as it was. Where it names none, state is in the folder, and there is no model of vectors."""
    data: dict[str, Any] = yaml.load(config, yaml.CSafeLoader)
    for steps in data.get("chains", {}).values():
        steps[:] = [{name: {"timeout": 30, **(given or {})} for name, given in step.items()} for step in steps]
    data["server"] = {"chain_deadline": 60, **(data.get("server") or {})}
    own = {
        "state": {"directory": str(folder / "state")},
        "embedding": {"kind": "none"},
        "telemetry": {"log_level": "warning"},
    }
    data = {**own, **data}
    return str(yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True))


@asynccontextmanager
async def proxy(config: str, folder: Path, *, saving: Saving | None = None) -> AsyncGenerator[str, None]:
    """A running proxy with this configuration, made patient; its base URL, without `/v1`."""
    path = folder / "config.yaml"
    path.write_text(patient(config, folder))
    made = uvicorn.Config(
        App(load(path, {}), saving),
        port=0,
        loop="asyncio",
        lifespan="on",
        access_log=False,
        log_config=None,
        ws="none",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=60,
    )
    made.load()
    # without its main loop, which looks ten times a second whether to stop
    server = uvicorn.Server(made)
    server.lifespan = made.lifespan_class(made)
    await server.startup()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        await server.shutdown()


async def said(base: str, *parts: bytes, answers: int = 1) -> list[tuple[int, bytes, bytes]]:
    """The status, the head and the body of each answer to bytes that are sent piece by piece on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    got = []
    try:
        async with asyncio.timeout(60):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            for _ in range(answers):
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                got.append((int(head.split()[1]), head, await reader.readexactly(length)))
    finally:
        writer.close()
    return got


async def until(look: Callable[[], Awaitable[Seen]], holds: Callable[[Seen], object] = bool) -> Seen:
    """Look again and again until it holds, for a minute at most; returns what was seen then."""
    async with asyncio.timeout(60):
        while not holds(seen := await look()):
            await asyncio.sleep(0.01)
    return seen


async def until_ready(base: str) -> None:
    """Wait until a proxy says that it may get requests."""
    async with aiohttp.ClientSession() as http:

        async def is_ready() -> bool:
            async with http.get(f"{base}/readyz") as response:
                return response.status == 200

        await until(is_ready)
