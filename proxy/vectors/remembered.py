"""Vectors that were made: the recent ones in memory, all of them in the index, so that a restart loses none."""

import asyncio
from collections.abc import Sequence

from proxy.state.cache import Cache
from proxy.vectors.base import IndexFailed, Point, Scope
from proxy.vectors.index import IndexService
from proxy.vectors.making import Key, Warn
from proxy.vectors.packing import dimension

AT_ONCE = 256
"""Texts whose vectors are read or written together."""

_UNWRITTEN = 2048
"""Vectors that may wait to be written; further ones are only kept in memory."""
ENTRY = 300
"""Bytes that an entry takes in memory besides its vectors."""


class VectorMemory:
    """A memory of packed vectors, bounded in bytes; what was used longest ago is forgotten. For one event loop."""

    def __init__(self, version: str, index: IndexService | None, warn: Warn, *, max_bytes: int) -> None:
        """Keep the vectors of one version of a model."""
        self._version = version
        self._index = index
        self._warn = warn
        self._known: Cache[Key, bytes] = Cache(max_bytes)
        self.get = self._known.get
        """The vectors of a text in memory; empty for one that has none."""
        self._dimension: int | None = None  # of what was made last; not known before
        self._unwritten: dict[Key, bytes] = {}
        self._writer: asyncio.Task[None] | None = None

    async def recall(self, keys: Sequence[Key]) -> list[bytes | None]:
        """Return what is in the index for texts, from now on in memory too; None for what it cannot tell.

        The keys are one tenant's.
        """
        if self._index is None or not keys:
            return [None] * len(keys)
        try:
            found = await self._index.vectors(self._scope(keys[0].tenant), [key.digest for key in keys])
        except IndexFailed as error:
            self._warn("read", error.cause)
            return [None] * len(keys)
        return list(map(self._taken, keys, found))

    def add(self, key: Key, packed: bytes) -> None:
        """Remember new vectors, and begin to write them to the index.

        Where they have another dimension than the earlier ones, these are another model's: they are forgotten.
        """
        if packed:
            width = dimension(packed)
            if self._dimension not in (None, width):
                self._known.clear()
            self._dimension = width
        self._keep(key, packed)
        if packed and self._index is not None and len(self._unwritten) < _UNWRITTEN:
            self._unwritten[key] = packed
            if self._writer is None or self._writer.done():
                self._writer = asyncio.get_running_loop().create_task(self._write(self._index))

    def forget(self, tenant: str) -> int:
        """Forget a tenant's vectors, but for those in the index; how many there were."""
        self._unwritten = {key: packed for key, packed in self._unwritten.items() if key.tenant != tenant}
        return self._known.forget(tenant)

    async def aclose(self) -> None:
        """Write what waits, if the index takes it. It is somebody else's to close."""
        if self._writer is not None:
            await asyncio.wait({self._writer})
        if self._index is not None and self._unwritten:
            await self._write(self._index)

    def _keep(self, key: Key, packed: bytes) -> None:
        self._known.put(key, packed, ENTRY + len(packed))

    def _taken(self, key: Key, packed: bytes | None) -> bytes | None:
        width = dimension(packed or b"")
        if packed is None or not width or self._dimension not in (None, width):
            return None
        self._keep(key, packed)
        return packed

    async def _write(self, index: IndexService) -> None:
        while self._unwritten:
            tenant = next(iter(self._unwritten)).tenant
            some = [key for key in self._unwritten if key.tenant == tenant][:AT_ONCE]
            points = [Point(key.digest, self._unwritten.pop(key)) for key in some]
            try:
                await index.put(self._scope(tenant), points)
            except IndexFailed as error:  # tried again with the next vectors that are made
                self._unwritten = {Key(tenant, each.id): each.vector for each in points} | self._unwritten
                self._warn("write", error.cause)
                return

    def _scope(self, tenant: str) -> Scope:
        return Scope(tenant, self._version)
