"""Cost of the embedded index in milliseconds of CPU and of the clock: `python -m benchmarks.vectors`."""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from proxy.context import Identity
from proxy.vectors.base import Backend, Scope
from proxy.vectors.embedded import Embedded
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.index import IndexService
from proxy.vectors.packing import REFERENCE, pack

WIDTH = 384
MAX_BYTES, TTL = 2**28, 30 * 86400.0
SCOPE = Scope("tenant", "model")


def timed(operation: str, work: Callable[[], object], times: int = 1) -> None:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        work()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{operation:55} {cpu / times * 1000:9.2f} ms CPU {wall / times * 1000:9.2f} ms")


def points(count: int) -> list[tuple[str, bytes]]:
    chance = random.Random(1)
    return [(f"{n:032x}", pack([[chance.gauss(0, 1) for _ in range(WIDTH)]])) for n in range(count)]


class Instant(Backend):
    """An embedding model that returns vectors at once."""

    name = version = "instant"
    batch, characters = 8, 2000
    scale = REFERENCE

    def __init__(self) -> None:
        self.vectors = [packed for _, packed in points(8)]

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        await asyncio.sleep(0)
        return self.vectors[: len(texts)]

    async def aclose(self) -> None: ...


async def unseen(folder: Path) -> None:
    """Measure 500 new tool texts, and the longest stall of the event loop."""
    index = IndexService(Embedded(folder, MAX_BYTES, ttl=TTL))
    texts = [f"tool {n}: " + "does something for somebody. " * 10 for n in range(500)]
    for name in ("500 unseen texts, without the model", "the same after a restart"):
        service = EmbeddingService(Instant(), index)
        await service.bind(Identity("tenant")).similarities("warm", ["warm"], wait=9)
        stalls = asyncio.create_task(_stalls())
        cpu, wall = time.process_time(), time.perf_counter()
        await service.bind(Identity("tenant")).similarities("query", texts, wait=60)
        asked = time.perf_counter() - wall
        await service.aclose()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        stalls.cancel()
        worst = max(await stalls)
        print(
            f"{name:55} {cpu * 1000:9.2f} ms CPU {wall * 1000:9.2f} ms,"
            f" answered after {asked * 1000:.0f}, longest stall of the loop {worst * 1000:.1f}"
        )
    await index.aclose()


async def _stalls() -> list[float]:
    stalls, last = [0.0], time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            stalls.append(now - last - 0.001)
            last = now
    except asyncio.CancelledError:
        return stalls


def main() -> None:
    sample = points(10_000)
    with tempfile.TemporaryDirectory() as folder:
        index = Embedded(Path(folder), MAX_BYTES, ttl=TTL)
        index.put(SCOPE._replace(tenant="warm"), dict(sample[:1]))
        batches = iter(range(0, 10_000, 100))
        timed("put 100 points", lambda: index.put(SCOPE, dict(sample[(at := next(batches)) : at + 100])), 100)
        chance = random.Random(2)
        timed(
            "get 100 vectors of 10,000", lambda: index.vectors(SCOPE, [id for id, _ in chance.sample(sample, 100)]), 50
        )
        index.close()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(unseen(Path(folder)))


if __name__ == "__main__":
    main()
