"""Vectors as bytes, and how near they are.

A text has one vector, or several if it is longer than the model reads at once. Packed, that is a byte with their
number, then each as half-precision numbers of unit length: 769 bytes for one of MiniLM's. Half precision moves a cosine
by less than 0.001.
"""

import struct
from collections.abc import Sequence
from math import isnan, nan
from typing import Any

from proxy.text import arrays
from proxy.text.arrays import Array

MOST = 255
"""Vectors that one text may have."""


def dimension(packed: bytes) -> int:
    """Return the numbers in each vector; 0 for bytes that are no packed vectors."""
    each, left = divmod(len(packed) - 1, 2 * packed[0]) if packed[:1] > b"\0" else (0, 0)
    return 0 if left else each


def rows(packed: bytes) -> list[list[float]]:
    """Return the vectors; none for bytes that are no packed vectors."""
    width = dimension(packed)
    if not width:
        return []
    numbers = struct.unpack(f"<{packed[0] * width}e", packed[1:])
    return [list(numbers[start : start + width]) for start in range(0, len(numbers), width)]


def joined(vectors: Sequence[Sequence[float]]) -> bytes:
    """Return vectors of one dimension and of unit length as bytes."""
    numbers = [number for each in vectors for number in each]
    return bytes([len(vectors)]) + struct.pack(f"<{len(numbers)}e", *numbers)


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
    packed: bytes = (rows / lengths).astype("<f2").tobytes()
    return bytes([len(rows)]) + packed


def similarities(query: bytes, texts: Sequence[bytes | None]) -> list[float | None]:
    """Return the cosine of each text's nearest vector to the query's; None without vectors of its dimension.

    The nearest, not the mean: a passage is about what one of its parts is about.
    """
    return Stack(texts, dimension(query)).similarities(query)


class Stack:
    """The vectors of texts, unpacked for one query after another."""

    def __init__(self, texts: Sequence[bytes | None], width: int) -> None:
        """Unpack the vectors; texts whose vectors have another dimension than `width` count as those without any."""
        self._count, self._width, self._rows = len(texts), width, None
        places = [place for place, text in enumerate(texts) if text and width and dimension(text) == width]
        self.holds = len(places)
        """The number of texts that have vectors in it."""
        if not places:
            return
        numpy = arrays.numpy()
        chosen = [texts[place] or b"" for place in places]
        self._places = numpy.array(places)
        self._rows = numpy.frombuffer(b"".join(text[1:] for text in chosen), "<f2").astype("f4").reshape(-1, width)
        self._starts = numpy.cumsum([0, *(text[0] for text in chosen[:-1])])

    @property
    def size(self) -> int:
        return 0 if self._rows is None else int(self._rows.nbytes) + 16 * self.holds

    def fits(self, query: bytes) -> bool:
        """Return whether a query's vectors have the dimension of the texts'."""
        return dimension(query) == self._width

    def cosines(self, query: bytes) -> Array:
        """Return the cosine of each text's nearest vector to the query's; not a number for texts without one."""
        numpy = arrays.numpy()
        found = numpy.full(self._count, nan)
        if self._rows is not None and self.fits(query):
            asked = numpy.frombuffer(query[1:], "<f2").astype("f4").reshape(-1, self._width)
            near = (self._rows @ asked.T).max(axis=1)
            found[self._places] = numpy.maximum.reduceat(near, self._starts).clip(-1.0, 1.0)
        return found

    def nearest(self, queries: Sequence[bytes | None]) -> Array:
        """Return the cosine of each query's nearest text; not a number for queries without a vector."""
        numpy = arrays.numpy()
        found = numpy.full(len(queries), nan)
        asked = {place: query for place, query in enumerate(queries) if query and self.fits(query)}
        if self._rows is not None and asked:
            first = numpy.array([numpy.frombuffer(query[1:], "<f2")[: self._width] for query in asked.values()], "f4")
            found[list(asked)] = (self._rows @ first.T).max(axis=0).clip(-1.0, 1.0)
        return found

    def table(self, others: "Stack") -> Array:
        """Return a row for each text: the cosines of its nearest vector to the first ones of the other texts."""
        numpy = arrays.numpy()
        if self._rows is None or others._rows is None:
            return numpy.full((self._count, 1), nan)
        return numpy.maximum.reduceat(self._rows @ others._rows[others._starts].T, self._starts)

    def similarities(self, query: bytes) -> list[float | None]:
        """Return the cosines, as `listed`."""
        return listed(self.cosines(query))


def listed(cosines: Array) -> list[float | None]:
    """Return cosines as a list; None for what is not a number."""
    return [None if isnan(each) else each for each in cosines.tolist()]
