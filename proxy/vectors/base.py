"""Vectors that stay between requests, by the hashes of their texts. Only the standard library is needed here.

An index is never the only home of what it holds: a vector that is missing is made again from its text. So an index may
be lost, flushed or behind, and all that it costs is the making. A point is put whole or not at all, and putting it
twice is putting it once.
"""

from hashlib import blake2b
from typing import NamedTuple


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


class Point(NamedTuple):
    """A vector to keep."""

    id: str
    """Its name within its scope: a hash of the content, or the record's id. The same id is the same point:
    what gets another vector gets another id, or is deleted before."""
    vector: bytes
    """Packed (`proxy.vectors.packing`); a text may have several vectors, of which the nearest counts."""
