"""Vectors: what makes them, and how they stay between requests, by the hashes of their texts.

An index is never the only home of what it holds: a vector that is missing is made again from its text. So an index may
be lost, flushed or behind, and all that it costs is the making. A point is the packed vectors of a text, by the hash of
its content within a scope: what gets other vectors gets another hash. It is put whole or not at all, and putting it
twice is putting it once.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from proxy.vectors.packing import Scale

T = TypeVar("T")


class IndexFailed(Exception):
    """An index could not do what was asked. `cause` is one word, fit for logs and metrics: no address, no content."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class Scope(NamedTuple):
    """Vectors that stand together. Nothing is ever found in another scope."""

    tenant: str
    model: str
    """The model's version (`Backend.version`): only vectors of one are comparable."""

    @property
    def digest(self) -> bytes:
        """Stands for the scope: 32 bytes, of which the first half is the tenant's."""
        model = f"texts\0{self.model}\0".encode(errors="surrogatepass")
        return tenant_digest(self.tenant) + blake2b(model, digest_size=16).digest()


def tenant_digest(tenant: str) -> bytes:
    """Stands for a tenant: 16 bytes."""
    return blake2b(tenant.encode(errors="surrogatepass"), digest_size=16).digest()


LONGEST = 16_000
"""Characters of a text that are looked at; what a text is about stands before that."""


class EmbeddingFailed(Exception):
    """No vectors could be made. `cause` is one word, fit for logs: no path, no address and no content."""

    def __init__(self, cause: str, *, lasting: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.lasting = lasting


class Backend:
    """Makes vectors, in a thread. Nothing is loaded or connected before the first call."""

    name: str
    """The model, for people."""
    version: str
    """The mark of all that vectors depend on besides the text, known without loading: one's are comparable."""
    batch: int
    """The most texts to give it at once."""
    characters: int
    """The most characters to give it at once, if that is more than one text: a query waits for them."""
    is_quick = False
    """True if a vector is made sooner than it is read: such vectors are not kept in the index."""
    has_roles = False
    """True if a text has other vectors as a query than as a document."""
    scale: Scale | None = None
    """The range of its cosines; None if it is to be measured."""

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "penstock-embedding")

    async def in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def load(self) -> None:
        """Get ready. Raise `EmbeddingFailed`."""

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        """Return the packed vectors of each text, empty where it can have none. Raise `EmbeddingFailed`."""
        raise NotImplementedError

    async def aclose(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
