"""litellm in a process of its own, seen from Penstock: started by the first call, ended with the last upstream."""

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from proxy.chat.errors import BadRequest, NotFound, PenstockError, Unanswered, UpstreamFailed, UpstreamTimeout
from proxy.config.settings import ForeignUpstream
from proxy.upstreams.base import CHAT, Call, Reply, Translator, Upstream
from proxy.upstreams.credentials import fitting
from proxy.upstreams.foreign import Foreign
from proxy.upstreams.foreign.frames import CALL, ERROR, FACTS, LOG, read_frame, write_frame
from proxy.upstreams.refusal import Refused

_PROGRAM = "from proxy.upstreams.foreign.worker import main; main()"
_PATIENCE = 2.0
"""Seconds that the process has to end by itself."""
_BUFFER = 2**20
"""Bytes of an answer that wait for their reader before the process stops sending."""
_ERRORS: Mapping[str, type[PenstockError]] = {
    kind.__name__: kind for kind in (BadRequest, NotFound, Unanswered, UpstreamFailed, UpstreamTimeout)
}
"""What a call may raise, besides `Refused`."""


class _Running(NamedTuple):
    process: asyncio.subprocess.Process
    folder: tempfile.TemporaryDirectory[str]
    """Private; in it is the socket."""

    @property
    def socket(self) -> str:
        return os.path.join(self.folder.name, "socket")


class LitellmProcess:
    """The process. Several upstreams share it, because litellm takes 200 MB."""

    def __init__(self) -> None:
        self._users = 0
        self._running: _Running | None = None
        self._changing = asyncio.Lock()

    def share(self) -> None:
        """Count one more upstream that uses it."""
        self._users += 1

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection for one call; start the process if it does not run. Raise `OSError`."""
        async with self._changing:
            if self._running is not None and self._running.process.returncode is None:
                with suppress(OSError):  # it has ended just now
                    return await asyncio.open_unix_connection(self._running.socket, limit=_BUFFER)
            await self._end()
            self._running = await _start()
            return await asyncio.open_unix_connection(self._running.socket, limit=_BUFFER)

    async def leave(self) -> None:
        """Count one upstream less; end the process with the last one."""
        self._users -= 1
        if self._users <= 0:
            async with self._changing:
                await self._end()

    async def _end(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        process = running.process
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_PATIENCE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await asyncio.to_thread(running.folder.cleanup)


async def _start() -> _Running:
    """Return the process once it listens. Raise `OSError` where it does not."""
    folder = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="penstock-litellm-")
    # -P: a folder named `proxy` where Penstock was started is not what is imported
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _PROGRAM, os.path.join(folder.name, "socket")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        start_new_session=True,  # a Ctrl-C in the terminal is for Penstock, which lets its requests end first
    )
    if process.stdout is None or not await process.stdout.readline():
        await asyncio.to_thread(folder.cleanup)
        raise OSError("the process of litellm did not start")
    return _Running(process, folder)


def build(upstreams: Mapping[str, ForeignUpstream], models: object) -> dict[str, Upstream]:
    """Return the upstreams of this kind by name. They share one process."""
    process = LitellmProcess()
    return {name: SeparateForeign(name, each, process) for name, each in upstreams.items()}


class SeparateForeign(Translator):
    """A `Foreign` whose litellm runs in the process."""

    def __init__(self, name: str, settings: ForeignUpstream, process: LitellmProcess) -> None:
        self._here = Foreign(name, settings)
        self.name, self.address, self.provider = name, self._here.address, self._here.provider
        self._settings = orjson.dumps([name, _revealed(settings)])
        self._has_own_key = settings.has_own_key
        self._process = process
        self._closed = False
        process.share()

    async def send(self, call: Call) -> Reply:
        reader, writer = await self._ask(call, "send")
        try:
            status, told, facts, is_stream = orjson.loads(await _next(reader))
            headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told]
            if is_stream:
                chunks = _chunks(reader, writer, facts)
                await anext(chunks)  # a generator that was never begun ignores its closing
                return Reply(status, headers, chunks=chunks, facts=facts)
            body = await _next(reader)
            facts |= orjson.loads(await _next(reader))
        except BaseException as error:
            writer.close()
            if isinstance(error, (EOFError, OSError)):
                raise self._ended() from None
            raise
        writer.close()
        return Reply(status, headers, body=body, facts=facts)

    async def ignored(self, call: Call) -> tuple[str, ...]:
        reader, writer = await self._ask(call, "ignored")
        try:
            return tuple(orjson.loads(await _next(reader)))
        except (EOFError, OSError):
            raise self._ended() from None
        finally:
            writer.close()

    async def _ask(self, call: Call, what: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if call.request is None or call.path != CHAT:
            raise NotFound(f"Upstream {self.name!r} only serves /v1/chat/completions.")
        passed = {} if self._has_own_key else fitting(call.headers, self.name, self.provider, call.model)
        headers = {name: value for name, value in passed.items() if name == "authorization"}
        how = orjson.dumps({"what": what, "headers": headers, "hide_usage": call.hide_usage})
        try:
            reader, writer = await self._process.connect()
        except OSError:
            told = f"Upstream {self.name!r}: the process of litellm could not be started."
            raise UpstreamFailed(told, code="upstream_unavailable") from None
        try:
            write_frame(writer, CALL, b"\n".join((self._settings, how, call.request.encode())))
            await writer.drain()
        except BaseException as error:
            writer.close()
            if isinstance(error, OSError):
                raise self._ended() from None
            raise
        return reader, writer

    def _ended(self) -> Unanswered:
        told = f"Upstream {self.name!r}: the process of litellm ended. The provider may have processed the request."
        return Unanswered(told)

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        return await self._here.models(headers)

    async def aclose(self) -> None:
        """Leave the process, which ends with the last upstream that uses it."""
        if not self._closed:
            self._closed = True
            await self._process.leave()


async def _next(reader: asyncio.StreamReader) -> bytes:
    """Return the content of the next frame that is for the caller. Raise the error that the process tells."""
    return (await _next_frame(reader))[1]


async def _next_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    while True:
        kind, content = await read_frame(reader)
        if kind == LOG:
            logger, level, message, fields = orjson.loads(content)
            logging.getLogger(logger).log(level, "%s", message, extra={"fields": fields})
        elif kind == ERROR:
            raise _error(*orjson.loads(content))
        else:
            return kind, content


async def _chunks(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, facts: dict[str, Any]
) -> AsyncGenerator[bytes, None]:
    """The events of a stream, and at its end the facts; an empty chunk first."""
    try:
        yield b""
        while True:
            kind, content = await _next_frame(reader)
            if kind == FACTS:
                break
            yield content
        facts |= orjson.loads(content)
    except (EOFError, OSError):
        error = Unanswered("The process of litellm ended in the middle of the answer.")
        facts["error"] = error.code
        yield b"data: " + error.body() + b"\n\n"
    finally:
        writer.close()


def _error(
    name: str, message: str, param: str | None, code: str | None, status: int, headers: dict[str, str]
) -> PenstockError:
    kind = _ERRORS.get(name)
    if kind is None:
        return Refused(message, status, code=code, param=param, headers=headers)
    return kind(message, param=param, code=code, status=status, headers=headers)


def _revealed(settings: ForeignUpstream) -> dict[str, Any]:
    """The settings with their secrets, for the process alone."""
    key = settings.api_key
    return {
        **settings.model_dump(mode="json", exclude={"api_key", "options"}),
        "api_key": None if key is None else key.get_secret_value(),
        "options": {name: value.get_secret_value() for name, value in settings.options.items()},
    }
