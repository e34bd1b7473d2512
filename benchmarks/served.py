"""A proxy in a process of its own, with its CPU time and latencies."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
CORES = sorted(os.sched_getaffinity(0))
"""Usable cores: the first for a `pinned` proxy, the last for everything else."""
_SHIPPED = re.search(r"^chains:\n.*?(?=^#)", (ROOT / "config.yaml").read_text(), re.DOTALL | re.MULTILINE)
assert _SHIPPED is not None
CHAINS = _SHIPPED[0]
"""The section `chains` of the shipped configuration."""


@asynccontextmanager
async def served(
    path: Path,
    *arguments: str,
    under: Sequence[str] = (),
    pinned: bool = False,
    stderr: IO[bytes] | None = None,
    **environment: str,
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run `penstock serve` with the configuration at `path` on a free port, and stop it at the end.

    `under` is a command that runs it. Yield the process, which has its exit code afterwards, and the proxy's address.
    """
    process = await asyncio.create_subprocess_exec(
        *(*under, sys.executable, "-m", "proxy", "serve", "--config", str(path), "--port", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        preexec_fn=(lambda: os.sched_setaffinity(0, CORES[:1])) if pinned else None,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        address = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert address is not None, line
        yield process, address[0]
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def latency(seconds: Sequence[float]) -> str:
    """Return the median, the 99th percentile and the most, in ms."""
    ordered = sorted(seconds)
    p50, p99 = (1000 * ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    return f"p50 {p50:.1f} p99 {p99:.1f} most {1000 * ordered[-1]:.1f} ms"
