"""The table of memories in the store: a row for each memory, and a version for each owner.

The version tells in one look whether anything changed; it is written last, so that nobody keeps what is deleted.
Changes of one owner's memories follow each other in all processes: a lease in the store sees to that.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from random import random
from secrets import token_hex
from urllib.parse import quote
from weakref import WeakValueDictionary

import msgspec

from proxy.memories import Count, Memory, Owner
from proxy.state.cache import Cache
from proxy.state.store import Store, StoreError

logger = logging.getLogger("penstock.memories")

LEASE = 30.0
"""Seconds after which the lease of a worker that died ends."""
_PATIENCE = 10.0
_ROWS = 10**6
_KNOWN = 50_000
_USED = 3600.0
"""Seconds after which rows are read again, so that they do not expire."""

_encode = msgspec.json.Encoder().encode
_row = msgspec.json.Decoder(Memory)


@dataclass(frozen=True)
class Shelf:
    """The memories of one owner as the store had them last. Nothing of it is changed."""

    version: bytes | None = None
    records: Mapping[str, Memory] = field(default_factory=dict)
    keys: Collection[str] = frozenset()
    """Of all rows, also of those that cannot be read, or are left over of a crash."""
    read: float = 0.0

    @cached_property
    def earlier(self) -> Mapping[str, str]:
        """The ids of texts that were merged, each with that of the memory which has them now."""
        return _merged(self.records.values())

    def of(self, scopes: Collection[str | None]) -> Sequence[Memory]:
        """Return the memories of some scopes, None for all."""
        return [each for each in self.records.values() if None in scopes or each.scope in scopes]

    def find(self, id: str, scopes: Collection[str | None]) -> Memory | None:
        """Return the memory of an id, or the one that it was merged into, if it is of one of these scopes."""
        found = self.records.get(id) or self.records.get(self.earlier.get(id, ""))
        return found if found is not None and (None in scopes or found.scope in scopes) else None


class MemoryTable:
    """The memories of owners in a store. For use on one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        ttl: float,
        max_users: int,
        count: Count,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`ttl` is in seconds from the last use, `clock` in seconds."""
        self._count = count
        self._store, self._ttl, self._max_users, self._clock = store, ttl, max_users, clock
        self._known: Cache[Owner, Shelf] = Cache(_KNOWN)
        self._locks: WeakValueDictionary[tuple[str, Owner], asyncio.Lock] = WeakValueDictionary()

    async def current(self, owner: Owner) -> Shelf:
        owner = owner.whole
        version = await self._store.get(_version(owner), ttl=self._ttl)
        if version is None:
            self._known.pop(owner)
            return Shelf()
        async with self._lock("read", owner):
            shelf = self._known.get(owner)
            if shelf is None or shelf.version != version or self._clock() - shelf.read >= min(_USED, self._ttl / 10):
                shelf = await self._read(owner, version)
                self._known.put(owner, shelf, len(shelf.records))
        return shelf

    @asynccontextmanager
    async def changing(self, owner: Owner) -> AsyncGenerator[Shelf]:
        """Give the memories of an owner, which nobody else changes meanwhile. Raise `StoreError`."""
        async with self._lock("change", owner.whole), self._leased(owner):
            yield await self.current(owner)

    async def save(self, owner: Owner, shelf: Shelf, records: Mapping[str, Memory]) -> None:
        """Write what became of a shelf; only the holder of the lease may. Raise `StoreError`."""
        owner = owner.whole
        if not records:
            await self.clear(owner)
            return
        if shelf.version is None and owner.user:
            await self._make_room(owner.tenant)
        keys = {_rows(owner) + id: each for id, each in records.items()}
        same = {key for key in shelf.keys if key in keys and shelf.records.get(keys[key].id) is keys[key]}
        new = {key: _encode(each) for key, each in keys.items() if key not in same}
        version, written = token_hex(8).encode(), sum(map(len, new.values()))
        if gone := {*shelf.keys} - keys.keys():  # a crash in between leaves both
            await self._store.put_all(new, ttl=self._ttl)
            await self._store.delete(gone)
            new = {}
        await self._store.put_all({**new, _version(owner): version}, ttl=self._ttl)
        self._count("memory_written_bytes", "", written)
        self._known.put(owner, Shelf(version, records, keys, self._clock()), len(keys))

    async def clear(self, owner: Owner) -> None:
        self._known.pop(owner.whole)
        await self._store.delete((_version(owner),))
        await self._delete_all(_rows(owner))

    async def _make_room(self, tenant: str) -> None:
        """Let the users leave who were asked about longest ago, for one who has no memories yet."""
        names = await self._store.keys(_versions(tenant), limit=_ROWS, latest=True)
        for leaving in map(_owner, names[self._max_users - 1 :]):
            if leaving.user:
                await self.clear(leaving)
                self._count("memory_losses", "user", 1)

    def forget(self, tenant: str) -> int:
        return self._known.forget(tenant)

    async def owners(self, tenant: str) -> list[Owner]:
        return [_owner(name) for name in await self._store.keys(_versions(tenant))]

    async def clear_tenant(self, tenant: str) -> None:
        """Remove rows of a tenant's that no version names. Raise `StoreError`."""
        await self._delete_all(_rows(Owner(tenant, "")).removesuffix("all/"))

    async def _delete_all(self, prefix: str) -> None:
        while keys := await self._store.keys(prefix):
            await self._store.delete(keys)

    async def _read(self, owner: Owner, version: bytes) -> Shelf:
        """Return the rows of an owner, read as a use. One that was merged into another is a leftover of a crash."""
        keys = await self._store.keys(_rows(owner), limit=_ROWS)
        values = await self._store.get_all(keys, ttl=self._ttl)
        memories = await asyncio.to_thread(lambda: [each for each in map(_decoded, values) if each is not None])
        if lost := len(keys) - len(memories):
            self._count("memory_losses", "memory", lost)
            logger.warning("memories are lost", extra={"fields": {"memories": lost}})
        leftover = _merged(memories)
        latest = sorted(memories, key=lambda each: each.updated)
        records = {each.id: each for each in latest if each.id not in leftover}
        return Shelf(version, records, keys, self._clock())

    def _lock(self, action: str, owner: Owner) -> asyncio.Lock:
        return self._locks.setdefault((action, owner), asyncio.Lock())

    @asynccontextmanager
    async def _leased(self, owner: Owner) -> AsyncGenerator[None]:
        """Hold the lease of an owner among all who share the store. Raise `StoreError` (`locked`)."""
        key, mine = f"memory-lease/{owner.key}", token_hex(8).encode()
        until = time.monotonic() + _PATIENCE
        # looking is no use of it: the lease of a worker that died ends
        while await self._store.get(key) is not None or await self._store.add(key, mine, ttl=LEASE) != mine:
            if time.monotonic() > until:
                raise StoreError("locked")
            await asyncio.sleep(0.005 + 0.03 * random())
        try:
            yield
        finally:
            with suppress(StoreError):
                if await self._store.get(key) == mine:
                    await self._store.delete((key,))


def _decoded(raw: bytes | None) -> Memory | None:
    try:
        return None if raw is None else _row.decode(raw)
    except msgspec.MsgspecError:
        return None


def _merged(memories: Iterable[Memory]) -> Mapping[str, str]:
    return {old.id: each.id for each in memories for old in each.earlier}


def _version(owner: Owner) -> str:
    return f"memories/{owner.key}"


def _versions(tenant: str) -> str:
    return f"memories/{quote(tenant, safe='')}/"


def _owner(version: str) -> Owner:
    return Owner.of(version.removeprefix("memories/"))


def _rows(owner: Owner) -> str:
    return f"memory/{owner.key}/"
