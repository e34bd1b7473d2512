"""Points and scopes for tests."""

import random
from collections.abc import Sequence
from pathlib import Path

from proxy.vectors.base import Scope
from proxy.vectors.embedded import Embedded
from proxy.vectors.packing import Stack, listed, pack

T = Scope("tenant", "model-1")


def vector(*numbers: float) -> bytes:
    """One packed vector of unit length."""
    return pack([numbers])


def vectors(*rows: tuple[float, ...]) -> bytes:
    """Several."""
    return pack(rows)


def similarities(query: bytes, texts: Sequence[bytes | None]) -> list[float | None]:
    """The cosine of each text to a query."""
    return listed(Stack(texts).table(Stack([query]))[:, 0])


def points(count: int, seed: int = 0, width: int = 8, name: str = "p") -> dict[str, bytes]:
    """Points in all directions."""
    chance = random.Random(seed)
    return {f"{name}{n}": vector(*(chance.gauss(0, 1) for _ in range(width))) for n in range(count)}


def embedded(folder: Path) -> Embedded:
    """An index in a directory, with room for all that a test puts into it."""
    return Embedded(folder, 2**26, ttl=3600.0, busy=0.05)
