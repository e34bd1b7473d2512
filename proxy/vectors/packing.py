"""Vectors as bytes, how near they are, and on what scale.

A text has one vector, or several if it is longer than the model reads at once. Packed, that is a byte with their
number, then each as half-precision numbers of unit length: 769 bytes for one of MiniLM's. Half precision moves a cosine
by less than 0.001.

Models differ: two texts that have nothing to do with each other are at 0.04 for one, at 0.75 for another. So a model is
measured on pairs of texts of which it is known whether they belong together (`data/pairs.txt`), and its cosines are
moved to where those of all-MiniLM-L6-v2 lie: the limits of relevance were found with that.
"""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from math import isnan, nan
from typing import Any, NamedTuple

from proxy.text import arrays
from proxy.text.arrays import Array
from proxy.text.tables import sections

MOST = 255


def dimension(packed: bytes) -> int:
    """Return the numbers in each vector; 0 for bytes that are no packed vectors."""
    each, left = divmod(len(packed) - 1, 2 * packed[0]) if packed[:1] > b"\0" else (0, 0)
    return 0 if left else each


def rows(packed: bytes) -> list[list[float]]:
    """Return the vectors; none for bytes that are no packed vectors."""
    width = dimension(packed)
    vectors: list[list[float]] = (
        arrays.numpy().frombuffer(packed[1:], "<f2").reshape(-1, width).tolist() if width else []
    )
    return vectors


def joined(vectors: Any) -> bytes:
    """Return the rows of a matrix, which are of unit length, as bytes."""
    rows = arrays.numpy().asarray(vectors, "<f2")
    return bytes([len(rows)]) + bytes(rows.tobytes())


def pack(vectors: Any) -> bytes:
    """Return the rows of a matrix as bytes. Raise `ValueError` for anything else."""
    numpy = arrays.numpy()
    try:
        rows = numpy.asarray(vectors, dtype=numpy.float32)
    except TypeError as error:
        raise ValueError("a vector is a list of numbers") from error
    if rows.ndim != 2 or not 1 <= len(rows) <= MOST or not rows.shape[1]:
        raise ValueError("vectors of one text are the rows of a matrix")
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    if not numpy.isfinite(lengths).all() or not lengths.all():
        raise ValueError("a vector has a length")
    return joined(rows / lengths)


class Stack:
    """The vectors of texts, unpacked to be compared with others."""

    def __init__(self, texts: Sequence[bytes | None]) -> None:
        """Unpack the vectors; texts whose vectors have another dimension than the first count as those without any."""
        numpy, width = arrays.numpy(), next(filter(None, map(dimension, filter(None, texts))), 0)
        places = [place for place, text in enumerate(texts) if width and text and dimension(text) == width]
        chosen = [texts[place] or b"" for place in places]
        self._places = numpy.array(places, int)
        joined = b"".join([text[1:] for text in chosen])
        self._count, self._rows = len(texts), numpy.frombuffer(joined, "<f2").astype("f4").reshape(-1, width or 1)
        self._starts = [0, *accumulate([text[0] for text in chosen[:-1]])] if chosen else []
        self.is_whole = None not in texts
        """True if every text has been looked at, also one that can have no vector."""

    @property
    def is_empty(self) -> bool:
        return not self._starts

    @property
    def size(self) -> int:
        return int(self._rows.nbytes) + 16 * len(self._places)

    def table(self, others: "Stack") -> Array:
        """Return for each text the cosines of its nearest vector to the others'; nan without vectors."""
        numpy, shape = arrays.numpy(), (self._count, others._count)
        if self.is_empty or others.is_empty or self._rows.shape[1] != others._rows.shape[1]:
            return numpy.full(shape, nan)
        near = self._rows @ others._rows.T
        if len(self._starts) < len(self._rows):
            near = numpy.maximum.reduceat(near, self._starts, axis=0)
        if len(others._starts) < len(others._rows):
            near = numpy.maximum.reduceat(near, others._starts, axis=1)
        near = near.clip(-1.0, 1.0).astype(float)
        if near.shape == shape:
            return near
        found, columns = numpy.full(shape, nan), numpy.full((len(near), others._count), nan)
        columns[:, others._places] = near
        found[self._places] = columns
        return found


def listed(cosines: Array) -> list[float | None]:
    """Return cosines as a list; None for what is not a number."""
    return [None if isnan(each) else each for each in cosines.tolist()]


_LEAST_GAP = 0.02
"""By how much what helps must be nearer to a question than what does not."""


class Scale(NamedTuple):
    """The range of a model's cosines."""

    unrelated: float
    """Of a question and what helps with another one, on average."""
    related: float
    """Of a question and what helps with it."""

    def of(self, cosines: Array) -> Array:
        """Return what the reference would say of each: straight lines between -1, both averages, and 1."""
        if self == REFERENCE:
            return cosines
        return arrays.numpy().interp(cosines, (-1.0, *self, 1.0), (-1.0, *REFERENCE, 1.0))


REFERENCE = Scale(0.042, 0.355)
"""all-MiniLM-L6-v2, on the English pairs."""


def measured(queries: Sequence[bytes | None], helping: Sequence[bytes | None]) -> Scale | None:
    """Return the scale of a model by its vectors of questions and of the texts that help; None if both are alike."""
    cosines, count = Stack(helping).table(Stack(queries)), len(queries)
    related = float(cosines.diagonal().mean())
    scale = Scale(float((cosines.mean() * count - related) / (count - 1)), related)
    return scale if -1 < scale.unrelated < scale.related - _LEAST_GAP < 1 - _LEAST_GAP else None


class Pair(NamedTuple):
    """A question with two memories."""

    query: str
    helps: str
    near: str
    """About something like it, but of no use for the question."""


@cache
def pairs() -> tuple[Pair, ...]:
    """Return all of `data/pairs.txt`, those of the first language first."""
    return tuple(pair for part in sections("pairs") for pair in of_language(part))


def of_language(name: str) -> tuple[Pair, ...]:
    """Return those of one language."""
    lines = sections("pairs")[name]
    return tuple(Pair(*lines[start : start + 3]) for start in range(0, len(lines), 3))
