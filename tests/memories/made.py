"""Memory services for tests, over any store and index."""

from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

from proxy.memories import Draft, MemoryObserver, Owner
from proxy.memories.calibration import ScoreCurve
from proxy.memories.service import MemoryService
from proxy.memories.shelves import Shelves
from proxy.memories.vectors import MemoryVectors
from proxy.state.store import MemoryStore, Store
from proxy.text.bm25 import terms
from proxy.vectors.backend import Backend
from proxy.vectors.base import IndexBounds
from proxy.vectors.embedded import Embedded
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.index import IndexService
from tests.clock import Clock
from tests.vectors.scripted import Scripted

ANN, BOB, ALL, ELSE = Owner("t", "user-ann"), Owner("t", "user-bob"), Owner("t", ""), Owner("other", "user-ann")


class Terms(Scripted):
    """Vectors of the words that a text has: texts are as near as they share words."""

    def __init__(self, dimensions: int = 256) -> None:
        super().__init__(batch=64, characters=10**6, dimensions=dimensions)

    def vector(self, text: str) -> list[float]:
        row = [0.01] * self.dimensions
        for term in terms(text):
            row[crc32(term.encode()) % self.dimensions] += 1.0
        return row


def index(folder: Path | None = None) -> IndexService:
    return IndexService(Embedded(folder, IndexBounds(100_000, 100_000, 3600.0)), timeout=30)


@asynccontextmanager
async def remembering(
    store: Store | None = None,
    *,
    backend: Backend | None = None,
    folder: Path | None = None,
    clock: Clock | None = None,
    most: int = 10_000,
    max_users: int = 10_000,
    merge_at: float = 0.92,
    told: MemoryObserver | None = None,
) -> AsyncGenerator[MemoryService, None]:
    """A service with a real index; without a backend everything goes by words. A store of the caller's stays open."""
    clock = clock or Clock()
    own = store or MemoryStore(2**26)
    made = None if backend is None else index(folder)
    embedding = None if backend is None else EmbeddingService(backend, made)
    vectors = MemoryVectors(embedding, made, known=ScoreCurve(0.3, 9.0) if isinstance(backend, Terms) else None)
    with ThreadPoolExecutor(1) as threads:
        shelves = Shelves(own, ttl=86400.0, max_users=max_users, clock=clock, told=told)
        service = MemoryService(shelves, vectors, threads, most=most, merge_at=merge_at, clock=clock, told=told)
        try:
            yield service
        finally:
            await service.aclose()
            if embedding is not None and made is not None:
                await embedding.aclose()
                await made.aclose()
            if store is None:
                await own.aclose()


def draft(text: str, **fields: object) -> Draft:
    return Draft(text, **fields)  # type: ignore[arg-type]


async def texts(service: MemoryService, owner: Owner) -> list[str]:
    return [each.text for each in await service.all(owner)]


async def found(service: MemoryService, owner: Owner, query: str) -> list[str]:
    hits, _ = await service.search([owner], query, limit=10, wait=10)
    return [hit.memory.text for hit in hits]


__all__ = ["ALL", "ANN", "BOB", "ELSE", "Terms", "draft", "found", "index", "remembering", "texts"]
