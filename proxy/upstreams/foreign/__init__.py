"""Every provider that does not speak OpenAI's API, through litellm, which runs in a process of its own.

The process is a small HTTP server on a Unix socket that answers as OpenAI does, so this upstream is OpenAI's kind with
another address. `worker` is that server.
"""

import asyncio
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import orjson
from pydantic import SecretStr

from proxy.chat.errors import NotFound, Unanswered, UpstreamFailed, UpstreamTimeout
from proxy.config.settings import ForeignUpstream, OpenAIUpstream, Settings
from proxy.http.client import Timeouts, Transport
from proxy.http.headers import CREDENTIALS
from proxy.models import PriceList
from proxy.text.tables import table
from proxy.upstreams.base import CHAT, Abilities, Call, Reply, Upstream
from proxy.upstreams.openai import OpenAI
from proxy.upstreams.refusal import Refused, advice, refusal_in

_IGNORED = "/ignored"
_OWN = b"x-penstock-"
"""The beginning of headers that the process sends for Penstock alone."""
_SERVERS = frozenset({b"date", b"server"})
"""Headers that every HTTP server adds."""
_FORWARDED = CREDENTIALS | {"anthropic-version"}
"""The client's headers that tell its key and the vendor of the key."""
_FAILURES = {kind.__name__.encode(): kind for kind in (UpstreamFailed, Unanswered, UpstreamTimeout)}
_PROGRAM = "from proxy.upstreams.foreign.worker import main; main()"
_log = logging.getLogger("penstock.foreign")

_START = 60.0
"""Seconds that the process has to start."""
_PING, _SILENCE = 10.0, 30.0
"""Seconds between two questions whether the process is alive, and those that it has to answer."""
_PATIENCE = 2.0
"""Seconds that the process has to end by itself."""


def build(upstreams: Mapping[str, ForeignUpstream], settings: Settings) -> dict[str, Upstream]:
    """Return the upstreams of this kind by name. They share one process."""
    process = LitellmProcess(upstreams, settings)
    return {name: Foreign(name, each, process) for name, each in upstreams.items()}


class LitellmProcess:
    """The process that runs litellm. Upstreams share it, because litellm takes 200 MB."""

    def __init__(self, upstreams: Mapping[str, ForeignUpstream], settings: Settings) -> None:
        self._folder = os.path.join(tempfile.gettempdir(), f"penstock-litellm-{secrets.token_hex(8)}")
        self.socket = os.path.join(self._folder, "socket")
        """The path of its socket, in a private folder."""
        revealed = {name: each.model_dump() for name, each in upstreams.items()}
        self._settings = revealed, settings.telemetry.model_dump(mode="json")
        self._users = set(upstreams)
        self._process: asyncio.subprocess.Process | None = None
        """The process, once it listens."""
        self._listening: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process unless it runs. Raise `OSError` if it does not start.

        Who is cancelled leaves the start to the next one: a client that goes must not have a second process started.
        """
        if self._process is not None and self._process.returncode is None:
            return
        if self._listening is None or self._listening.done():  # its end tells of another process
            self._process, self._listening = None, asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._listening))
        await asyncio.shield(self._listening)

    async def _run(self, listening: asyncio.Future[None]) -> None:
        """Run one process until it ends or hangs, or nobody needs it any more."""
        process = None
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            # -P: a folder named `proxy` where Penstock was started is not what is imported
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _PROGRAM, self.socket),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
                start_new_session=True,  # a Ctrl-C in the terminal is for Penstock, which lets its requests end first
            )
            async with asyncio.timeout(_START):
                if process.stdin is not None:
                    # not as an argument or in the environment, which other users may read
                    process.stdin.write(orjson.dumps(self._settings, default=SecretStr.get_secret_value) + b"\n")
                if process.stdout is None or not await process.stdout.readline():
                    raise OSError("the process of litellm did not start")
            self._process = process
            listening.set_result(None)
            await self._watch(process)
        except OSError as error:
            listening.set_exception(error)
        finally:
            listening.cancel()
            if process is not None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Wait until the process ends or hangs; then the next request starts another one."""
        while process.returncode is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PING):
                    await process.wait()
            try:
                async with asyncio.timeout(_SILENCE):
                    await self._ping()
            except TimeoutError:
                _log.error("the process of litellm hangs and is ended")
                self._process = None
                return
            except OSError:  # it ends
                pass

    async def _ping(self) -> None:
        """Wait until the process answers. Raise `OSError` if it is gone."""
        source, sink = await asyncio.open_unix_connection(self.socket)
        try:
            sink.write(b"GET / HTTP/1.0\r\n\r\n")
            await source.read()
        finally:
            sink.close()

    async def leave(self, upstream: str) -> None:
        self._users.discard(upstream)
        if self._users or self._running is None:
            return
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()  # it ends by itself, unless it hangs
            await asyncio.wait([self._running], timeout=_PATIENCE)
        self._running.cancel()
        await asyncio.wait([self._running])
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


class Foreign(OpenAI):
    """One provider behind litellm."""

    def __init__(self, name: str, settings: ForeignUpstream, process: LitellmProcess) -> None:
        timeouts = Timeouts(_PATIENCE, settings.timeout + _PATIENCE)  # the process gives up earlier
        server = OpenAIUpstream(
            kind="openai",
            base_url=f"http://litellm/{quote(name, safe='')}",
            keyless=settings.has_own_key,
            provider=table("litellm")["providers"].get(settings.provider, settings.provider),
        )
        super().__init__(name, server, Transport(name, timeouts, unix_socket=process.socket))
        self.abilities = Abilities(translates=False, ask_usage=True)
        self.address = settings.base_url
        self._listed_as = settings.provider
        self._process = process

    async def send(self, call: Call) -> Reply:
        if call.path not in (CHAT, _IGNORED):
            raise NotFound(f"upstream {self.name!r} serves only /v1/chat/completions")
        try:
            await self._process.start()
        except OSError:
            raise UpstreamFailed(
                f"upstream {self.name!r}: the process of litellm could not be started", code="upstream_unavailable"
            ) from None
        headers = {name: value for name, value in call.headers.items() if name in _FORWARDED}
        reply = await super().send(replace(call, headers=headers, query=""))
        own = {name.removeprefix(_OWN): value for name, value in reply.headers if name.startswith(_OWN)}
        reply.headers = [each for each in reply.headers if not each[0].startswith(_OWN) and each[0] not in _SERVERS]
        if reply.status >= 400:
            error, failure = refusal_in(reply), _FAILURES.get(own.get(b"error", b""), Refused)
            again = advice(reply.headers)
            raise failure(error.message, status=reply.status, code=error.code, param=error.param, headers=again)
        reply.facts = orjson.loads(own.get(b"facts", b"{}"))
        return reply

    async def ignored(self, call: Call) -> tuple[str, ...]:
        reply = await self.send(replace(call, path=_IGNORED))
        return tuple(orjson.loads(reply.body or b"[]"))

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the provider's models in litellm's price list: litellm asks no provider for its list."""
        names = await asyncio.to_thread(PriceList.installed().of_provider, self._listed_as)
        return [{"id": name} for name in names]

    async def aclose(self) -> None:
        await super().aclose()
        await self._process.leave(self.name)
