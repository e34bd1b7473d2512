import asyncio
import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.server.malloc import bound_arenas, give_back_free_memory
from tests.e2e.servers import proxy

ECHO = """
upstreams: {echo: {kind: echo}}
models: [{match: "*", upstream: echo, window: 8192}]
chains: {default: []}
state: {kind: memory}
"""

NAMES = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX"}

PROGRAM = """
import ctypes
from proxy.server.malloc import bound_arenas

class Figures(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Figures
bound_arenas()
bytearray(16 * 2**20)  # by itself, glibc takes from here on blocks up to this size from an arena
before = library.mallinfo2().hblks
kept = [bytearray(4 * 2**20) for _ in range(3)]
print(library.mallinfo2().hblks - before)
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
def test_large_blocks_are_mapped_by_themselves_whatever_was_freed_before() -> None:
    assert printed(PROGRAM) == 3


@glibc
def test_what_the_operator_has_chosen_stays() -> None:
    assert bound_arenas(dict.fromkeys(NAMES, "1")) == ()
    assert bound_arenas({"MALLOC_ARENA_MAX": "8"}) == ("MALLOC_MMAP_THRESHOLD_",)


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
