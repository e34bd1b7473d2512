"""Memory services for tests, over any store."""

from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from zlib import crc32

from proxy.memories import Count, Draft, Owner
from proxy.memories.relevance import MemoryRelevance
from proxy.memories.service import MemoryService
from proxy.memories.table import MemoryTable
from proxy.state.sqlite import SqliteStore
from proxy.state.store import Store
from proxy.text.bm25 import terms
from proxy.vectors.base import Backend
from proxy.vectors.embedding import EmbeddingService
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


@asynccontextmanager
async def remembering(
    store: Store | None = None,
    *,
    backend: Backend | None = None,
    clock: Clock | None = None,
    most: int = 10_000,
    max_users: int = 10_000,
    merge_at: float = 0.92,
    count: Count = lambda metric, label, number: None,
) -> AsyncGenerator[MemoryService, None]:
    """Give a service; without a backend everything goes by words. A store of the caller's stays open."""
    clock = clock or Clock()
    own = store or SqliteStore(None, 2**26)
    embedding = None if backend is None else EmbeddingService(backend)
    with ThreadPoolExecutor(1) as threads:
        relevance = MemoryRelevance(embedding, threads)
        table = MemoryTable(own, ttl=86400.0, max_users=max_users, clock=clock, count=count)
        service = MemoryService(table, relevance, threads, most=most, merge_at=merge_at, clock=clock, count=count)
        try:
            yield service
        finally:
            if embedding is not None:
                await embedding.aclose()
            if store is None:
                await own.aclose()


def draft(text: str, **fields: object) -> Draft:
    return Draft(text, **fields)  # type: ignore[arg-type]


async def texts(service: MemoryService, owner: Owner) -> list[str]:
    return [each.text for each in await service.all(owner)]


async def found(service: MemoryService, owner: Owner, query: str) -> list[str]:
    hits, _ = await service.search([owner], query, limit=10, wait=10)
    return [hit.memory.text for hit in hits]


__all__ = ["ALL", "ANN", "BOB", "ELSE", "Terms", "draft", "found", "remembering", "texts"]
