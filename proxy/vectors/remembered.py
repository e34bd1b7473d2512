"""Vectors that were made: the recent ones in memory, all of them in the index, so that a restart loses none."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from proxy.vectors.base import IndexFailed, Point, Scope, VectorIndex
from proxy.vectors.making import Key, Warn
from proxy.vectors.packed import dimension
from proxy.vectors.packing import Stack

AT_ONCE = 256
"""Texts whose vectors are read or written together."""

KIND = "texts"
"""The kind of scope in the index: a tenant's tools, passages, queries, whatever was embedded, under their hashes."""

_UNWRITTEN = 2048
"""Vectors that may wait to be written; further ones are only kept in memory."""
_ENTRY = 300
"""Bytes that an entry takes in memory besides its vectors."""


class Stacks:
    """Unpacked vectors of texts that were asked for together, as the tools of a request are turn by turn."""

    def __init__(self, max_bytes: int) -> None:
        """What was used longest ago is forgotten."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[str, tuple[str, ...]], Stack] = OrderedDict()

    def get(self, key: tuple[str, tuple[str, ...]]) -> Stack | None:
        """Those of a tenant's texts, if they are there."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def put(self, key: tuple[str, tuple[str, ...]], stack: Stack) -> None:
        """Keep them instead of what there was."""
        before = self._known.pop(key, None)
        self._bytes += _room(key, stack) - (_room(key, before) if before is not None else 0)
        self._known[key] = stack
        while self._bytes > self._max_bytes:
            self._bytes -= _room(*self._known.popitem(last=False))

    def forget(self, tenant: str) -> None:
        """Forget those of a tenant."""
        for key in [key for key in self._known if key[0] == tenant]:
            self._bytes -= _room(key, self._known.pop(key))


def _room(key: tuple[str, tuple[str, ...]], stack: Stack) -> int:
    return _ENTRY + stack.size + 2 * sum(map(len, key[1]))


class Remembered:
    """A memory of packed vectors, bounded in bytes; what was used longest ago is forgotten. For one event loop."""

    def __init__(self, version: str, index: VectorIndex | None, warn: Warn, *, max_bytes: int) -> None:
        """Vectors are those of one version of a model."""
        self._version = version
        self._index = index
        self._warn = warn
        self._max_bytes = max_bytes
        self._known: OrderedDict[Key, bytes] = OrderedDict()
        self._bytes = 0
        self._dimension: int | None = None  # of what was made last; not known before
        self._unwritten: dict[Key, bytes] = {}
        self._writer: asyncio.Task[None] | None = None

    def get(self, key: Key) -> bytes | None:
        """What is in memory for a text; empty for one that has no vectors."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    async def recall(self, keys: Sequence[Key]) -> list[bytes | None]:
        """What is in the index for texts, from now on in memory too; None for what it cannot tell.

        The keys are one tenant's.
        """
        if self._index is None or not keys:
            return [None] * len(keys)
        try:
            found = await self._index.vectors(self._scope(keys[0].tenant), [key.digest for key in keys])
        except IndexFailed as error:
            self._failed("read", error)
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
                self._bytes = 0
            self._dimension = width
        self._keep(key, packed)
        if packed and self._index is not None and len(self._unwritten) < _UNWRITTEN:
            self._unwritten[key] = packed
            if self._writer is None or self._writer.done():
                self._writer = asyncio.get_running_loop().create_task(self._write(self._index))

    def forget(self, tenant: str) -> int:
        """Forget a tenant's vectors, but for those in the index; how many there were."""
        gone = [key for key in self._known if key.tenant == tenant]
        for key in gone:
            self._bytes -= _ENTRY + len(self._known.pop(key))
        self._unwritten = {key: packed for key, packed in self._unwritten.items() if key.tenant != tenant}
        return len(gone)

    async def aclose(self) -> None:
        """Write what waits, if the index takes it. It is somebody else's to close."""
        if self._writer is not None:
            await asyncio.wait({self._writer})
        if self._index is not None and self._unwritten:
            await self._write(self._index)

    def _keep(self, key: Key, packed: bytes) -> None:
        self._bytes += _ENTRY + len(packed) - (_ENTRY + len(self._known[key]) if key in self._known else 0)
        self._known[key] = packed
        self._known.move_to_end(key)
        while self._bytes > self._max_bytes:
            _, gone = self._known.popitem(last=False)
            self._bytes -= _ENTRY + len(gone)

    def _taken(self, key: Key, packed: bytes | None) -> bytes | None:
        width = dimension(packed or b"")
        if packed is None or not width or self._dimension not in (None, width):
            return None
        self._keep(key, packed)
        return packed

    async def _write(self, index: VectorIndex) -> None:
        while self._unwritten:
            tenant = next(iter(self._unwritten)).tenant
            some = [key for key in self._unwritten if key.tenant == tenant][:AT_ONCE]
            points = [Point(key.digest, self._unwritten.pop(key)) for key in some]
            try:
                await index.put(self._scope(tenant), points)
            except IndexFailed as error:  # tried again with the next vectors that are made
                self._unwritten = {Key(tenant, each.id): each.vector for each in points} | self._unwritten
                self._failed("write", error)
                return

    def _scope(self, tenant: str) -> Scope:
        return Scope(tenant, KIND, self._version)

    def _failed(self, action: str, error: IndexFailed) -> None:
        self._warn(action, error.cause)
