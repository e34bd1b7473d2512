"""Score how well memories help with a question: by meaning, by examples, and by words.

Models and languages differ in how near two texts are that have nothing to do with each other. So vectors are compared
from where texts lie that people store and ask in any conversation, and a cosine counts by how far it lies above those
that messages have with a memory which ask for nothing. What helps is often not near: a dinner is no peanut. So examples
tell what helps with which question (`data/helping.txt`): a memory counts that is like what helped with a question like
this one. The model is measured on pairs of which it is known whether they belong together (`data/pairs.txt`), so that
0.7 and 0.5 mean the same whatever made the vectors.
"""

import asyncio
import logging
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import Executor
from functools import partial
from math import sqrt
from statistics import fmean, pvariance
from typing import NamedTuple

from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.text import arrays
from proxy.text.arrays import Array
from proxy.text.bm25 import Index, fits, index
from proxy.text.tables import lines
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.packing import dimension
from proxy.vectors.scale import pairs

logger = logging.getLogger("penstock.memories")

_LEAST_GAP = 0.5
"""Standard deviations by which what helps must lie above what does not, or a model says nothing."""
_FLOOR, _NEAREST = 0.75, 2
"""The part that counts of the mean of the highest cosines that a memory has with messages that ask for nothing."""
_UNREAD = 0.75
"""A mean of these cosines that only a language has which the model does not know: all of its texts are alike."""
_CHANCE = 0.98
"""The share of these messages that are less like an example, with any memory, than one that counts half."""
_STEEP = 6.0
_WORDS = 0.3
"""The score of a memory for having all words of a question, beside its vectors."""
_MEASURING = 60.0
_KEPT = 20_000
"""Texts whose vectors are kept unpacked."""


class Curve(NamedTuple):
    """A monotone map from figures to scores from 0 to 1: the logistic curve."""

    middle: float
    """The figure that says as much for as against: 0.5."""
    slope: float

    def of(self, figures: Array) -> Array:
        """Return the scores of figures."""
        numpy = arrays.numpy()
        return 1 / (1 + numpy.exp(-numpy.clip(self.slope * (figures - self.middle), -40, 40)))


WORDS = Curve(0.15, 6.0)
"""For the share of a question's words that a memory has, where there are no vectors: 0.29 scores 0.7."""


def by_words(shares: Array) -> Array:
    """Return the scores of memories by the shares of a question's words that they have."""
    return arrays.numpy().where(shares > 0, WORDS.of(shares), 0.0)


class Compared(NamedTuple):
    """Memories as questions are compared with them: an array each, with a row for a memory."""

    vectors: Array
    floors: Array
    examples: Array
    """The cosines to what helps, of each example."""
    is_read: Array
    """The model tells these memories apart; the others are compared by their words."""


class MeasuredModel(NamedTuple):
    """A model, as it was measured."""

    question: Array
    """The mean vector of questions."""
    memory: Array
    """The mean vector of memories."""
    anybody: Array
    """Messages that ask for nothing."""
    asked: Array
    """The questions of the examples."""
    helping: Array
    """The memory that helps with each."""
    near: Curve
    like: Curve

    def compared(self, packed: Sequence[bytes]) -> Compared:
        """Return memories, by their packed vectors, as questions are compared with them."""
        numpy = arrays.numpy()
        vectors = _unit(_means(packed) - self.memory)
        highest = numpy.sort(vectors @ self.anybody.T, axis=1)[:, -_NEAREST:].mean(axis=1)
        is_read = (highest < _UNREAD) & vectors.any(axis=1)
        return Compared(vectors, _FLOOR * highest, vectors @ self.helping.T, is_read)

    def scores(self, question: bytes, memories: Compared, shares: Array) -> Array:
        """Return the scores of memories for a question; `shares` are the shares of its words that they have."""
        asked = _unit(_means([question]) - self.question)[0]
        near = self.near.of(memories.vectors @ asked - memories.floors)
        like = self.like.of(_likeness(self.asked @ asked, memories.examples))
        return arrays.numpy().where(
            memories.is_read, 1 - (1 - near) * (1 - like) * (1 - _WORDS * shares), by_words(shares)
        )


class MemoryScores(NamedTuple):
    """The scores of memories."""

    values: list[float]
    by_meaning: bool
    is_late: bool
    """Some vectors were not there in time."""


