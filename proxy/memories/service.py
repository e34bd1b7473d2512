"""Adds, finds, merges and forgets memories; the only place that knows the time."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Literal, NamedTuple

from proxy.embedding.vectors import alike
from proxy.lexical import counted, fits
from proxy.memories import Draft, Memory, Owner, id_of, is_over
from proxy.memories.calibration import WORDS
from proxy.memories.change import Added, Change
from proxy.memories.merging import made
from proxy.memories.shelves import Shelf, Shelves
from proxy.memories.vectors import MemoryVectors
from proxy.remembered import Remembered, RememberedItem
from proxy.stores import StoreError

CHUNK = 100
"""Memories that are added in one step."""
_MAKING = 20.0
"""Seconds to wait for the vectors of what is added; without them nothing is merged by its meaning."""
_MANY = 10
"""Memories from which on it is quicker to read all vectors of the owner than to search for each."""
_NEAREST = 5
"""Memories that are compared with one that is added."""


class Hit(NamedTuple):
    """A memory that was found."""

    memory: Memory
    score: float
    """How well it fits, from 0 to 1 (`proxy.memories.calibration`)."""
    is_own: bool
    """Whether it is the user's, and not the tenant's as a whole."""


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
    ) -> None:
        """`most` bounds the memories of one owner; `threads` rank by words; `clock` is in seconds since 1970."""
        self._shelves, self._vectors, self._threads = shelves, vectors, threads
        self._most, self._merge_at, self._clock = most, merge_at, clock

    def bound(self, tenant: str, user: str) -> "BoundMemories":
        """The memories that a request may see."""
        return BoundMemories(self, tenant, user)

    async def warm(self) -> None:
        """Measure the model, so that the first question need not wait for it."""
        await self._vectors.calibration(_MAKING)

    async def settled(self) -> None:
        """Wait until nothing is done in the background."""
        await self._vectors.settled()

    async def aclose(self) -> None:
        """Stop what is done in the background."""
        await self._vectors.aclose()

    async def add(self, owner: Owner, drafts: Sequence[Draft]) -> list[Added]:
        """Add memories: a text that is known gains a source, one that says the same as another takes its place.

        Each hundred is durable as a whole. When an owner has too many, the least sure and oldest leave.
        """
        added: list[Added] = []
        for start in range(0, len(drafts), CHUNK):
            some = drafts[start : start + CHUNK]
            packed = await self._vectors.of(owner.tenant, [draft.text for draft in some], _MAKING)
            async with self._shelves.changing(owner) as shelf:
                added += await self._add(owner, shelf, some, packed)
        return added

    async def _add(
        self, owner: Owner, shelf: Shelf, drafts: Sequence[Draft], packed: Sequence[bytes | None]
    ) -> list[Added]:
        now = self._clock()
        likely = await self._likely(owner, shelf, drafts, packed)
        change = Change(shelf, now)
        added = [change.add(made(draft, now), near) for draft, near in zip(drafts, likely, strict=True)]
        change.bound(self._most, {each.memory.id for each in added})
        await self._save(owner, shelf, change, {id_of(d.text): v for d, v in zip(drafts, packed, strict=True) if v})
        return added

    async def _likely(
        self, owner: Owner, shelf: Shelf, drafts: Sequence[Draft], packed: Sequence[bytes | None]
    ) -> list[list[str]]:
        """For each draft the ids of memories that may say the same, the nearest first."""
        likely: list[list[str]] = [[] for _ in drafts]
        if self._merge_at >= 1 or not any(packed):
            return likely
        ids = [id_of(draft.text) for draft in drafts]
        kept: list[str] = list(shelf.records) if len(drafts) >= _MANY else []
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
        """Merge the memories that say the same, by a cosine of `least`; how many left by that."""
        async with self._shelves.changing(owner) as shelf:
            change = Change(shelf, self._clock())
            before = len(change.records)
            records = list(change.records.values())
            # well below the time of a lease
            packed = await self._vectors.of(owner.tenant, [each.text for each in records], _MAKING / 2)
            pairs = await asyncio.to_thread(alike, packed, self._merge_at if least is None else least)
            for one, other in pairs:
                change.join(records[one].id, records[other].id)
            if change.touched:
                vectors = {each.id: v for each, v in zip(records, packed, strict=True) if v}
                await self._save(owner, shelf, change, vectors)
            return before - len(change.records)

    async def all(self, owner: Owner) -> list[Memory]:
        """The memories of an owner, the latest first."""
        now, shelf = self._clock(), await self._shelves.current(owner)
        live = [each for each in shelf.records.values() if not is_over(each, now)]
        return sorted(live, key=lambda each: (-each.updated, each.id))

    async def get(self, owner: Owner, id: str) -> Memory | None:
        """The memory that has an id, or that one with it was merged into."""
        found = (await self._shelves.current(owner)).find(id)
        return None if found is None or is_over(found, self._clock()) else found

    async def delete(self, owner: Owner, id: str) -> bool:
        """Remove a memory, and what was merged into it; whether there was one."""
        async with self._shelves.changing(owner) as shelf:
            found, change = shelf.find(id), Change(shelf, self._clock())
            if found is not None:
                change.drop(found.id)
                await self._save(owner, shelf, change, {})
        return found is not None

    async def forget(self, owner: Owner) -> int:
        """Remove all memories of an owner; how many there were."""
        async with self._shelves.changing(owner) as shelf:
            await self._shelves.clear(owner)
            await self._vectors.forget(owner)
        return len(shelf.records)

    async def search(
        self, owners: Sequence[Owner], query: str, *, limit: int, wait: float
    ) -> tuple[list[Hit], Literal["meaning", "words"]]:
        """The memories that fit a query best, and by what they were found; those of a user before a tenant's."""
        shelves = [(owner, shelf) for owner in owners if (shelf := await self._shelves.current(owner)).records]
        for owner, shelf in shelves:
            self._vectors.check(owner, shelf.records)
        until = time.monotonic() + wait
        vector = (await self._vectors.of(owners[0].tenant, [query], wait))[0] if shelves else None
        calibration = await self._vectors.calibration(max(0.0, until - time.monotonic())) if vector else None
        scores: list[dict[str, float]] = []
        by_meaning = False
        for owner, shelf in shelves:
            near = await self._vectors.nearest(owner, vector, limit) if vector and calibration else None
            if near is None or calibration is None:
                scores.append(await self._by_words(shelf, query))
                continue
            by_meaning = True
            scores.append({each.id: calibration.score(each.score) for each in near})
            if missing := self._vectors.missing(owner):
                scores[-1] |= await self._by_words(shelf, query, missing)
        hits = self._hits(zip(shelves, scores, strict=True))
        return hits[:limit], "meaning" if by_meaning else "words"

    def _hits(self, found: "zip[tuple[tuple[Owner, Shelf], dict[str, float]]]") -> list[Hit]:
        now = self._clock()
        hits = [
            Hit(memory, score, bool(owner.user))
            for (owner, shelf), scores in found
            for id, score in scores.items()
            if (memory := shelf.records.get(id)) is not None and not is_over(memory, now)
        ]
        return sorted(hits, key=lambda hit: (-hit.score, not hit.is_own, hit.memory.id))

    async def _by_words(self, shelf: Shelf, query: str, ids: frozenset[str] | None = None) -> dict[str, float]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(_scored, shelf, query, ids))

    async def texts(self, owners: Sequence[Owner], ids: Sequence[str]) -> list[str | None]:
        """The texts under these ids, the earlier texts of memories too; None where there is none any more."""
        now, shelves = self._clock(), [await self._shelves.current(owner) for owner in owners]
        found = [next((each for shelf in shelves if (each := shelf.find(id)) is not None), None) for id in ids]
        live = [None if memory is None or is_over(memory, now) else memory for memory in found]
        return [None if memory is None else memory.text_of(id) for id, memory in zip(ids, live, strict=True)]

    async def total(self, owners: Sequence[Owner]) -> int:
        """How many memories there are, with those that are over but have not left yet."""
        return sum([len((await self._shelves.current(owner)).records) for owner in owners])

    async def _save(self, owner: Owner, shelf: Shelf, change: Change, packed: Mapping[str, bytes]) -> None:
        """Write a change, first to the store, then to the index."""
        await self._shelves.save(owner, shelf, change.records, change.touched)
        gone = [id for id in change.touched if id not in change.records and id in shelf.records]
        new = {id: packed[id] for id in change.touched if id in change.records and id in packed}
        await self._vectors.delete(owner, gone)
        await self._vectors.put(owner, new)

    def now(self) -> float:
        """Seconds since 1970."""
        return self._clock()


