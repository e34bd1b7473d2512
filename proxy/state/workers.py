"""Workers of one server that answer for each other: a socket for each, in a folder that only they can enter."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

_SECONDS = 5.0
"""After which an answer is done without: the worker is busy, or gone."""
_DESCRIPTORS = Path("/proc/self/fd")
"""Linux's directory of open folders, a short way to sockets, whose paths may have about a hundred characters."""
_LARGEST = 2**24

_log = logging.getLogger("penstock.peers")

Question = Mapping[str, Any]
"""JSON values; `ask` says what is asked for."""
Answer = Callable[[Question], Awaitable[Any]]


class Peers:
    """The other workers of this server; none where it has one process."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._answers: dict[str, Answer] = {}
        self._server: asyncio.AbstractServer | None = None
        self._descriptor: int | None = None

    def on(self, ask: str, answer: Answer) -> None:
        self._answers[ask] = answer

    async def open(self) -> None:
        """Begin to answer. Where that cannot be done, this worker is left out."""
        if self._folder is None:
            return
        try:
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            self._server = await asyncio.start_unix_server(self._serve, self._address(_name()), limit=_LARGEST)
        except OSError as error:
            _log.warning("workers cannot meet", extra={"fields": {"why": error.strerror or type(error).__name__}})

    async def aclose(self) -> None:
        if self._folder is None:
            return
        if self._server is not None:
            self._server.close()
            self._folder.joinpath(_name()).unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _address(self, name: str) -> str:
        if self._descriptor is not None and _DESCRIPTORS.exists():
            return str(_DESCRIPTORS / str(self._descriptor) / name)
        return str((self._folder or Path()) / name)

    async def ask(self, question: Question) -> list[Any]:
        if self._folder is None:
            return []
        found = [path.name for path in sorted(self._folder.glob("*.sock")) if path.name != _name()]
        asking = (_asked(self._address(name), question) for name in found)
        answers = await asyncio.gather(*asking, return_exceptions=True)
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def ask_all(self, ask: str, **fields: Any) -> list[Any]:
        question = {"ask": ask, **fields}
        own, others = await asyncio.gather(self._answers[ask](question), self.ask(question))
        return [own, *others]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                question = json.loads(await reader.readline())
                answer = await self._answers[question["ask"]](question)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, LookupError, TimeoutError):
            pass  # whoever asked does without
        finally:
            writer.close()


def _name() -> str:
    return f"{os.getpid()}.sock"


async def _asked(address: str, question: Question) -> Any:
    async with asyncio.timeout(_SECONDS):
        reader, writer = await asyncio.open_unix_connection(address, limit=_LARGEST)
        try:
            writer.write(json.dumps(question).encode() + b"\n")
            return json.loads(await reader.readline())
        finally:
            writer.close()
