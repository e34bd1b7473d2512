"""A backend whose vectors and faults are the test's."""

import asyncio
from collections.abc import Callable, Sequence

from proxy.vectors.base import Backend
from proxy.vectors.packing import REFERENCE, Scale, pack


class Scripted(Backend):
    """Two dimensions: a text that starts with `a` points along the first, one with `b` along the second."""

    name, version = "scripted", "scripted-1"
    scale: Scale | None = REFERENCE

    def __init__(self, *, batch: int = 2, characters: int = 1000, dimensions: int = 2) -> None:
        self.batch = batch
        self.characters = characters
        self.dimensions = dimensions
        self.batches: list[list[str]] = []
        self.queries: list[str] = []
        self.loads = 0
        self.fault: Callable[[], Exception] | None = None
        self.refused: set[str] = set()
        self.free = asyncio.Event()
        """While it is not set, nothing gets done."""
        self.free.set()
        self.begun = asyncio.Event()
        """Set when a batch has arrived."""
        self.closed = False

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]

    async def load(self) -> None:
        self.loads += 1

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        self.batches.append(list(texts))
        self.queries += texts if query else ()
        self.begun.set()
        await self.free.wait()
        if self.fault is not None:
            raise self.fault()
        return [b"" if text in self.refused else pack([self.vector(text)]) for text in texts]

    def vector(self, text: str) -> list[float]:
        rest = [0.0] * (self.dimensions - 2)
        return [{"a": 1.0, "b": 0.0}.get(text[:1], 0.6), {"a": 0.0, "b": 1.0}.get(text[:1], 0.8), *rest]

    async def aclose(self) -> None:
        self.closed = True
