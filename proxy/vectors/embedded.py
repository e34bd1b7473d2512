"""The index of one machine: a table that all its processes share, and a search in each of them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import time

from proxy.vectors.base import Near, Point, Scope
from proxy.vectors.local_search import Search
from proxy.vectors.points import BUSY, Bounds, Points


class Embedded:
    """Keeps points in a directory, or without one in memory. Blocking; any thread may call."""

    needs_library = False

    def __init__(
        self, directory: Path | None, bounds: Bounds, *, busy: float = BUSY, clock: Callable[[], float] = time
    ) -> None:
        """Nothing is opened or imported before it is needed. `clock` is all processes' own; both are in seconds."""
        self._points = Points(directory, bounds, clock=clock, busy=busy)
        self._search = Search(self._points)

    @property
    def repaired(self) -> int:
        return self._points.repaired

    def warm(self) -> None:
        self._search.warm()

    def look(self) -> None:
        """There is no server."""

    def put(self, scope: Scope, points: Sequence[Point]) -> None:
        self._points.put(scope, points)

    def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        return self._points.vectors(scope, ids)

    def known(self, scope: Scope, ids: Sequence[str]) -> frozenset[str]:
        return self._points.known(scope, ids)

    def size(self, scope: Scope) -> int:
        return self._points.size(scope)

    def nearest(self, scope: Scope, vector: bytes, limit: int, least: float) -> list[Near]:
        return self._search.nearest(scope, vector, limit, least)

    def delete(self, scope: Scope, ids: Sequence[str]) -> None:
        self._points.delete(scope, ids)

    def forget(self, scope: Scope) -> None:
        self._points.forget(scope)

    def forget_tenant(self, tenant: str) -> None:
        self._points.forget_tenant(tenant)

    def close(self) -> None:
        self._search.close()
        self._points.close()
