"""Which memories fit a query: by their vectors where there are any, else by their words."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Literal, NamedTuple

from proxy.memories import Memory, Owner, is_over
from proxy.memories.calibration import WORDS, ScoreCurve
from proxy.memories.shelves import Shelf
from proxy.memories.vectors import MemoryVectors
from proxy.text.bm25 import Index, fits, index
from proxy.vectors.base import Near

How = Literal["meaning", "words"]


class Hit(NamedTuple):
    """A memory that was found."""

    memory: Memory
    score: float
    """How well it fits, from 0 to 1 (`proxy.memories.calibration`)."""
    is_own: bool
    """Whether it is the user's, and not the tenant's as a whole."""


class MemorySearch:
    """Ranks the memories of owners, those of each scope by themselves. For use on one event loop."""

    def __init__(self, vectors: MemoryVectors, threads: Executor) -> None:
        """`threads` rank by words."""
        self._vectors, self._threads = vectors, threads

    async def hits(
        self, shelves: Sequence[tuple[Owner, Shelf]], query: str, *, limit: int, wait: float, now: float
    ) -> tuple[list[Hit], How]:
        """At least `limit` of those that fit best, if there are so many, and by what they were found.

        `wait` is in seconds for the query's vector, `now` in seconds since 1970.
        """
        some = [
            (each, shelf, found)
            for owner, shelf in shelves
            for each in shelf.owners(owner)
            if (found := shelf.of(each.scope))
        ]
        for owner, _, records in some:
            self._vectors.check(owner, records)
        until = time.monotonic() + wait
        vector = await self._vectors.of_question(some[0][0].tenant, query, wait) if some else None
        calibration = await self._vectors.calibration(max(0.0, until - time.monotonic())) if vector else None
        hits: list[Hit] = []
        by_meaning = False
        for owner, shelf, records in some:
            missing = self._vectors.missing(owner)  # asked first: what is put meanwhile would be found by neither
            near = await self._vectors.nearest(owner, vector, limit) if vector and calibration else None
            if near is None or vector is None or calibration is None:
                scores = await self._by_words(shelf.words, records.values(), query)
            else:
                by_meaning = True
                scores = await self._by_both(shelf.words, records, near, query, vector, calibration)
                # with fewer than there are, the index was not compared with the memories yet
                unknown = records.keys() if len(near) < min(limit, len(records)) else missing
                rest = [each for each in records.values() if each.id in unknown and each.id not in scores]
                scores |= await self._by_words(shelf.words, rest, query) if rest else {}
            hits += _hits(records, scores, now, is_own=bool(owner.user))
        return sorted(hits, key=lambda hit: (-hit.score, not hit.is_own, hit.memory.id)), (
            "meaning" if by_meaning else "words"
        )

    async def _by_both(
        self,
        words: dict[str, Index],
        records: Mapping[str, Memory],
        near: Sequence[Near],
        query: str,
        vector: bytes,
        calibration: ScoreCurve,
    ) -> dict[str, float]:
        there = [each for each in near if each.id in records]
        work = partial(_shares, words, [records[each.id] for each in there], query)
        shares = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        figures = calibration.figures(vector, [each.score for each in there], shares)
        return {each.id: calibration.score(figure) for each, figure in zip(there, figures, strict=True)}

    async def _by_words(self, words: dict[str, Index], some: Iterable[Memory], query: str) -> dict[str, float]:
        work = partial(_scored, words, list(some), query)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _hits(records: Mapping[str, Memory], scores: Mapping[str, float], now: float, *, is_own: bool) -> list[Hit]:
    """What still is there of what was found."""
    found = ((records.get(id), score) for id, score in scores.items())
    return [Hit(each, score, is_own) for each, score in found if each is not None and not is_over(each, now)]


def _scored(words: dict[str, Index], some: Sequence[Memory], query: str) -> dict[str, float]:
    """The scores of the memories that share a word with a query; what is counted of texts is put to `words`."""
    shares = _shares(words, some, query)
    return {each.id: WORDS.score(share) for each, share in zip(some, shares, strict=True) if share}


def _shares(words: dict[str, Index], some: Sequence[Memory], query: str) -> list[float]:
    for each in some:
        if each.id not in words:
            words[each.id] = index([each.text])
    shares: list[float] = fits(query, [words[each.id] for each in some]).shares.tolist()
    return shares
