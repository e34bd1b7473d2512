"""The index of one machine: a table that all its processes share, and a search in each of them."""

from collections import OrderedDict
from collections.abc import Callable
from heapq import nlargest
from pathlib import Path
from threading import Lock
from time import time
from typing import NamedTuple

from proxy.vectors.base import Near, Scope
from proxy.vectors.packing import Stack, dimension
from proxy.vectors.points import BUSY, IndexBounds, Points

LOADED = 200 * 2**20
"""Bytes of vectors that may be in memory, of all scopes. The scope that was asked longest ago leaves."""


class _Loaded(NamedTuple):
    """The points of a scope and dimension in memory."""

    mark: tuple[int, int]
    ids: list[str]
    stack: Stack


class Embedded(Points):
    """Keeps points in a directory, or without one in memory. Blocking; any thread may call."""

    needs_library = False
    """Whether nothing works before `warm`: importing takes a second, which is not the server's fault."""

    def __init__(
        self,
        directory: Path | None,
        bounds: IndexBounds,
        *,
        busy: float = BUSY,
        clock: Callable[[], float] = time,
        loaded: int = LOADED,
    ) -> None:
        """Nothing is opened or imported before it is needed. `clock` is all processes' own; both are in seconds."""
        super().__init__(directory, bounds, clock=clock, busy=busy)
        self._most = loaded
        self._searching = Lock()
        self._scopes: OrderedDict[tuple[bytes, int], _Loaded] = OrderedDict()

    def warm(self) -> None:
        """There is no library to load."""

    def look(self) -> None:
        """There is no server."""

    def nearest(self, scope: Scope, vector: bytes, limit: int) -> list[Near]:
        """Return the nearest points: by the nearest of a point's vectors to any of those asked."""
        width = dimension(vector)
        if not width or limit < 1:
            return []
        with self._searching:
            loaded = self._current(scope, width)
        found = zip(loaded.stack.similarities(vector), loaded.ids, strict=True)
        scores = {id: score for score, id in found if score is not None}
        order = nlargest(limit, scores, key=lambda id: (scores[id], id))
        return [Near(id, scores[id]) for id in order]

    def _current(self, scope: Scope, width: int) -> _Loaded:
        """Return the points as the table has them now; they are read again where any was put or removed since."""
        key, mark = (scope.digest, width), self.mark(scope, width)
        loaded = self._scopes.pop(key, None)
        if loaded is None or loaded.mark != mark:
            rows = self.all(scope, width)
            loaded = _Loaded(mark, [id for id, _ in rows], Stack([packed for _, packed in rows], width))
        self._scopes[key] = loaded
        while len(self._scopes) > 1 and sum(each.stack.size for each in self._scopes.values()) > self._most:
            self._scopes.popitem(last=False)
        return loaded
