"""The index of one machine: a SQLite file that all its processes share, bounded in bytes.

Qdrant's own local directory is not used: it belongs to one process at a time. The directory must be on a local disk.
"""

from collections.abc import Sequence
from pathlib import Path

from proxy.state.sqlite import SqliteStore
from proxy.vectors.base import Point, Scope, tenant_digest
from proxy.vectors.packing import dimension


class Embedded:
    """Keeps points in a directory. All methods raise `StoreError`."""

    def __init__(self, directory: Path, max_bytes: int, *, ttl: float, busy: float = 1.0) -> None:
        """Open nothing before it is needed. `ttl` is in seconds, and `busy` to wait for another process's write."""
        self._store = SqliteStore(directory, max_bytes, protected=0.0, busy=busy, durable=False)
        self._ttl = ttl

    async def put(self, scope: Scope, points: Sequence[Point]) -> None:
        """Keep points, in one transaction."""
        values = {_key(scope, each.id): each.vector for each in points if dimension(each.vector)}
        await self._store.put_all(values, ttl=self._ttl)

    async def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        """Return the packed vectors of points.

        That is no use of them, so that reading takes no lock: those leave first that were written longest ago.
        """
        return await self._store.get_all([_key(scope, id) for id in ids])

    async def forget_tenant(self, tenant: str) -> None:
        while keys := await self._store.keys(tenant_digest(tenant).hex()):
            await self._store.delete(keys)

    async def aclose(self) -> None:
        """Close the file; later calls raise `closed`."""
        await self._store.aclose()


def _key(scope: Scope, id: str) -> str:
    return f"{scope.digest.hex()}/{id}"
