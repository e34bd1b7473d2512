"""`penstock serve` in a process of its own, which may die."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.servers import patient, until_ready

ROOT = Path(__file__).parent.parent.parent


class Served:
    """A running `penstock serve`."""

    def __init__(self, process: asyncio.subprocess.Process, base: str, log: Path, line: str) -> None:
        self.process, self.base, self._log = process, base, log
        self.line = line
        """The first that it said."""

    @property
    def log(self) -> list[str]:
        """The lines that it has written to its log."""
        return self._log.read_text().splitlines()

    async def admin(self) -> str:
        """Wait until it may get requests; the base URL of the port of its operators, of which its second line tells."""
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", (await self.process.stdout.readline()).decode())
        assert found is not None
        await until_ready(self.base)
        return found[0]

    async def kill(self) -> None:
        """End it at once, with no chance to finish anything."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def served(config: str, folder: Path, *arguments: str, before: Path = ROOT) -> AsyncGenerator[Served, None]:
    """A proxy in a process, made patient. Connections wait from the first moment. Modules `before` are
    imported in place of installed ones."""
    path, log = folder / "config.yaml", folder / "log"
    path.write_text(patient(config, folder))
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(path), "--port", "0", *arguments]
    # what a killed process leaves behind stays in the test's folder
    environment = {**os.environ, "PYTHONPATH": f"{before}{os.pathsep}{ROOT}", "TMPDIR": str(folder)}
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=errors, env=environment
        )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        found = re.search(r"http://(127\.0\.0\.1|0\.0\.0\.0):(\d+)", line)
        assert found is not None, log.read_text()
        yield Served(process, f"http://127.0.0.1:{found[2]}", log, line)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
