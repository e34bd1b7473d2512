"""Points and scopes for tests, and an index in a process of its own."""

import math
import random
import sys

from proxy.vectors.base import Point, Scope
from proxy.vectors.packed import joined
from proxy.vectors.points import IndexBounds

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
    return [
        Point(f"{name}{n}", vector(*(chance.gauss(0, 1) for _ in range(width))), {"n": n, "text": f"text {n}"})
        for n in range(count)
    ]


def process(directory: str, name: str, count: int, at_once: int) -> None:
    """Put points, some at once, and say so after each put."""
    from pathlib import Path

    from proxy.vectors.embedded import Embedded

    index = Embedded(Path(directory), IndexBounds(10**6, 10**6, 3600.0))
    made = points(count, name=name)
    for start in range(0, count, at_once):
        index.put(T, made[start : start + at_once])
        print(start + at_once, flush=True)
    index.close()


if __name__ == "__main__":
    process(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
