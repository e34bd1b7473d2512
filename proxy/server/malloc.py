"""Makes glibc return memory that Python has freed, but not with each request.

glibc makes an arena for each thread that allocates. One is enough: of threads that share the interpreter's lock few
allocate at once, and what one has freed another can use. By itself, glibc maps a body of megabytes apart, and returns
it and the free end of an arena at once: the next request then has to wait until the kernel has cleared each page. So
blocks of up to 32 MiB lie in the arena. What is free in it, also between used blocks, is given back every few seconds.
"""

import asyncio
import ctypes
import os
import time
from collections.abc import Mapping

# mallopt(3)
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

_OPTIONS = {
    "MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, 2**25),
    "MALLOC_MMAP_THRESHOLD_": (_MMAP_THRESHOLD, 2**25),
    "MALLOC_ARENA_MAX": (_ARENA_MAX, 1),
}
"""By the environment variable with which an operator may set another value, which then stays."""

EVERY = 2.0
"""Seconds between two trims at least."""
_SHARE = 1e-3
"""The most of the time that trims may take. Each blocks allocations: 1 ms in a process of 140 MB, 15 to 20 ms in one
with 350 MB in arenas, of which 80 are free."""


def bound_arenas(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Have one arena, which keeps what is freed in it, before threads start. Return the options that were set."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return ()
    wanted = {name: option for name, option in _OPTIONS.items() if name not in environ}
    return tuple(name for name, (option, value) in wanted.items() if library.mallopt(option, value) == 1)


def trim() -> float | None:
    """Give back unused pages. Return the seconds that it took, None if the C library is not glibc."""
    library, began = ctypes.CDLL(None), time.perf_counter()  # its calls leave the interpreter to others
    if not hasattr(library, "malloc_trim"):
        return None
    library.malloc_trim(0)
    return time.perf_counter() - began


async def give_back_free_memory(every: float = EVERY) -> None:
    """Give back unused pages every so many seconds. Return if the C library is not glibc."""
    while True:
        took = await asyncio.to_thread(trim)
        if took is None:
            return
        await asyncio.sleep(max(every, took / _SHARE))
