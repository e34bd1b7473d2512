import asyncio
import ctypes
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from proxy.server.malloc import bound_arenas, give_back_free_memory
from tests.e2e.servers import proxy

ECHO = """
upstreams: {echo: {kind: echo}}
models: [{match: "*", upstream: echo, window: 8192}]
chains: {default: []}
state: {kind: memory}
"""

NAMES = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX"}

PROGRAM = """
from resource import RUSAGE_SELF, getrusage
from proxy.server.malloc import bound_arenas

bound_arenas()
faults = []
for size in (16, *[4] * 20):
    before = getrusage(RUSAGE_SELF).ru_minflt
    b"x" * (size * 2**20)
    faults.append(getrusage(RUSAGE_SELF).ru_minflt - before)
print(sum(faults[1:]))
"""

SCATTERED = """
import asyncio
from pathlib import Path
from proxy.server.malloc import bound_arenas, give_back_free_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20

bound_arenas()
blocks = [bytearray(2000) for _ in range(50_000)]
kept = blocks[::50]
del blocks  # what is left keeps glibc from giving back what lies between
before = resident()

async def main():
    giving = asyncio.ensure_future(give_back_free_memory(every=0.01))
    until = asyncio.get_running_loop().time() + 60
    while resident() > before - 50 and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.01)
    giving.cancel()

asyncio.run(main())
print(before - resident())
"""

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")


def printed(program: str) -> int:
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


@glibc
def test_memory_of_a_large_body_is_used_again_as_it_is() -> None:
    assert printed(PROGRAM) < 500  # a body of 4 MiB has 1024 pages


@glibc
def test_what_the_operator_has_chosen_stays() -> None:
    assert bound_arenas(dict.fromkeys(NAMES, "1")) == ()
    assert bound_arenas({"MALLOC_ARENA_MAX": "8"}) == ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


@glibc
def test_what_is_free_between_blocks_in_use_is_given_back() -> None:
    assert printed(SCATTERED) >= 50


@glibc
async def test_a_proxy_gives_back_as_long_as_it_runs(tmp_path: Path) -> None:
    def giving() -> int:
        under_way = [task.get_coro() for task in asyncio.all_tasks()]
        return [getattr(each, "cr_code", None) for each in under_way].count(give_back_free_memory.__code__)

    async with proxy(ECHO, tmp_path):
        assert giving() == 1
    assert giving() == 0


@glibc
async def test_what_was_needed_only_to_start_is_given_back_before_requests_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[bool] = []
    monkeypatch.setattr("proxy.server.app.trim", lambda: given_back.append(True))
    async with proxy(ECHO, tmp_path) as base, httpx.AsyncClient(base_url=base) as client:
        while (await client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.01)
        assert given_back == [True]


async def test_a_process_that_takes_long_to_give_back_does_it_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    durations = iter([0.001, 0.02, None])
    monkeypatch.setattr("proxy.server.malloc.trim", lambda: next(durations))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await give_back_free_memory(every=2.0)
    assert slept == [2.0, pytest.approx(20.0)]
