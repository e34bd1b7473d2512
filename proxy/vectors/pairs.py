"""What people ask, what of their memories helps with it, and what is near it but does not: to measure a model by."""

from functools import cache
from typing import NamedTuple

from proxy.text.tables import sections


class Pair(NamedTuple):
    """A question with two memories."""

    query: str
    helps: str
    near: str
    """About something like it, but of no use for the question."""


@cache
def pairs() -> tuple[Pair, ...]:
    """All of `data/pairs.txt`, those of the first language first."""
    return tuple(pair for part in sections("pairs") for pair in of_language(part))


def of_language(name: str) -> tuple[Pair, ...]:
    """Those of one language."""
    lines = sections("pairs")[name]
    return tuple(Pair(*lines[start : start + 3]) for start in range(0, len(lines), 3))
