"""Adds, finds, merges and forgets memories; the only place that knows the time."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property

from proxy.context import Identity, Outage, Remembered, RememberedItem
from proxy.memories import Draft, Memory, MemoryObserver, Owner, Untold, id_of, is_over, scopes_seen
from proxy.memories.change import Added, ShelfChange
from proxy.memories.merging import made
from proxy.memories.search import Hit, How, MemorySearch
from proxy.memories.shelves import Shelf, Shelves
from proxy.memories.vectors import MemoryVectors
from proxy.state.store import StoreError
from proxy.vectors.packing import alike

CHUNK = 100
"""Memories that are added in one step."""
_MAKING = 20.0
"""Seconds to wait for the vectors of what is added; without them nothing is merged by its meaning."""
_MANY = 10
"""Memories from which on it is quicker to read all vectors of the owner than to search for each."""
_NEAREST = 5
"""Memories that are compared with one that is added."""


class MemoryService:
    """The memories of all owners. Methods raise `StoreError` where the store fails. For use on one event loop."""

    def __init__(
        self,
        shelves: Shelves,
        vectors: MemoryVectors,
        threads: Executor,
        *,
        most: int = 10_000,
        merge_at: float = 0.92,
        clock: Callable[[], float] = time.time,
        told: MemoryObserver | None = None,
    ) -> None:
        """`most` bounds the memories of one owner; `threads` rank by words; `clock` is in seconds since 1970."""
        self._told = told or Untold()
        self._shelves, self._vectors, self._search = shelves, vectors, MemorySearch(vectors, threads)
        self._most, self._merge_at, self._clock = most, merge_at, clock

    def forget_read(self, tenant: str) -> int:
        """Forget what this process has read of a tenant's, because somebody deletes it; how many users that were."""
        self._vectors.forget_read(tenant)
        return self._shelves.forget(tenant)

    def bind(self, who: Identity, outage: Outage | None = None) -> "BoundMemories":
        """The memories that a request may see; a conversation without a name has none of its own."""
        return BoundMemories(self, who, outage or Outage())

    async def warm(self) -> None:
        """Measure the model, so that the first question need not wait for it."""
        await self._vectors.calibration(_MAKING)

    async def settled(self) -> None:
        """Wait until nothing is done in the background."""
        await self._vectors.settled()

    async def aclose(self) -> None:
        await self._vectors.aclose()

    async def add(self, owner: Owner, drafts: Sequence[Draft]) -> list[Added]:
        """Add memories of one scope: a text that is known gains a source, one that says the same as another takes its
        place.

        Each hundred is durable as a whole. When an owner has too many in all, the least sure and oldest leave.
        """
        added: list[Added] = []
        for start in range(0, len(drafts), CHUNK):
            some = drafts[start : start + CHUNK]
            packed = await self._vectors.of(owner.tenant, [draft.text for draft in some], _MAKING)
            try:
                async with self._shelves.changing(owner) as shelf:
                    added += await self._add(owner, shelf, some, packed)
            except StoreError:
                self._told.changed("refused", len(drafts) - start)
                raise
        return added

    async def _add(
        self, owner: Owner, shelf: Shelf, drafts: Sequence[Draft], packed: Sequence[bytes | None]
    ) -> list[Added]:
        now, scope = self._clock(), owner.scope or ""
        likely = await self._likely(owner, shelf, drafts, packed)
        change = ShelfChange(shelf, now)
        added = [change.add(made(draft, scope, now), near) for draft, near in zip(drafts, likely, strict=True)]
        evicted = change.bound(self._most, {each.memory.id for each in added})
        vectors = {id_of(d.text, scope): v for d, v in zip(drafts, packed, strict=True) if v}
        await self._save(owner, shelf, change, vectors)
        for status, count in Counter(each.status for each in added).items():
            self._told.changed(status, count)
        self._told.changed("evicted", evicted)
        return added

    async def _likely(
        self, owner: Owner, shelf: Shelf, drafts: Sequence[Draft], packed: Sequence[bytes | None]
    ) -> list[list[str]]:
        """For each draft the ids of memories that may say the same, the nearest first."""
        likely: list[list[str]] = [[] for _ in drafts]
        if self._merge_at >= 1 or not any(packed):
            return likely
        ids = [id_of(draft.text, owner.scope or "") for draft in drafts]
        kept: list[str] = list(shelf.of(owner.scope)) if len(drafts) >= _MANY else []
        vectors = [*packed, *await self._vectors.kept(owner, kept)]
        for one, other in await asyncio.to_thread(alike, vectors, self._merge_at, first=len(packed)):
            if other < len(packed):
                likely[other].append(ids[one])
            else:
                likely[one].append(kept[other - len(packed)])
        for place, vector in enumerate(packed if len(drafts) < _MANY else ()):
            near = await self._vectors.nearest(owner, vector, _NEAREST) if vector else None
            likely[place] += [each.id for each in near or () if each.score >= self._merge_at]
        return likely

    async def aggregate(self, owner: Owner, least: float | None = None) -> int:
        """Merge the memories of one scope that say the same, by a cosine of `least`; how many left by that."""
        async with self._shelves.changing(owner) as shelf:
            change = ShelfChange(shelf, self._clock())
            before = len(change.records)
            records = [each for each in change.records.values() if each.scope == owner.scope]
            # well below the time of a lease
            packed = await self._vectors.of(owner.tenant, [each.text for each in records], _MAKING / 2)
            pairs = await asyncio.to_thread(alike, packed, self._merge_at if least is None else least)
            for one, other in pairs:
                change.join(records[one].id, records[other].id)
            if change.touched:
                vectors = {each.id: v for each, v in zip(records, packed, strict=True) if v}
                await self._save(owner, shelf, change, vectors)
            self._told.changed("aggregated", before - len(change.records))
            return before - len(change.records)

    async def all(self, owner: Owner) -> list[Memory]:
        """The memories of an owner, the latest first."""
        now, shelf = self._clock(), await self._shelves.current(owner)
        live = [each for each in shelf.of(owner.scope).values() if not is_over(each, now)]
        return sorted(live, key=lambda each: (-each.updated, each.id))

    async def get(self, owner: Owner, id: str) -> Memory | None:
        """The memory that has an id, or that one with it was merged into."""
        found = (await self._shelves.current(owner)).find(id, owner.scope)
        return None if found is None or is_over(found, self._clock()) else found

    async def delete(self, owner: Owner, id: str) -> bool:
        """Remove a memory, and what was merged into it; whether there was one."""
        async with self._shelves.changing(owner) as shelf:
            found, change = shelf.find(id, owner.scope), ShelfChange(shelf, self._clock())
            there = found is not None and found.id in change.records
            if found is not None and there:
                change.drop(found.id)
                await self._save(owner, shelf, change, {})
                self._told.changed("deleted", 1)
        return there

    async def forget(self, owner: Owner) -> int:
        """Remove all memories of an owner; how many there were."""
        async with self._shelves.changing(owner) as shelf:
            gone = shelf.of(owner.scope)
            if len(gone) == len(shelf.records):
                await self._shelves.clear(owner)
            else:
                rest = {id: each for id, each in shelf.records.items() if id not in gone}
                await self._shelves.save(owner, shelf, rest, gone)
            for each in shelf.owners(owner):
                await self._vectors.forget(each)
        self._told.changed("deleted", len(gone))
        return len(gone)

    async def forget_tenant(self, tenant: str) -> int:
        """Remove all memories of a tenant and its users; how many there were."""
        count = 0
        while owners := await self._shelves.owners(tenant):
            for owner in owners:
                count += await self.forget(owner)
        await self._shelves.clear_tenant(tenant)
        return count

    async def search(self, owners: Sequence[Owner], query: str, *, limit: int, wait: float) -> tuple[list[Hit], How]:
        """The memories that fit a query best, and by what they were found; those of a user before a tenant's."""
        try:
            shelves = await self._current(owners)
            hits, how = await self._search.hits(shelves, query, limit=limit, wait=wait, now=self._clock())
        except StoreError:
            self._told.searched("failed")
            raise
        self._told.searched(how)
        return hits[:limit], how

    async def texts(self, owners: Sequence[Owner], ids: Sequence[str]) -> list[str | None]:
        """The texts under these ids, the earlier texts of memories too; None where there is none any more."""
        now, shelves = self._clock(), await self._current(owners)
        found = [
            next((each for owner, shelf in shelves if (each := shelf.find(id, owner.scope)) is not None), None)
            for id in ids
        ]
        live = [None if memory is None or is_over(memory, now) else memory for memory in found]
        return [None if memory is None else memory.text_of(id) for id, memory in zip(ids, live, strict=True)]

    async def total(self, owners: Sequence[Owner]) -> int:
        """How many memories there are, with those that are over but have not left yet."""
        return sum(len(shelf.of(owner.scope)) for owner, shelf in await self._current(owners))

    async def _current(self, owners: Sequence[Owner]) -> list[tuple[Owner, Shelf]]:
        """Each owner with the shelf, which is asked for once for all scopes of it."""
        shelves = {whole: await self._shelves.current(whole) for whole in dict.fromkeys(each.whole for each in owners)}
        return [(each, shelves[each.whole]) for each in owners]

    async def _save(self, owner: Owner, shelf: Shelf, change: ShelfChange, packed: Mapping[str, bytes]) -> None:
        """Write a change, first to the store, then to the index."""
        for left in await self._shelves.make_room(owner, shelf) if change.records else ():
            await self._vectors.forget(left)
        await self._shelves.save(owner, shelf, change.records, change.touched)
        self._told.changed("expired", change.expired)
        gone: dict[str, list[str]] = {}
        for id in change.touched:
            if id not in change.records and id in shelf.records:
                gone.setdefault(shelf.records[id].scope, []).append(id)
        for scope, ids in gone.items():
            await self._vectors.delete(owner._replace(scope=scope), ids)
        new = {id: packed[id] for id in change.touched if id in change.records and id in packed}
        if new:
            await self._vectors.put(owner, new)

    def now(self) -> float:
        return self._clock()


