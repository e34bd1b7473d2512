"""The vectors of memories: made of their texts, kept in the index, and put there again where they are missing.

The records count. What the index has without one is passed over and removed; what it lacks is made again in the
background, and ranked by its words meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from proxy.memories import Memory, Owner
from proxy.memories.calibration import ScoreCurve, calibrated, figure, unrelated
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.text.bm25 import fits, index
from proxy.vectors import packing as vectors
from proxy.vectors.base import IndexFailed, Near, Point, Scope
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.index import IndexService
from proxy.vectors.scale import pairs

logger = logging.getLogger("penstock.memories")

KIND = "memories"
"""The kind of scope in the index."""
_CALIBRATION = Owner("penstock: calibration", "")
"""The work that measures the model."""
_AT_ONCE = 256
_READ = 2000
_CHECKED = 60.0
"""Seconds for which the index is trusted to have all, unless it failed meanwhile."""
_MAKING = 60.0


class MemoryVectors:
    """The vectors of one model. Nothing here raises for what the index or the model cannot do. For one event loop."""

    def __init__(
        self,
        embedding: EmbeddingService | None,
        index: IndexService | None,
        *,
        known: ScoreCurve | None = None,
    ) -> None:
        """Without an embedding service or an index, everything is ranked by words.

        A calibration that is `known` is not measured.
        """
        self._known = known
        self._is_measured = known is not None
        self._both = None if embedding is None or index is None else (embedding, index)
        self._checked: Cache[Owner, Mapping[str, Memory]] = Cache(1000, age=_CHECKED)
        self._work = BackgroundWork[Owner]()
        self._missing: dict[Owner, frozenset[str]] = {}

    async def of(self, tenant: str, texts: Sequence[str], wait: float) -> Sequence[bytes | None]:
        """The packed vectors of memories after at most so many seconds; none where there is no model."""
        if self._both is None:
            return [None] * len(texts)
        return await self._both[0].vectors(tenant, texts, wait=wait)

    async def of_question(self, tenant: str, text: str, wait: float) -> bytes | None:
        """The packed vector of what is searched for; None where there is none in time, or no model."""
        return None if self._both is None else await self._both[0].query(tenant, text, wait=wait)

    async def calibration(self, wait: float) -> ScoreCurve | None:
        """The model's, once it was measured; None where it is not within so many seconds, or tells nothing apart."""
        if self._both is not None and not self._is_measured:
            if _CALIBRATION not in self._work:
                self._work.begin(self._measure(self._both[0]), _CALIBRATION)
            await self._work.wait((_CALIBRATION,), wait)
        return self._known

    async def nearest(self, owner: Owner, vector: bytes, limit: int) -> list[Near] | None:
        """The memories nearest to a vector; None where the index cannot be asked."""
        if self._both is None:
            return None
        embedding, index = self._both
        try:
            return await index.nearest(_scope(owner, embedding), vector, limit=limit)
        except IndexFailed:
            self._checked.pop(owner)
            return None

    async def kept(self, owner: Owner, ids: Sequence[str]) -> list[bytes | None]:
        """The vectors of memories, as far as the index has them."""
        found: list[bytes | None] = []
        if self._both is None:
            return [None] * len(ids)
        embedding, index = self._both
        try:
            for start in range(0, len(ids), _READ):
                found += await index.vectors(_scope(owner, embedding), ids[start : start + _READ])
        except IndexFailed:
            return [None] * len(ids)
        return found

    async def put(self, owner: Owner, made: Mapping[str, bytes]) -> None:
        """Keep the vectors of memories, by their ids."""
        await self._do(owner, lambda index, scope: index.put(scope, [Point(*pair) for pair in made.items()]))

    async def delete(self, owner: Owner, ids: Sequence[str]) -> None:
        await self._do(owner, lambda index, scope: index.delete(scope, ids))

    async def forget(self, owner: Owner) -> None:
        """Remove the vectors of all memories of an owner."""
        await self._do(owner, lambda index, scope: index.forget(scope))

    def missing(self, owner: Owner) -> frozenset[str]:
        """The memories that are known to have no vector in the index yet."""
        return self._missing.get(owner, frozenset())

    def check(self, owner: Owner, records: Mapping[str, Memory]) -> None:
        """See to it that the index has the vectors of these memories; returns at once."""
        if self._both is None or owner in self._work or self._checked.get(owner) is records:
            return
        self._checked.put(owner, records)
        self._work.begin(self._repaired(owner, records, *self._both), owner)

    def forget_read(self, tenant: str) -> None:
        """Forget what was compared with the index for a tenant, and repair no more of it."""
        self._work.forget(tenant)
        self._checked.forget(tenant)

    async def settled(self) -> None:
        """Wait until nothing is being repaired; for tests and measurements."""
        await self._work.drain()

    async def aclose(self) -> None:
        await self._work.aclose()

    async def _do(self, owner: Owner, work: Callable[[IndexService, Scope], Coroutine[Any, Any, None]]) -> None:
        if self._both is None:
            return
        embedding, index = self._both
        try:
            await work(index, _scope(owner, embedding))
        except IndexFailed:  # it says so itself; the next check repairs it
            self._checked.pop(owner)

    async def _repair(
        self, owner: Owner, records: Mapping[str, Memory], embedding: EmbeddingService, index: IndexService
    ) -> None:
        """Put what is missing; where the index has more than there is, begin anew."""
        scope, ids = _scope(owner, embedding), list(records)
        try:
            size = await index.size(scope)
            if size == len(ids):
                return
            missing = set(ids) - await index.known(scope, ids)
            if size > len(ids) - len(missing):
                await index.forget(scope)
                missing = set(ids)
            lacking = [id for id in ids if id in missing]
            for start in range(0, len(lacking), _AT_ONCE):
                some = lacking[start : start + _AT_ONCE]
                self._missing[owner] = frozenset(lacking[start:])
                made = await self.of(owner.tenant, [records[id].text for id in some], _MAKING)
                await index.put(scope, [Point(id, each) for id, each in zip(some, made, strict=True) if each])
        except IndexFailed:
            self._checked.pop(owner)

    async def _repaired(
        self, owner: Owner, records: Mapping[str, Memory], embedding: EmbeddingService, index: IndexService
    ) -> None:
        try:
            await self._repair(owner, records, embedding, index)
        except Exception as error:  # no request waits for it
            logger.error("vectors of memories could not be repaired", extra={"fields": {"error": type(error).__name__}})
        finally:
            self._missing.pop(owner, None)

    async def _measure(self, embedding: EmbeddingService) -> None:
        made = await embedding.of_pairs(pairs(), wait=_MAKING)
        if made is not None:  # else the model is not there, and the next question tries again
            self._known = await asyncio.to_thread(_calibration, *made)
            self._is_measured = True


