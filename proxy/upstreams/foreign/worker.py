"""The process that runs litellm: what litellm does there holds up no other request, and its memory ends with it.

It listens on a Unix socket in a private directory, and ends when its standard input is closed: with the process that
started it.
"""

import asyncio
import logging
import os
import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import orjson

from proxy.chat.errors import PenstockError
from proxy.chat.parse import Body
from proxy.config.settings import ForeignUpstream
from proxy.upstreams.base import CHAT, Call
from proxy.upstreams.foreign import Foreign
from proxy.upstreams.foreign.frames import CHUNK, ERROR, FACTS, LOG, REPLY, read_frame, write_frame

_MOST = 64
"""Configurations of upstreams that are known at once; each reload may bring another one."""

_calling: ContextVar[asyncio.StreamWriter | None] = ContextVar("_calling", default=None)


class _Forward(logging.Handler):
    """Sends what a call logs to the process that called, which knows how logs are written."""

    def emit(self, record: logging.LogRecord) -> None:
        writer = _calling.get()
        if writer is not None:
            told = [record.name, record.levelno, record.getMessage(), getattr(record, "fields", {})]
            write_frame(writer, LOG, orjson.dumps(told, default=str))


class Worker:
    """Serves calls."""

    def __init__(self) -> None:
        self._upstreams: dict[bytes, Foreign] = {}
        self._told = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call; drop it when its connection is closed."""
        _calling.set(writer)
        try:
            _, asked = await read_frame(reader)
            answering = asyncio.ensure_future(self._answer(asked, writer))
            leaving = asyncio.ensure_future(reader.read(1))
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
        except (EOFError, ConnectionError):
            pass  # it was closed before it asked
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, asked: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, call, what = self._read(asked)
            if what == "ignored":
                write_frame(writer, REPLY, orjson.dumps(await upstream.ignored(call)))
                return
            reply = await upstream.send(call)
            head = [reply.status, [(key.decode("latin-1"), value.decode("latin-1")) for key, value in reply.headers]]
            write_frame(writer, REPLY, orjson.dumps([*head, reply.facts, reply.body is None]))
            if reply.body is not None:
                write_frame(writer, CHUNK, reply.body)
            if reply.chunks is not None:
                try:
                    async for chunk in reply.chunks:
                        write_frame(writer, CHUNK, chunk)
                        await writer.drain()
                finally:
                    await reply.chunks.aclose()
            write_frame(writer, FACTS, orjson.dumps({**reply.facts, **self._cpu()}))
        except PenstockError as error:
            fields = [error.message, error.param, error.code, error.status, error.headers]
            write_frame(writer, ERROR, orjson.dumps([type(error).__name__, *fields]))
        finally:
            await writer.drain()

    def _read(self, asked: bytes) -> tuple[Foreign, Call, str]:
        """Return what a frame asks: of which upstream, the call, and whether to send it.

        It has a line each for the upstream, for how it is called, and for the request.
        """
        key, how, raw = asked.split(b"\n", 2)
        fields: dict[str, Any] = orjson.loads(how)
        request = Body(raw).parse()
        headers, hide_usage = fields["headers"], fields["hide_usage"]
        call = Call(CHAT, request.model, b"", headers, request=request, hide_usage=hide_usage)
        return self._upstream(key), call, fields["what"]

    def _upstream(self, key: bytes) -> Foreign:
        """Return an upstream; the same settings have the same one, with its connections."""
        known = self._upstreams.get(key)
        if known is None:
            if len(self._upstreams) >= _MOST:
                self._upstreams.pop(next(iter(self._upstreams)))
            name, settings = orjson.loads(key)
            known = self._upstreams[key] = Foreign(name, ForeignUpstream.model_validate(settings))
        return known

    def _cpu(self) -> dict[str, float]:
        """Return the CPU time since this was told last, as the fact `cpu_seconds`."""
        before, self._told = self._told, time.process_time()
        return {"cpu_seconds": round(self._told - before, 6)}


async def _serve(path: str) -> None:
    server = await asyncio.start_unix_server(Worker().serve, path, limit=2**20)
    loop, stdin = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    sys.stdout.write("\n")
    sys.stdout.flush()
    async with server:
        await stdin.read()
        os._exit(0)  # nobody waits for what is under way


def main() -> None:
    """Serve on the socket that the first argument names, until standard input is closed."""
    logging.getLogger("penstock").addHandler(_Forward())
    logging.getLogger("penstock").propagate = False
    asyncio.run(_serve(sys.argv[1]))