class BoundMemories:
    """The `Memories` of a request's context: those of its user, and those of its tenant as a whole."""

    __slots__ = ("_owners", "_service")

    def __init__(self, service: MemoryService, tenant: str, user: str) -> None:
        self._service = service
        self._owners = [Owner(tenant, user), Owner(tenant, "")] if user else [Owner(tenant, "")]

    async def total(self) -> int:
        """How many there are; 0 where the store cannot be asked."""
        try:
            return await self._service.total(self._owners)
        except StoreError:
            return 0

    async def nearest(self, query: str, *, limit: int, wait: float) -> Remembered:
        """Those that fit a query best; none where the store cannot be asked."""
        try:
            hits, how = await self._service.search(self._owners, query, limit=limit, wait=wait)
        except StoreError:
            return Remembered((), "words")
        now = self._service.now()
        return Remembered(tuple(_item(hit, now) for hit in hits), how)

    async def texts(self, ids: Sequence[str]) -> Sequence[str | None]:
        """The texts that have these ids, those of earlier texts too; None for what is not there any more."""
        try:
            return await self._service.texts(self._owners, ids)
        except StoreError:
            return [None] * len(ids)


def _item(hit: Hit, now: float) -> RememberedItem:
    each = hit.memory
    return RememberedItem(
        each.id, each.text, each.kind, hit.score, max(0.0, now - each.updated), each.confidence, hit.is_own
    )


def _scored(shelf: Shelf, query: str, ids: frozenset[str] | None) -> dict[str, float]:
    """The scores of the memories that share a word with a query."""
    some = [each for each in shelf.records.values() if ids is None or each.id in ids]
    known: dict[str, list[str]] = {}
    for each in some:
        if each.id not in shelf.words:
            shelf.words[each.id] = counted(each.text, known)
    found = fits(query, [shelf.words[each.id] for each in some])
    return {each.id: WORDS.score(fit.share) for each, fit in zip(some, found, strict=True) if fit.terms}
