"""Add, find and forget memories: the interface of this package, and the only place that knows the time."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import Literal, NamedTuple, TypeVar

from proxy.context import Identity, Outage, Remembered, RememberedItem
from proxy.memories import Count, Draft, Memory, Owner, is_over, scopes_seen
from proxy.memories.change import Added, Change
from proxy.memories.relevance import MemoryRelevance
from proxy.memories.table import MemoryTable, Shelf
from proxy.state.store import StoreError

T = TypeVar("T")

CHUNK = 100

FoundBy = Literal["meaning", "words"]


class Hit(NamedTuple):
    """A memory that was found."""

    memory: Memory
    score: float
    """From 0 to 1 (`proxy.memories.relevance`)."""
    is_own: bool


class MemoryService:
    """The memories of all owners. Methods raise `StoreError` where the store fails. For use on one event loop."""

    def __init__(
        self,
        table: MemoryTable,
        relevance: MemoryRelevance,
        threads: Executor,
        *,
        most: int,
        merge_at: float,
        count: Count,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`most` bounds the memories of one owner; `threads` compare texts; `clock` is in seconds since 1970."""
        self._table, self._relevance, self._threads = table, relevance, threads
        self._most, self._merge_at, self.clock, self._count = most, merge_at, clock, count
        self.warm = relevance.warm

    def forget_read(self, tenant: str) -> int:
        self._relevance.forget(tenant)
        return self._table.forget(tenant)

    def bind(self, who: Identity, outage: Outage | None = None) -> "BoundMemories":
        return BoundMemories(self, who, outage or Outage())

    async def add(self, owner: Owner, drafts: Sequence[Draft]) -> list[Added]:
        """Add memories of one scope, each hundred as a whole; beyond the bound the least sure and oldest leave."""
        added: list[Added] = []
        for start in range(0, len(drafts), CHUNK):
            chunk = drafts[start : start + CHUNK]
            try:
                async with self._changing(owner) as change:
                    results = await self._compute(partial(change.add, chunk, owner.scope or ""))
                    evicted = change.bound(self._most, {each.memory.id for each in results})
            except StoreError:
                self._count("memories", "refused", len(drafts) - start)
                raise
            self._relevance.prepare(owner.tenant, [each.memory.text for each in results])
            for status, number in Counter(each.status for each in results).items():
                self._count("memories", status, number)
            self._count("memories", "evicted", evicted)
            added += results
        return added

    async def aggregate(self, owner: Owner, least: float | None = None) -> int:
        """Merge the memories of one scope with a share `least` of their words in common; return how many left."""
        async with self._changing(owner, least) as change:
            before = len(change.records)
            await self._compute(partial(change.aggregate, owner.scope or ""))
            gone = before - len(change.records)
        self._count("memories", "aggregated", gone)
        return gone

    async def all(self, owner: Owner) -> list[Memory]:
        now, shelf = self.clock(), await self._table.current(owner)
        live = [each for each in shelf.of({owner.scope}) if not is_over(each, now)]
        return sorted(live, key=lambda each: (-each.updated, each.id))

    async def get(self, owner: Owner, id: str) -> Memory | None:
        memory = (await self._table.current(owner)).find(id, {owner.scope})
        return None if memory is None or is_over(memory, self.clock()) else memory

    async def delete(self, owner: Owner, id: str) -> bool:
        async with self._changing(owner) as change:
            memory = (await self._table.current(owner)).find(id, {owner.scope})
            if memory is None or memory.id not in change.records:
                return False
            change.drop(memory.id)
        self._count("memories", "deleted", 1)
        return True

    async def forget(self, owner: Owner) -> int:
        async with self._table.changing(owner) as shelf:
            gone = {each.id for each in shelf.of({owner.scope})}
            await self._table.save(owner, shelf, {id: each for id, each in shelf.records.items() if id not in gone})
        self._count("memories", "deleted", len(gone))
        return len(gone)

    async def forget_tenant(self, tenant: str) -> int:
        number = 0
        while owners := await self._table.owners(tenant):
            for owner in owners:
                number += await self.forget(owner)
        await self._table.clear_tenant(tenant)
        return number

    async def search(
        self, owners: Sequence[Owner], query: str, *, limit: int, wait: float
    ) -> tuple[list[Hit], FoundBy]:
        """Return the memories that fit a query best, a user's own first of equals; `wait` is in seconds for vectors."""
        now = self.clock()
        try:
            shelves = await self._shelves(owners)
        except StoreError:
            self._count("memory_searches", "failed", 1)
            raise
        seen = {each.id: (each, bool(owner.user)) for owner, shelf, scopes in shelves for each in shelf.of(scopes)}
        live = [(each, is_own) for each, is_own in seen.values() if not is_over(each, now)]
        texts = [each.text for each, _ in live]
        scores, by_meaning = await self._relevance.scores(owners[0].tenant, query, texts, wait) if live else ([], False)
        found_by: FoundBy = "meaning" if by_meaning else "words"
        self._count("memory_searches", found_by, 1)
        hits = [Hit(each, score, is_own) for (each, is_own), score in zip(live, scores, strict=True) if score]
        hits.sort(key=lambda hit: (-hit.score, not hit.is_own, hit.memory.id))
        return hits[:limit], found_by

    async def texts(self, owners: Sequence[Owner], ids: Sequence[str]) -> list[str | None]:
        """Return the texts of ids, the earlier texts of memories too; None where there is none any more."""
        now, shelves = self.clock(), await self._shelves(owners)
        texts: list[str | None] = []
        for id in ids:
            named = (shelf.find(id, scopes) for _, shelf, scopes in shelves)
            memory = next((each for each in named if each is not None), None)
            texts.append(None if memory is None or is_over(memory, now) else memory.texts[id])
        return texts

    async def total(self, owners: Sequence[Owner]) -> int:
        """Return how many memories there are, with those that are over but have not left yet."""
        return sum(len(shelf.of(scopes)) for _, shelf, scopes in await self._shelves(owners))

    async def _shelves(self, owners: Sequence[Owner]) -> list[tuple[Owner, Shelf, Collection[str | None]]]:
        """Return the memories of whole owners, each with the scopes that are meant."""
        scopes: dict[Owner, set[str | None]] = {}
        for owner in owners:
            scopes.setdefault(owner.whole, set()).add(owner.scope)
        return [(whole, await self._table.current(whole), within) for whole, within in scopes.items()]

    @asynccontextmanager
    async def _changing(self, owner: Owner, least: float | None = None) -> AsyncGenerator[Change]:
        """Give the memories of an owner, which nobody else changes meanwhile, and save what became of them."""
        async with self._table.changing(owner) as shelf:
            change = Change(shelf, self.clock(), self._merge_at if least is None else least)
            live = dict(change.records)
            yield change
            if change.records != live:
                await self._table.save(owner, shelf, change.records)
                self._count("memories", "expired", change.expired)

    async def _compute(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)


