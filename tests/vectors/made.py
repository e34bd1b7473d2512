"""Points and scopes for tests."""

import math
import random
from pathlib import Path

from proxy.vectors.base import Point, Scope
from proxy.vectors.embedded import Embedded
from proxy.vectors.packing import joined

T = Scope("tenant", "model-1")


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


def embedded(folder: Path) -> Embedded:
    """An index in a directory, with room for all that a test puts into it."""
    return Embedded(folder, 2**26, ttl=3600.0, busy=0.05)
