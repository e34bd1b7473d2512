"""The memories of each owner in the store: pages of some hundred, and a list of the pages that all is read by.

The list is one small value. Whoever has read the pages it names needs to look at nothing else until it changes, and a
change of some memories writes their pages and the list in one step, so no worker ever sees half of it. Changes of one
owner's memories follow each other, in whichever worker: who makes one holds the owner's lease meanwhile.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from random import random
from secrets import token_hex
from weakref import WeakValueDictionary

import msgspec

from proxy.memories import Memory, MemoryObserver, Owner, Untold
from proxy.state.cache import Cache
from proxy.state.store import Store, StoreError
from proxy.text.bm25 import Index

logger = logging.getLogger("penstock.memories")

PAGE = 32 * 1024
"""Bytes from which on a page takes no further memory."""

LEASE = 30.0
"""Seconds after which the lease of a worker that died ends."""
_PATIENCE = 10.0
_AT_ONCE = 8
_KNOWN = 50_000
"""Memories that this process remembers."""
_TOUCHED = 3600.0

_pages = msgspec.json.Decoder(dict[str, str])
_records = msgspec.json.Decoder(tuple[Memory, ...])
_encode = msgspec.json.Encoder().encode


class Page(msgspec.Struct, frozen=True):
    """A page as it was read."""

    mark: str
    """A hash of its content."""
    ids: frozenset[str]
    size: int


@dataclass(frozen=True)
class Shelf:
    """The memories of one owner, as the store had them when it was last asked. Nothing of it is changed."""

    list: bytes | None = None
    """The list of pages, as it was read."""
    pages: Mapping[str, Page] = field(default_factory=dict)
    records: Mapping[str, Memory] = field(default_factory=dict)
    """The memories by id."""
    earlier: Mapping[str, str] = field(default_factory=dict)
    """The memories that earlier texts became, by the ids of these."""
    words: dict[str, Index] = field(default_factory=dict)
    """The terms of texts, by the memory's id, as far as they were counted."""

    @cached_property
    def scopes(self) -> Mapping[str, Mapping[str, Memory]]:
        """The memories of each scope that has any."""
        scopes: dict[str, dict[str, Memory]] = {}
        for id, each in self.records.items():
            scopes.setdefault(each.scope, {})[id] = each
        return scopes

    def of(self, scope: str | None) -> Mapping[str, Memory]:
        """The memories of one scope, or of all."""
        return self.records if scope is None else self.scopes.get(scope, {})

    def owners(self, owner: Owner) -> tuple[Owner, ...]:
        """An owner by the scopes that have memories, and without one; with one scope that alone."""
        some = dict.fromkeys(("", *self.scopes)) if owner.scope is None else (owner.scope,)
        return tuple(owner._replace(scope=each) for each in some)

    def find(self, id: str, scope: str | None) -> Memory | None:
        """The memory of a scope that has this id, or that one with it was merged into."""
        some = self.of(scope)
        return some.get(id) or some.get(self.earlier.get(id, ""))


