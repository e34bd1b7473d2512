"""Points and scopes for tests."""

import math
import random

from proxy.vectors.base import IndexBounds, Point, Scope
from proxy.vectors.packing import joined

BOUNDS = IndexBounds(10_000, 10_000, 3600.0)
T = Scope("tenant", "texts", "model-1")


def vector(*numbers: float) -> bytes:
    """One packed vector of unit length."""
    length = math.hypot(*numbers)
    return joined([[number / length for number in numbers]])


def vectors(*rows: tuple[float, ...]) -> bytes:
    """Several."""
    return joined([[number / math.hypot(*row) for number in row] for row in rows])


def points(count: int, seed: int = 0, width: int = 8, name: str = "p") -> list[Point]:
    """Points in all directions."""
    chance = random.Random(seed)
    return [Point(f"{name}{n}", vector(*(chance.gauss(0, 1) for _ in range(width)))) for n in range(count)]
