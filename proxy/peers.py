"""Workers of one server that answer for each other: a socket for each, in a folder that only they can enter."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

WORKERS_VARIABLE = "PENSTOCK_WORKERS"
"""Names the folder in which the workers of this server meet; not set where there is one process."""

_SECONDS = 5.0
"""After which an answer is done without: the worker is busy, or gone."""
_LONGEST_ADDRESS = 100
"""Characters that the path of a socket may have."""
_LARGEST = 2**24

_log = logging.getLogger("penstock.peers")

Question = Mapping[str, Any]
"""JSON values; `ask` says what is asked for."""
Answer = Callable[[Question], Awaitable[Any]]
"""Gives JSON values."""


class Peers:
    """The other workers of this server; none where it has one process."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._answers: dict[str, Answer] = {}
        self._server: asyncio.AbstractServer | None = None

    @classmethod
    def of_environment(cls) -> "Peers":
        """Those that the environment names."""
        folder = os.environ.get(WORKERS_VARIABLE)
        return cls(Path(folder) if folder else None)

    def on(self, ask: str, answer: Answer) -> None:
        """Answer what other workers ask under this name."""
        self._answers[ask] = answer

    async def open(self) -> None:
        """Begin to answer. Where that cannot be done, this worker is left out."""
        if self._folder is None:
            return
        path = self._folder / f"worker-{os.getpid()}.sock"
        if len(str(path)) > _LONGEST_ADDRESS:
            _log.warning("workers cannot meet", extra={"fields": {"why": "the path of TMPDIR is too long"}})
            return
        self._server = await asyncio.start_unix_server(self._serve, path, limit=_LARGEST)

    async def aclose(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.close()
            (self._folder or Path()).joinpath(f"worker-{os.getpid()}.sock").unlink(missing_ok=True)

    async def ask(self, question: Question) -> list[Any]:
        """What the others answer; of those that do so in time."""
        if self._folder is None:
            return []
        mine = f"worker-{os.getpid()}.sock"
        found = [path for path in sorted(self._folder.glob("worker-*.sock")) if path.name != mine]
        answers = await asyncio.gather(*(_asked(path, question) for path in found), return_exceptions=True)
        return [answer for answer in answers if not isinstance(answer, BaseException)]

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


async def _asked(path: Path, question: Question) -> Any:
    async with asyncio.timeout(_SECONDS):
        reader, writer = await asyncio.open_unix_connection(path, limit=_LARGEST)
        try:
            writer.write(json.dumps(question).encode() + b"\n")
            return json.loads(await reader.readline())
        finally:
            writer.close()
