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
    kind: str
    """The things that they are of: `texts`, `memories`. A lower-case word."""
    model: str
    """The model's version (`Backend.version`): only vectors of one are comparable."""
    owner: str = ""
    """A part of the tenant: a user, a project. Empty for what is all of the tenant's."""

    @property
    def digest(self) -> bytes:
        """Stands for the scope: 32 bytes, of which the first half is the tenant's."""
        rest = "\0".join((self.kind, self.model, self.owner))
        return tenant_digest(self.tenant) + blake2b(rest.encode(errors="surrogatepass"), digest_size=16).digest()


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


class IndexBounds(NamedTuple):
    """The bounds of an index."""

    all: int
    """Points of all scopes together."""
    scope: int
    """Points of one scope."""
    ttl: float
    """Seconds for which a point stays after its last use."""