class MemoryRelevance:
    """MemoryScores texts for questions. For use on one event loop."""

    def __init__(
        self, embedding: EmbeddingService | None, threads: Executor, model: MeasuredModel | None = None
    ) -> None:
        """Without an embedding service texts are compared by their words; `threads` compute.

        A `model` is not measured.
        """
        self._embedding, self._threads, self._model = embedding, threads, model
        self._is_measured = model is not None
        self._work = BackgroundWork[Hashable]()
        self._known: Cache[tuple[str, tuple[str, ...]], tuple[list[Index], Compared | None]] = Cache(_KEPT)

    async def scores(self, tenant: str, question: str, texts: Sequence[str], wait: float) -> MemoryScores:
        """Return the scores of a tenant's texts for a question, after at most `wait` seconds for vectors."""
        until, key, loop = time.monotonic() + wait, (tenant, tuple(texts)), asyncio.get_running_loop()
        indexes, compared = self._known.get(key) or (None, None)
        if indexes is None:
            indexes = await loop.run_in_executor(self._threads, lambda: [index([text]) for text in texts])
        model, asked = await self._measured(wait), None
        if self._embedding is not None and model is not None:
            asked = await self._embedding.query(tenant, question, wait=until - time.monotonic()) or None
            if compared is None:
                packed = await self._embedding.vectors(tenant, texts, wait=until - time.monotonic())
                known = [each for each in packed if each is not None]
                if len(known) == len(texts):
                    compared = await loop.run_in_executor(self._threads, model.compared, known)
        by_words_only = self._embedding is None or (self._is_measured and model is None)
        if compared is not None or by_words_only:
            self._known.put(key, (indexes, compared), len(texts))
        work = partial(_scored, question, indexes, model, asked, compared)
        values = await loop.run_in_executor(self._threads, work)
        by_meaning = asked is not None and compared is not None
        return MemoryScores(values, by_meaning, is_late=not by_meaning and not by_words_only)

    def prepare(self, tenant: str, texts: Sequence[str]) -> None:
        """Begin to make the vectors of texts."""
        if self._embedding is not None:
            self._embedding.prepare(tenant, texts)

    async def warm(self) -> None:
        """Measure the model, so that the first question need not wait for it."""
        await self._measured(_MEASURING)

    def forget(self, tenant: str) -> None:
        """Forget a tenant's texts."""
        self._known.forget(tenant)

    async def aclose(self) -> None:
        """Stop measuring."""
        await self._work.aclose()

    async def _measured(self, wait: float) -> MeasuredModel | None:
        """Return the model, once it was measured; None where it is not in time, or tells nothing apart."""
        if self._embedding is not None and not self._is_measured:
            if "model" not in self._work:
                self._work.begin(self._measure(self._embedding), "model")
            await self._work.wait(("model",), wait)
        return self._model

    async def _measure(self, embedding: EmbeddingService) -> None:
        questions = [*(pair.query for pair in pairs()), *_examples()[0], *lines("anybody")]
        memories = [*(pair.helps for pair in pairs()), *(pair.near for pair in pairs()), *_examples()[1]]
        vectors = await embedding.of_shared(questions, memories, wait=_MEASURING)
        if vectors is not None:  # else the model is not there, and the next question tries again
            self._model = await asyncio.to_thread(measured, *vectors)
            self._is_measured = True
            if self._model is None:
                logger.warning("the embedding model does not tell memories apart; they are ranked by words")


def measured(questions: Sequence[bytes], memories: Sequence[bytes]) -> MeasuredModel | None:
    """Return a model by its vectors of the shipped texts; None if it does not tell what helps from what does not.

    The questions are those of the pairs, of the examples, and messages that ask for nothing; the memories those that
    help, those that only look like it, and those of the examples.
    """
    numpy, count, more = arrays.numpy(), len(pairs()), len(_examples()[0])
    asked, stored = _means(questions), _means(memories)
    question, memory = asked.mean(axis=0), stored[: 2 * count].mean(axis=0)
    asked, stored = _unit(asked - question), _unit(stored - memory)
    anybody, helping = asked[count + more :], numpy.concatenate([stored[:count], stored[2 * count :]])
    model = MeasuredModel(question, memory, anybody, asked[: count + more], helping, WORDS, WORDS)
    compared = model.compared(memories[: 2 * count])
    figures = asked[:count] @ compared.vectors.T - compared.floors
    helps, near = figures.diagonal().tolist(), figures.diagonal(count).tolist()
    apart = figures.reshape(count, 2, count)[~numpy.eye(count, dtype=bool)[:, None, :].repeat(2, axis=1)].tolist()
    curve = curve_between(helps, near, apart)
    if curve is None:
        return None
    chance = numpy.array([_likeness(model.asked @ each, compared.examples) for each in anybody])
    middle = max(0.1, float(numpy.quantile(chance, _CHANCE)))
    return model._replace(near=curve, like=Curve(middle, _STEEP / middle))


def curve_between(helping: Sequence[float], *others: Sequence[float]) -> Curve | None:
    """Return the curve between two normal distributions; each group of `others` counts the same.

    None where they do not tell what helps from what does not.
    """
    if min(len(helping), *map(len, others)) < 2:
        return None
    lows = [fmean(group) for group in others]
    high, low = fmean(helping), fmean(lows)
    # of a mixture: the variance of the groups in themselves, and among each other
    spread = (pvariance(helping) + fmean(map(pvariance, others)) + pvariance(lows)) / 2 + 1e-6
    if (high - low) / sqrt(spread) < _LEAST_GAP:
        return None
    return Curve((high + low) / 2, (high - low) / spread)


def _scored(
    question: str, indexes: Sequence[Index], model: MeasuredModel | None, asked: bytes | None, memories: Compared | None
) -> list[float]:
    shares = fits(question, indexes).shares
    if model is None or asked is None or memories is None:
        scores: list[float] = by_words(shares).tolist()
    else:
        scores = model.scores(asked, memories, shares).tolist()
    return scores


def _likeness(asked: Array, examples: Array) -> Array:
    """Return how much memories are like what helped with questions like this one."""
    numpy = arrays.numpy()
    return numpy.sqrt(numpy.maximum(examples, 0) * numpy.maximum(asked, 0)).max(axis=1)


def _examples() -> tuple[list[str], list[str]]:
    """Return questions, and the memory that helps with each."""
    texts = lines("helping")
    return texts[::2], texts[1::2]


def _means(packed: Sequence[bytes]) -> Array:
    """Return the mean vector of each text; zeros for a text without one."""
    numpy = arrays.numpy()
    width = max(map(dimension, packed), default=0)
    means = numpy.zeros((len(packed), width), "f4")
    for place, each in enumerate(packed):
        if dimension(each) == width:
            means[place] = numpy.frombuffer(each[1:], "<f2").reshape(-1, width).mean(axis=0, dtype="f4")
    return means


def _unit(vectors: Array) -> Array:
    numpy = arrays.numpy()
    return vectors / numpy.maximum(numpy.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
