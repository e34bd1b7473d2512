"""The process that runs litellm: an HTTP server on a Unix socket that answers as OpenAI does.

It has two paths for each upstream: `/NAME/chat/completions`, and `/NAME/ignored` for the fields of a request that the
provider lacks. The first line of standard input holds the settings; the process ends when standard input is closed.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict

from proxy.chat.errors import PenstockError
from proxy.chat.parse import Body
from proxy.config.settings import ForeignUpstream, TelemetrySettings
from proxy.telemetry.logs import configure
from proxy.upstreams.base import CHAT, Call, Reply
from proxy.upstreams.foreign.provider import Provider


class Worker:
    """The handlers of the two paths."""

    def __init__(self, upstreams: Mapping[str, Any]) -> None:
        self._providers = {
            name: Provider(name, ForeignUpstream.model_validate(each)) for name, each in upstreams.items()
        }
        self._reported = 0.0
        """CPU time that was reported so far."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**40, middlewares=[_refuse])  # Penstock has checked the size
        app.router.add_post("/{name}/chat/completions", self._chat)
        app.router.add_post("/{name}/ignored", self._ignored)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        provider, call = await self._read(request)
        reply = await provider.send(call)
        headers = self._headers(reply)
        if reply.chunks is None:
            return web.Response(status=reply.status, headers=headers, body=reply.body)
        response = web.StreamResponse(status=reply.status, headers=headers)
        async with aclosing(reply.chunks):
            await response.prepare(request)
            async for chunk in reply.chunks:
                await response.write(chunk)
        return response

    async def _ignored(self, request: web.Request) -> web.StreamResponse:
        provider, call = await self._read(request)
        return web.Response(body=orjson.dumps(await provider.ignored(call)), content_type="application/json")

    async def _read(self, request: web.Request) -> tuple[Provider, Call]:
        chat = Body(await request.read()).parse()
        headers = {name.lower(): value for name, value in request.headers.items()}
        return self._providers[unquote(request.match_info["name"])], Call(CHAT, chat.model, b"", headers, request=chat)

    def _headers(self, reply: Reply) -> CIMultiDict[str]:
        """Return the headers of an answer, its facts among them, and the CPU time since it was reported last."""
        before, self._reported = self._reported, time.process_time()
        facts = {**reply.facts, "cpu_seconds": round(self._reported - before, 6)}
        headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers)
        headers["x-penstock-facts"] = json.dumps(facts)  # in ASCII
        return headers


@web.middleware
async def _refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except PenstockError as error:
        headers = {**error.headers, "x-penstock-error": type(error).__name__}
        return web.Response(status=error.status, headers=headers, body=error.body(), content_type="application/json")


async def _serve(upstreams: Mapping[str, Any], path: str) -> None:
    runner = web.AppRunner(Worker(upstreams).app(), handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    print(flush=True)  # it listens
    os.dup2(2, 1)  # nobody reads what a library prints from here on: it would wait for that once the pipe is full
    await asyncio.Event().wait()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # nobody waits for the requests under way


def main() -> None:
    """Serve on the socket that the first argument names, until standard input is closed."""
    upstreams, telemetry = orjson.loads(sys.stdin.buffer.readline())
    configure(TelemetrySettings.model_validate(telemetry))
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(_serve(upstreams, sys.argv[1]))
