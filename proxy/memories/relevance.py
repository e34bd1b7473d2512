"""Score how well memories help with a question: by meaning, by examples, and by words.

A cosine (`proxy.vectors.packing`) counts by how far it lies above those that messages have with the memory which ask
for nothing. What helps is often not near: a dinner is no peanut. So examples tell what helps with which question
(`data/helping.txt`, `data/pairs.txt`): a memory counts that is like what helped with a question like this one.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import cache, partial
from typing import NamedTuple

from proxy.state.cache import Cache
from proxy.text import arrays
from proxy.text.arrays import Array
from proxy.text.bm25 import Fits, Index, index
from proxy.text.tables import lines
from proxy.vectors.embedding import ComparedTexts, EmbeddingService, shared
from proxy.vectors.packing import pairs

_FLOOR, _NEAREST = 0.6, 2
"""The part that counts of the mean of the highest cosines that a memory has with messages that ask for nothing."""
_UNREAD = 0.7
"""A mean of these cosines that only a language has which the model does not know: all of its texts are alike."""
_WORDS = 0.3
"""The score of a memory for having all words of a question, beside its vectors."""
_WARMING = 60.0
_KEPT = 20_000
"""Texts that are kept ready to be compared."""

_BY_WORDS = 0.15, 6.0
"""For the share of a question's words that a memory has, where there are no vectors: 0.29 scores 0.7."""
_NEAR = 0.15, 9.0
"""For the lead of a cosine: between what helps and what does not, of `data/pairs.txt`."""
_LIKE = 0.58, 10.0
"""For the likeness to an example: of messages that ask for nothing, 2 % are as like one with any memory."""


class _Compared(NamedTuple):
    words: Index
    floors: Array | None = None
    """The cosines to messages that ask for nothing, which count against each."""
    examples: Array | None = None
    """The cosines to what helps, of each example."""


class MemoryRelevance:
    """Scores texts for questions. For use on one event loop."""

    def __init__(self, embedding: EmbeddingService | None, threads: Executor) -> None:
        """Without an embedding service texts are compared by their words; `threads` compute."""
        self._embedding, self._threads = embedding, threads
        self._known: Cache[tuple[str, tuple[str, ...]], _Compared] = Cache(_KEPT)

    async def scores(self, tenant: str, question: str, texts: Sequence[str], wait: float) -> tuple[list[float], bool]:
        """Return the scores of texts for a question, after at most `wait` seconds, and True if they are by meaning."""
        key, loop = (tenant, tuple(texts)), asyncio.get_running_loop()
        known = self._known.get(key)
        if known is None:
            known = _Compared(await loop.run_in_executor(self._threads, index, texts))
        near = asked = None
        if self._embedding is not None:
            compare = partial(self._embedding.table, wait=wait, whole=True)
            mine, question_alone = ComparedTexts(tenant, texts), ComparedTexts(tenant, [question], are_queries=True)
            near, asked = await asyncio.gather(
                compare(mine, question_alone), compare(shared(_examples()[0], are_queries=True), question_alone)
            )
            if near is not None and known.floors is None:
                nobody = shared(lines("anybody"), are_queries=True)
                floors, examples = await asyncio.gather(compare(mine, nobody), compare(mine, shared(_examples()[1])))
                known = known._replace(floors=floors, examples=examples)
        self._known.put(key, known, len(texts))
        values = await loop.run_in_executor(self._threads, _scored, question, known, near, asked)
        tables = (near, asked, known.floors, known.examples)
        return values, all(each is not None for each in tables)

    def prepare(self, tenant: str, texts: Sequence[str]) -> None:
        if self._embedding is not None:
            self._embedding.prepare(tenant, texts)

    async def warm(self) -> None:
        """Make the vectors of the examples, so that the first question need not wait for them."""
        if self._embedding is not None:
            asked, helping = _examples()
            every = shared([*asked, *lines("anybody")], are_queries=True)
            await self._embedding.table(every, shared(helping), wait=_WARMING)

    def forget(self, tenant: str) -> None:
        self._known.forget(tenant)


def _scored(question: str, known: _Compared, near: Array | None, asked: Array | None) -> list[float]:
    """Return the scores of memories, by their cosines to a question, and by those that the examples' have to it."""
    numpy, shares = arrays.numpy(), Fits(question, [known.words]).shares
    scores = numpy.where(shares > 0, _curve(shares, *_BY_WORDS), 0.0)
    if near is not None and asked is not None and known.floors is not None and known.examples is not None:
        highest = numpy.sort(known.floors, axis=1)[:, -_NEAREST:].mean(axis=1)
        alike = numpy.sqrt(numpy.maximum(known.examples, 0) * numpy.maximum(asked[:, 0], 0)).max(axis=1)
        by_meaning = (1 - _curve(near[:, 0] - _FLOOR * highest, *_NEAR)) * (1 - _curve(alike, *_LIKE))
        scores = numpy.where(highest < _UNREAD, 1 - by_meaning * (1 - _WORDS * shares), scores)
    return [float(each) for each in scores]


def _curve(figures: Array, middle: float, slope: float) -> Array:
    numpy = arrays.numpy()
    return 1 / (1 + numpy.exp(-numpy.clip(slope * (figures - middle), -40, 40)))


@cache
def _examples() -> tuple[list[str], list[str]]:
    texts = lines("helping")
    return [*(pair.query for pair in pairs()), *texts[::2]], [*(pair.helps for pair in pairs()), *texts[1::2]]
