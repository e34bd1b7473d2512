"""The scale of a model's cosines, in those of the model that the limits of relevance were found with. Pure.

Models differ: two texts that have nothing to do with each other are at 0.04 for one, at 0.75 for another. So a model is
measured on pairs of texts of which it is known whether they belong together (`data/pairs.txt`), and its cosines are
moved to where those of all-MiniLM-L6-v2 lie.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from proxy.text import arrays
from proxy.text.arrays import Array
from proxy.text.tables import sections
from proxy.vectors.packing import Stack

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
