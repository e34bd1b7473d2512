"""Latency of the stores of state: `python -m benchmarks.state [redis://HOST:PORT/DB ...]`, beside a directory.

Its keys on a server have a prefix of their own, and are removed at the end.
"""

import asyncio
import os
import random
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

from proxy.context import Identity
from proxy.state.archive import Archives
from proxy.state.redis import RedisServer, RedisStore
from proxy.state.sqlite import SqliteStore
from proxy.state.store import Store

TIMES = 1000
SMALL = 2048


async def timed(call: Callable[[int], Awaitable[object]]) -> str:
    """Return median and 99th percentile of sequential calls in microseconds."""
    times = []
    for number in range(TIMES):
        start = perf_counter()
        await call(number)
        times.append((perf_counter() - start) * 1e6)
    times.sort()
    return f"{times[TIMES // 2]:6.0f} {times[TIMES * 99 // 100]:6.0f}"


async def measure(name: str, store: Store) -> None:
    """Print a line for each operation of a store."""
    value = os.urandom(SMALL)
    texts = [f"{number} {random.Random(number).randbytes(4000).hex()}" for number in range(TIMES)]
    first, second = (Archives(store).bind(Identity("t", "named-s")) for _ in range(2))
    for number in range(50):
        await store.put(f"warm/{number}", value, ttl=600)
        await store.get(f"warm/{number}")
    rows: list[tuple[str, Callable[[int], Awaitable[object]]]] = [
        ("put 2 KB", lambda number: store.put(f"k/{number}", value, ttl=600)),
        ("get 2 KB", lambda number: store.get(f"k/{number}", ttl=600)),
        ("keep 8 KB, new", lambda number: first.keep(texts[number])),
        ("keep 8 KB, known to the store", lambda number: second.keep(texts[number])),
        ("keep 8 KB, just seen", lambda number: second.keep(texts[number])),
    ]
    for operation, call in rows:
        print(f"{name:12} {operation:32} {await timed(call)}")
    while keys := await store.keys(""):
        await store.delete(keys)
    await store.aclose()


async def main(addresses: list[str]) -> None:
    """Measure a directory, and each server."""
    print(f"{'':12} {'':32} p50 us p99 us")
    with tempfile.TemporaryDirectory() as folder:
        await measure("disk", SqliteStore(Path(folder), 2**29))
    for number, address in enumerate(addresses):
        server = RedisServer(address, prefix=f"benchmark-{secrets.token_hex(4)}", timeout=30.0)
        await measure(f"server {number + 1}", RedisStore(server))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