class BoundMemories:
    """The `Memories` of a request's context: those of its user, and those of its tenant as a whole, without a scope or
    of one that the request is in."""

    def __init__(self, service: MemoryService, who: Identity, outage: Outage) -> None:
        self._service, self._who, self._outage = service, who, outage

    @cached_property
    def _owners(self) -> list[Owner]:
        who = self._who
        scopes = scopes_seen(who.session if who.is_named else "", who.agent, who.task)
        return [Owner(who.tenant, each, scope) for each in dict.fromkeys((who.user, "")) for scope in scopes]

    async def total(self) -> int:
        try:
            return await self._service.total(self._owners)
        except StoreError:
            self._outage.begun = True
            return 0

    async def nearest(self, query: str, *, limit: int, wait: float) -> Remembered:
        try:
            hits, how = await self._service.search(self._owners, query, limit=limit, wait=wait)
        except StoreError:
            self._outage.begun = True
            return Remembered((), "words")
        now = self._service.now()
        return Remembered(tuple(_item(hit, now) for hit in hits), how)

    async def texts(self, ids: Sequence[str]) -> Sequence[str | None]:
        try:
            return await self._service.texts(self._owners, ids)
        except StoreError:
            self._outage.begun = True
            return [None] * len(ids)


def _item(hit: Hit, now: float) -> RememberedItem:
    each = hit.memory
    return RememberedItem(
        each.id, each.text, each.kind, hit.score, max(0.0, now - each.updated), each.confidence, hit.is_own
    )
