"""The index on a Qdrant server, which all replicas share.

A collection for each kind, model and dimension; whose a point is stands in its payload, under a tenant index, and every
search is filtered by it. A text with several vectors has a point for each. A server that lost its collections gets them
again with the next write.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from threading import Lock
from time import time
from typing import Any, TypeVar
from uuid import UUID, uuid5

from proxy.vectors.base import IndexFailed, Near, Point, Scope, tenant_digest
from proxy.vectors.packed import dimension, joined, rows
from proxy.vectors.points import IndexBounds
from proxy.vectors.qdrant import Client, Missing, QdrantPoint

T = TypeVar("T")

_NAMES = UUID("7f0c6a52-5d0e-4b0c-9d29-3b6f1f0c8a11")
_LISTED = 10.0
"""Seconds for which it is remembered that there is no collection for a model."""
_FRESH = 16
_SLACK = 20
_CHECKED = 256
"""Points that this process puts between two looks at the bounds."""
_PIECES = 4
"""Vectors that most texts have at most: where more are found for a limit, the rest are asked for in another round."""


class PointServer:
    """Keeps points on a server. Blocking; any thread may call."""

    repaired = 0
    needs_library = True

    def __init__(
        self,
        url: str,
        api_key: str | None,
        prefix: str,
        timeout: float,
        bounds: IndexBounds,
        *,
        clock: Callable[[], float] = time,
    ) -> None:
        """Nothing is imported or connected before it is needed. `prefix` begins the collections' names."""
        self._connect = (url, api_key, timeout)
        self._prefix = prefix
        self._bounds = bounds
        self._clock = clock
        self._lock = Lock()
        self._opened: Client | None = None
        self._widths: dict[str, tuple[float, frozenset[int]]] = {}
        self._unchecked = _CHECKED

    def warm(self) -> None:
        self._client()

    def look(self) -> None:
        self._client().names()

    def put(self, scope: Scope, points: Sequence[Point]) -> None:
        by_width: dict[int, list[QdrantPoint]] = {}
        for point in points:
            if width := dimension(point.vector):
                by_width.setdefault(width, []).extend(self._rows(scope, point))
        for width, some in by_width.items():
            name = f"{self._base(scope)}{width}"
            try:
                if width not in self._known(scope):
                    raise Missing
                self._client().upsert(name, some)
            except Missing:
                self._create(scope, name, width)
                self._settled(partial(self._client().upsert, name, some))
            self._evict(scope, name, len(some))

    def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        found: dict[str, bytes] = {}
        for name in self._collections(scope):
            found |= self._read(scope, name, ids)
        return [found.get(id) for id in ids]

    def known(self, scope: Scope, ids: Sequence[str]) -> frozenset[str]:
        names = {_name(scope, id, 0): id for id in ids}
        found: set[str] = set()
        for name in self._collections(scope):
            there = self._rows_of(scope, name, list(names), vectors=False)
            found |= {names[place] for place in there.keys() & names.keys()}
        return frozenset(found)

    def size(self, scope: Scope) -> int:
        where = {**_where(scope), "piece": 0}
        names = self._collections(scope)
        return sum(self._if_there(scope, 0, partial(self._client().count, name, where)) for name in names)

    def nearest(self, scope: Scope, vector: bytes, limit: int, least: float) -> list[Near]:
        """The nearest points; by the nearest of a point's vectors to any of those asked."""
        width = dimension(vector)
        if not width or limit < 1 or width not in self._known(scope):
            return []
        name, best = f"{self._base(scope)}{width}", dict[str, Near]()
        for asked in rows(vector):
            search = partial(self._client().nearest, name, asked, limit * _PIECES, least, _where(scope))
            for _, score, payload in self._if_there(scope, _nothing(), search):
                near = Near(str(payload.get("id")), score, payload.get("data") or {})
                if near.id not in best or best[near.id].score < near.score:
                    best[near.id] = near
        return sorted(best.values(), key=lambda near: (-near.score, near.id))[:limit]

    def delete(self, scope: Scope, ids: Sequence[str]) -> None:
        for name in self._collections(scope):
            where = {**_where(scope), "id": list(ids)}
            self._if_there(scope, None, partial(self._client().delete_where, name, where))

    def forget(self, scope: Scope) -> None:
        for name in self._collections(scope):
            self._if_there(scope, None, partial(self._client().delete_where, name, _where(scope)))

    def forget_tenant(self, tenant: str) -> None:
        where = {"tenant": tenant_digest(tenant).hex()}
        for name in self._client().names():
            if name.startswith(f"{self._prefix}-"):
                try:
                    self._client().delete_where(name, where)
                except Missing:
                    continue

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _client(self) -> Client:
        with self._lock:
            if self._opened is None:
                self._opened = Client(*self._connect)
            return self._opened

    def _base(self, scope: Scope) -> str:
        model = re.sub(r"[^A-Za-z0-9_]+", "-", scope.model)[:40]
        digest = blake2b(scope.model.encode(errors="surrogatepass"), digest_size=6).hexdigest()
        return f"{self._prefix}-{scope.kind}-{model}-{digest}-"

    def _known(self, scope: Scope) -> frozenset[int]:
        """The dimensions for which the server has a collection; more than one only where a model's weights changed."""
        base, now = self._base(scope), self._clock()
        at, widths = self._widths.get(base, (float("-inf"), frozenset()))
        if not widths and not now - _LISTED < at <= now:
            ends = (name.removeprefix(base) for name in self._client().names() if name.startswith(base))
            widths = frozenset(int(end) for end in ends if end.isdecimal())
            self._widths[base] = (now, widths)
        return widths

    def _collections(self, scope: Scope) -> list[str]:
        return [f"{self._base(scope)}{width}" for width in sorted(self._known(scope))]

    def _create(self, scope: Scope, name: str, width: int) -> None:
        self._settled(partial(self._client().create, name, width))
        self._widths[self._base(scope)] = (self._clock(), self._known(scope) | {width})

    def _settled(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except Missing:
            raise IndexFailed("collection_lost") from None

    def _if_there(self, scope: Scope, otherwise: T, work: Callable[[], T]) -> T:
        """What it gives; where the collection is gone the server was emptied, and there is nothing."""
        try:
            return work()
        except Missing:
            self._widths.pop(self._base(scope), None)
            return otherwise

    def _rows(self, scope: Scope, point: Point) -> list[QdrantPoint]:
        vectors = rows(point.vector)
        payload: dict[str, Any] = {
            "tenant": tenant_digest(scope.tenant).hex(),
            "scope": scope.digest.hex(),
            "id": point.id,
            "pieces": len(vectors),
            "used": int(self._clock()),
            "data": dict(point.payload),
        }
        return [
            QdrantPoint(_name(scope, point.id, piece), vector, {**payload, "piece": piece})
            for piece, vector in enumerate(vectors)
        ]

    def _read(self, scope: Scope, name: str, ids: Sequence[str]) -> dict[str, bytes]:
        """The vectors of points in one collection: all first pieces at once, then all others."""
        first = self._rows_of(scope, name, [_name(scope, id, 0) for id in ids])
        others = [
            _name(scope, row.payload["id"], piece)
            for row in first.values()
            for piece in range(1, int(row.payload.get("pieces", 1)))
        ]
        pieces = first | (self._rows_of(scope, name, others) if others else {})
        now, found, old = int(self._clock()), dict[str, bytes](), list[int | str]()
        for row in first.values():
            id, count = row.payload["id"], int(row.payload.get("pieces", 1))
            places = [_name(scope, id, piece) for piece in range(count)]
            if all(place in pieces for place in places):
                found[id] = joined([pieces[place].vector for place in places])
                if int(row.payload.get("used", 0)) < now - self._bounds.ttl / _FRESH:
                    old += places
        if old:
            self._if_there(scope, None, partial(self._client().mark, name, {"used": now}, old))
        return found

    def _rows_of(
        self, scope: Scope, name: str, places: Sequence[str], *, vectors: bool = True
    ) -> dict[str, QdrantPoint]:
        read = partial(self._client().retrieve, name, places, vectors=vectors)
        found = self._if_there(scope, list[QdrantPoint](), read)
        return {str(row.id): row for row in found if "id" in row.payload}

    def _evict(self, scope: Scope, name: str, put: int) -> None:
        """What was used longest ago leaves, in steps, where there are too many."""
        self._unchecked += put
        if self._unchecked < min(_CHECKED, self._bounds.scope // _SLACK + 1):
            return
        self._unchecked = 0
        client = self._client()
        expired = int(self._clock() - self._bounds.ttl)
        self._if_there(scope, None, partial(client.delete_where, name, {}, ("used", expired)))
        for where, most in ((_where(scope), self._bounds.scope), ({}, self._bounds.all)):
            count = self._if_there(scope, 0, partial(client.count, name, where))
            if count > most:
                leaving = count - most + most // _SLACK
                gone = self._settled(partial(client.oldest, name, "used", leaving, where))
                self._settled(partial(client.delete, name, gone))


def _nothing() -> list[tuple[int | str, float, dict[str, Any]]]:
    return []


def _where(scope: Scope) -> dict[str, Any]:
    return {"tenant": tenant_digest(scope.tenant).hex(), "scope": scope.digest.hex()}


def _name(scope: Scope, id: str, piece: int) -> str:
    """The name of a vector on the server: of whose it is and of what, so that no tenant's put touches another's."""
    return str(uuid5(_NAMES, f"{scope.digest.hex()}/{piece}/{id}"))