class BoundMemories:
    """The `Memories` of a request's context: its user's and its tenant's, of any scope that it is in."""

    def __init__(self, service: MemoryService, who: Identity, outage: Outage) -> None:
        self._service, self._who, self._outage = service, who, outage

    @cached_property
    def _owners(self) -> list[Owner]:
        who = self._who
        scopes = scopes_seen(who.session if who.is_named else "", who.agent, who.task)
        return [Owner(who.tenant, each, scope) for each in dict.fromkeys((who.user, "")) for scope in scopes]

    async def total(self) -> int:
        return await self._unless_away(self._service.total(self._owners), 0)

    async def nearest(self, query: str, *, limit: int, wait: float) -> Remembered:
        search = self._service.search(self._owners, query, limit=limit, wait=wait)
        nothing: tuple[list[Hit], FoundBy] = ([], "words")
        hits, found_by = await self._unless_away(search, nothing)
        now = self._service.clock()
        items = (
            RememberedItem(each.id, each.text, each.kind, score, max(0.0, now - each.updated), each.confidence, is_own)
            for each, score, is_own in hits
        )
        return Remembered(tuple(items), found_by)

    async def texts(self, ids: Sequence[str]) -> Sequence[str | None]:
        return await self._unless_away(self._service.texts(self._owners, ids), [None] * len(ids))

    async def _unless_away(self, work: Awaitable[T], otherwise: T) -> T:
        try:
            return await work
        except StoreError:
            self._outage.begun = True
            return otherwise
