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
        """How often a broken file was set aside, and a new one begun."""
        return self._points.repaired

    def warm(self) -> None:
        """Import what a search needs."""
        self._search.warm()

    def look(self) -> None:
        """There is no server."""

    def put(self, scope: Scope, points: Sequence[Point]) -> None:
        """Keep points, in one transaction."""
        self._points.put(scope, points)

    def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        """The packed vectors of points."""
        return self._points.vectors(scope, ids)

    def known(self, scope: Scope, ids: Sequence[str]) -> frozenset[str]:
        """Those of the ids that have a point."""
        return self._points.known(scope, ids)

    def size(self, scope: Scope) -> int:
        """How many points a scope has."""
        return self._points.size(scope)

    def nearest(self, scope: Scope, vector: bytes, limit: int, least: float) -> list[Near]:
        """The nearest points."""
        return self._search.nearest(scope, vector, limit, least)

    def delete(self, scope: Scope, ids: Sequence[str]) -> None:
        """Remove points."""
        self._points.delete(scope, ids)

    def forget(self, scope: Scope) -> None:
        """Remove a scope."""
        self._points.forget(scope)

    def forget_tenant(self, tenant: str) -> None:
        """Remove all scopes of a tenant."""
        self._points.forget_tenant(tenant)

    def close(self) -> None:
        """Close the file, free the memory."""
        self._search.close()
        self._points.close()