class Shelves:
    """Reads and changes shelves: one for each owner, whichever scope is meant. For use on one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        ttl: float,
        max_users: int = 10_000,
        clock: Callable[[], float] = time.time,
        told: MemoryObserver | None = None,
    ) -> None:
        """`ttl` is in seconds from the last use, `clock` in seconds."""
        self._told = told or Untold()
        self._store, self._ttl, self._max_users, self._clock = store, ttl, max_users, clock
        self._known: Cache[Owner, tuple[Shelf, float]] = Cache(_KNOWN)
        self._locks: WeakValueDictionary[tuple[str, Owner], asyncio.Lock] = WeakValueDictionary()

    async def current(self, owner: Owner) -> Shelf:
        """The memories of an owner. Raises `StoreError`."""
        owner = owner.whole
        listed = await self._store.get(_list(owner), ttl=self._ttl)
        shelf, touched = self._known.get(owner) or (Shelf(), 0.0)
        if listed is None:
            self._known.pop(owner)
            return Shelf()
        now = self._clock()
        if shelf.list == listed and now - touched < min(_TOUCHED, self._ttl / 10):
            return shelf
        async with self._lock("read", owner):
            shelf, touched = self._known.get(owner) or (Shelf(), 0.0)
            if shelf.list == listed and now - touched < min(_TOUCHED, self._ttl / 10):
                return shelf
            shelf = await self._read(owner, listed, shelf)
            self._known.put(owner, (shelf, now), len(shelf.records))
            return shelf

    @asynccontextmanager
    async def changing(self, owner: Owner) -> AsyncGenerator[Shelf]:
        """The memories of an owner, which nobody else changes meanwhile. Raises `StoreError`."""
        async with self._lock("change", owner.whole), self._leased(owner):
            yield await self.current(owner)

    async def save(self, owner: Owner, shelf: Shelf, records: Mapping[str, Memory], touched: Collection[str]) -> Shelf:
        """Write what became of a shelf; `touched` are the ids that were added, changed or removed.

        To be called by who holds the lease. Raises `StoreError`; then everything is as it was.
        """
        owner = owner.whole
        if not records:
            await self.clear(owner)
            return Shelf()
        ids = _placed(shelf, records, touched)
        written = {name: _encode([records[id] for id in sorted(some)]) for name, some in ids.items() if some}
        pages = {name: page for name, page in shelf.pages.items() if name not in ids}
        pages |= {name: Page(_mark(raw), frozenset(ids[name]), len(raw)) for name, raw in written.items()}
        listed = _encode({name: page.mark for name, page in pages.items()})
        values = {_page(owner, name): raw for name, raw in written.items()}
        await self._store.put_all({**values, _list(owner): listed}, ttl=self._ttl)
        self._told.wrote(sum(map(len, written.values())))
        gone = [_page(owner, name) for name, some in ids.items() if not some and name in shelf.pages]
        if gone:
            with suppress(StoreError):  # nothing names it any more
                await self._store.delete(gone)
        words = {id: each for id, each in list(shelf.words.items()) if id in records}
        made = Shelf(listed, pages, records, _earlier(records), words)
        self._known.put(owner, (made, self._clock()), len(records))
        return made

    async def clear(self, owner: Owner) -> None:
        """Remove all memories of an owner. Raises `StoreError`."""
        self._known.pop(owner.whole)
        await self._store.delete((_list(owner),))
        while keys := await self._store.keys(_page(owner, "")):
            await self._store.delete(keys)

    async def _read(self, owner: Owner, listed: bytes, shelf: Shelf) -> Shelf:
        """The shelf that a list names; of pages that are known already nothing is read."""
        try:
            marks = _pages.decode(listed)
        except msgspec.MsgspecError:
            marks = {}
        same = {name for name, page in shelf.pages.items() if marks.get(name) == page.mark}
        if same:
            there = await self._store.touch([_page(owner, name) for name in same], ttl=self._ttl)
            same = {name for name in same if _page(owner, name) in there}
        pages = {name: shelf.pages[name] for name in same}
        records = {id: shelf.records[id] for name in same for id in shelf.pages[name].ids}
        missing = [name for name in marks if name not in same]
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            raws = await asyncio.gather(*(self._store.get(_page(owner, name), ttl=self._ttl) for name in some))
            for name, raw in zip(some, raws, strict=True):
                found = self._decoded(raw)
                pages[name] = Page(marks[name], frozenset(each.id for each in found), len(raw or b""))
                records |= {each.id: each for each in found}
        words = {id: each for id, each in list(shelf.words.items()) if id in records}
        return Shelf(listed, pages, records, _earlier(records), words)

    async def make_room(self, owner: Owner, shelf: Shelf) -> list[Owner]:
        """Let the users leave who were asked about longest ago, so that there is room for an owner who has none yet.

        Those who left, by scopes. Raises `StoreError`.
        """
        if shelf.list is not None or not owner.user:
            return []
        prefix = _list(Owner(owner.tenant, "")).removesuffix("all")
        names = await self._store.keys(prefix, limit=self._max_users + _TOO_MANY)
        if len(names) < self._max_users:
            return []
        latest = set(await self._store.latest(prefix, limit=max(0, self._max_users - 1)))
        leaving = [Owner.of(name.removeprefix("memories/")) for name in sorted(set(names) - latest)]
        left: list[Owner] = []
        for each in leaving:
            if each.user:
                left += (await self.current(each)).owners(each)
                await self.clear(each)
                self._told.lost("user")
        return left

    def forget(self, tenant: str) -> int:
        """Forget what was read of a tenant's; return how many shelves that were."""
        return self._known.forget(tenant)

    async def owners(self, tenant: str) -> list[Owner]:
        """Some of those of a tenant who have memories; none where nobody has any left. Raises `StoreError`."""
        prefix = _list(Owner(tenant, "")).removesuffix("all")
        return [Owner.of(name.removeprefix("memories/")) for name in await self._store.keys(prefix)]

    async def clear_tenant(self, tenant: str) -> None:
        """Remove what is left of a tenant's without a list that names it. Raises `StoreError`."""
        prefix = _page(Owner(tenant, ""), "").removesuffix("all/")
        while keys := await self._store.keys(prefix):
            await self._store.delete(keys)

    def _decoded(self, raw: bytes | None) -> tuple[Memory, ...]:
        """The memories of a page; none of one that is gone or damaged, which is said in the log."""
        try:
            if raw is not None:
                return _records.decode(raw)
        except msgspec.MsgspecError:
            pass
        self._told.lost("page")
        fields = {"cause": "missing" if raw is None else "corrupted"}
        logger.warning("a page of memories is lost", extra={"fields": fields})
        return ()

    def _lock(self, action: str, owner: Owner) -> asyncio.Lock:
        return self._locks.setdefault((action, owner), asyncio.Lock())

    @asynccontextmanager
    async def _leased(self, owner: Owner) -> AsyncGenerator[None]:
        """Hold the lease of an owner among all who share the store. Raises `StoreError` (`locked`)."""
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


_TOO_MANY = 1000


def _list(owner: Owner) -> str:
    return f"memories/{owner.key}"


def _page(owner: Owner, name: str) -> str:
    return f"memory-pages/{owner.key}/{name}"


def _mark(raw: bytes) -> str:
    return blake2b(raw, digest_size=8).hexdigest()


def _earlier(records: Mapping[str, Memory]) -> dict[str, str]:
    return {old.id: each.id for each in records.values() for old in each.earlier if old.id not in records}


def _placed(shelf: Shelf, records: Mapping[str, Memory], touched: Collection[str]) -> dict[str, set[str]]:
    """The ids of each page that changes; new memories go where there is room."""
    where = {id: name for name, page in shelf.pages.items() for id in page.ids}
    ids: dict[str, set[str]] = {}
    sizes = {name: page.size for name, page in shelf.pages.items()}
    for id in touched:
        if id in where:
            ids.setdefault(where[id], set(shelf.pages[where[id]].ids))
            if id not in records:
                ids[where[id]].discard(id)
    target = min(sizes, key=lambda name: (sizes[name], name), default="")
    for id in sorted(set(touched) - where.keys()):
        if id not in records:
            continue
        if not target or sizes[target] > PAGE:
            target = token_hex(4)
            sizes[target] = 0
        some = ids.setdefault(target, set(shelf.pages[target].ids) if target in shelf.pages else set())
        some.add(id)
        sizes[target] += len(_encode(records[id]))
    return ids
