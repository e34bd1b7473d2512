"""Packed vectors, as `proxy.vectors.packing` makes them, without numpy.

A byte with their number, then each as half-precision numbers of unit length, little-endian.
"""

from collections.abc import Sequence
from struct import error, pack, unpack


def dimension(packed: bytes) -> int:
    """The numbers in each vector; 0 for bytes that are no packed vectors."""
    each, left = divmod(len(packed) - 1, 2 * packed[0]) if packed[:1] > b"\0" else (0, 0)
    return 0 if left else each


def rows(packed: bytes) -> list[list[float]]:
    """The vectors; none for bytes that are no packed vectors."""
    width = dimension(packed)
    if not width:
        return []
    numbers = unpack(f"<{packed[0] * width}e", packed[1:])
    return [list(numbers[start : start + width]) for start in range(0, len(numbers), width)]


def joined(vectors: Sequence[Sequence[float]]) -> bytes:
    """Vectors of one dimension and unit length as bytes. Raises `ValueError` for what is none."""
    width = len(vectors[0]) if vectors else 0
    if not 1 <= len(vectors) <= 255 or not width or any(len(each) != width for each in vectors):
        raise ValueError("vectors of one text are the rows of a matrix")
    try:
        return bytes([len(vectors)]) + pack(f"<{len(vectors) * width}e", *(x for each in vectors for x in each))
    except (error, OverflowError, TypeError) as wrong:
        raise ValueError("a vector is a list of numbers") from wrong
