"""The index of one machine: a table that all its processes share, and a search in each of them."""

from collections.abc import Callable
from pathlib import Path
from time import time

from proxy.vectors.base import Near, Scope
from proxy.vectors.local_search import Search
from proxy.vectors.points import BUSY, Bounds, Points


class Embedded(Points):
    """Keeps points in a directory, or without one in memory. Blocking; any thread may call."""

    needs_library = False

    def __init__(
        self, directory: Path | None, bounds: Bounds, *, busy: float = BUSY, clock: Callable[[], float] = time
    ) -> None:
        """Nothing is opened or imported before it is needed. `clock` is all processes' own; both are in seconds."""
        super().__init__(directory, bounds, clock=clock, busy=busy)
        self._search = Search(self)

    def warm(self) -> None:
        self._search.warm()

    def look(self) -> None:
        """There is no server."""

    def nearest(self, scope: Scope, vector: bytes, limit: int, least: float) -> list[Near]:
        return self._search.nearest(scope, vector, limit, least)

    def close(self) -> None:
        self._search.close()
        super().close()