def _scope(owner: Owner, embedding: EmbeddingService) -> Scope:
    return Scope(owner.tenant, KIND, embedding.version, "/".join(filter(None, (owner.part, owner.scope))))


def _calibration(queries: Sequence[bytes], memories: Sequence[bytes]) -> ScoreCurve | None:
    words = index(text for pair in pairs() for text in (pair.helps, pair.near))
    groups: tuple[list[tuple[float, float]], ...] = ([], [], [])  # what helps, what is near it, all others
    for place, (pair, query) in enumerate(zip(pairs(), queries, strict=True)):
        found = [each or 0.0 for each in vectors.similarities(query, memories)]
        base = unrelated([*found[: 2 * place], *found[2 * place + 2 :]])
        shares = fits(pair.query, [words]).shares.tolist()
        for at, (cosine, share) in enumerate(zip(found, shares, strict=True)):
            group = groups[2 if at // 2 != place else at % 2]
            group.append((cosine, figure(cosine, base, share)))
    calibration = calibrated(*([said for _, said in group] for group in groups))
    if calibrated(*([cosine for cosine, _ in group] for group in groups)) is None:
        calibration = None  # words alone told them apart
    if calibration is None:
        logger.warning("the embedding model does not tell memories apart; they are ranked by words")
    return None if calibration is None else calibration._replace(others=tuple(memories))
