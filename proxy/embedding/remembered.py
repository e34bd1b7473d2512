"""Vectors that were made: the recent ones in memory, all of them in the store, so that a restart loses none."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from urllib.parse import quote

from proxy.embedding.making import Key, Warn
from proxy.embedding.vectors import dimension
from proxy.stores import Store, StoreError

AT_ONCE = 32
"""Values that are asked for together: the store is there for others too."""

_UNWRITTEN = 2048
"""Vectors that may wait to be written; further ones are only kept in memory."""
_PAUSE = 10.0
"""Seconds for which a store that failed is left alone: waiting for it would cost more than it saves."""
_ENTRY = 300
"""Bytes that an entry takes in memory besides its vectors."""


class Remembered:
    """A memory of packed vectors, bounded in bytes; what was used longest ago is forgotten. For one event loop."""

    def __init__(
        self,
        version: str,
        store: Store | None,
        warn: Warn,
        *,
        ttl: float,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ttl` is how many seconds a vector stays in the store after its last use."""
        self._version = quote(version, safe="")
        self._store = store
        self._warn = warn
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._clock = clock
        self._known: OrderedDict[Key, bytes] = OrderedDict()
        self._bytes = 0
        self._dimension: int | None = None  # of what was made last; not known before
        self._unwritten: dict[Key, bytes] = {}
        self._writer: asyncio.Task[None] | None = None
        self._store_pauses_until = float("-inf")

    def get(self, key: Key) -> bytes | None:
        """What is in memory for a text; empty for one that has no vectors."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    async def recall(self, keys: Sequence[Key]) -> list[bytes | None]:
        """What is in the store for at most `AT_ONCE` texts, from now on in memory too; None for what it cannot tell."""
        found = await asyncio.gather(*map(self._read, keys))
        for key, packed in zip(keys, found, strict=True):
            if packed is not None:
                self._keep(key, packed)
        return list(found)

    def add(self, key: Key, packed: bytes) -> None:
        """Remember new vectors, and begin to write them to the store.

        Where they have another dimension than the earlier ones, these are another model's: they are forgotten.
        """
        if packed:
            width = dimension(packed)
            if self._dimension not in (None, width):
                self._known.clear()
                self._bytes = 0
            self._dimension = width
        self._keep(key, packed)
        if packed and self._store is not None and len(self._unwritten) < _UNWRITTEN:
            self._unwritten[key] = packed
            if self._writer is None or self._writer.done():
                self._writer = asyncio.get_running_loop().create_task(self._write(self._store))

    async def aclose(self) -> None:
        """Stop writing. The store is somebody else's to close."""
        self._unwritten.clear()
        if self._writer is not None:
            await asyncio.wait({self._writer})

    def _keep(self, key: Key, packed: bytes) -> None:
        self._bytes += _ENTRY + len(packed) - (_ENTRY + len(self._known[key]) if key in self._known else 0)
        self._known[key] = packed
        self._known.move_to_end(key)
        while self._bytes > self._max_bytes:
            _, gone = self._known.popitem(last=False)
            self._bytes -= _ENTRY + len(gone)

    async def _read(self, key: Key) -> bytes | None:
        if self._store is None or self._clock() < self._store_pauses_until:
            return None
        try:
            packed = await self._store.get(self._name(key), ttl=self._ttl)
        except StoreError as error:
            self._store_failed("read", error)
            return None
        width = dimension(packed or b"")
        return packed if width and self._dimension in (None, width) else None

    async def _write(self, store: Store) -> None:
        while self._unwritten:
            key = next(iter(self._unwritten))
            packed = self._unwritten.pop(key)
            if self._clock() >= self._store_pauses_until:
                try:
                    await store.put(self._name(key), packed, ttl=self._ttl)
                except StoreError as error:
                    self._store_failed("write", error)

    def _name(self, key: Key) -> str:
        return f"vectors/{quote(key.tenant, safe='')}/{self._version}/{key.digest}"

    def _store_failed(self, action: str, error: StoreError) -> None:
        self._store_pauses_until = self._clock() + _PAUSE
        self._warn(action, error.cause)
