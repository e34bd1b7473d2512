"""The index on a Qdrant server, which all replicas share.

A collection for each kind, model and dimension; whose a point is stands in its payload, under a tenant index, and every
search is filtered by it. A text with several vectors has a point for each. A server that lost its collections gets them
again with the next write. The only file that imports qdrant_client, which takes 0.8 s.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from importlib import import_module
from threading import Lock
from time import time
from typing import Any, TypeVar
from uuid import UUID, uuid5

from proxy.text.arrays import one_thread
from proxy.vectors.base import IndexBounds, IndexFailed, Near, Point, Scope, tenant_digest
from proxy.vectors.packing import dimension, joined, rows

T = TypeVar("T")

_CONNECTIONS = 8

_NAMES = UUID("7f0c6a52-5d0e-4b0c-9d29-3b6f1f0c8a11")
_LISTED = 10.0
"""Seconds for which it is remembered that there is no collection for a model."""
_FRESH = 16
_SLACK = 20
_CHECKED = 256
"""Points that this process puts between two looks at the bounds."""
_PIECES = 4
"""Vectors that most texts have at most: where more are found for a limit, the rest are asked for in another round."""

Where = dict[str, Any]
"""What fields of the payload must have: a value, or one of a list."""


class Missing(IndexFailed):
    """There is no such collection."""

    def __init__(self) -> None:
        super().__init__("collection_lost")


class _Client:
    """The library's client of a server, and its models."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        """`timeout` is in seconds; the library rounds it up."""
        one_thread()
        try:
            library: Any = import_module("qdrant_client")
            self.models: Any = import_module("qdrant_client.models")
            self._errors: Any = import_module("qdrant_client.http.exceptions")
        except ImportError:
            raise IndexFailed("not_installed") from None
        limits = import_module("httpx").Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        self._client = library.QdrantClient(
            url=url,
            # as a header: with `api_key` the library warns of http://, which inside a cluster is no news
            headers={"api-key": api_key} if api_key else None,
            timeout=timeout,
            check_compatibility=False,  # asks the server in a thread of its own, and warns
            limits=limits,
            trust_env=False,
        )
        self.close = self._client.close

    def call(self, method: str, *given: Any, **more: Any) -> Any:
        """Call a method of the library. Raises `IndexFailed`: `Missing` for a collection that is not there."""
        try:
            return getattr(self._client, method)(*given, **more)
        except self._errors.UnexpectedResponse as error:
            if error.status_code == 404:
                raise Missing from None
            raise IndexFailed(f"status_{error.status_code}") from None
        except self._errors.ResponseHandlingException as error:
            raise IndexFailed(_cause(error.source)) from None
        except self._errors.ApiException as error:
            raise IndexFailed("overloaded" if "Exhausted" in type(error).__name__ else type(error).__name__) from None
        except Exception as error:  # whatever the library raises, no request depends on it
            raise IndexFailed(type(error).__name__) from None


def _cause(error: Exception) -> str:
    name = type(error).__name__
    if "Timeout" in name:
        return "timeout"
    return "unexpected_answer" if name == "ValidationError" else "unreachable"


class PointServer:
    """Keeps points on a server. Blocking; any thread may call."""

    repaired = 0

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
        self._opened: _Client | None = None
        self._widths: dict[str, tuple[float, frozenset[int]]] = {}
        self._unchecked = _CHECKED

    def warm(self) -> None:
        """Import the library, which takes a second: not the server's fault."""
        self._client()

    def look(self) -> None:
        self._names()

    def put(self, scope: Scope, points: Sequence[Point]) -> None:
        by_width: dict[int, list[Any]] = {}
        for point in points:
            if width := dimension(point.vector):
                by_width.setdefault(width, []).extend(self._rows(scope, point))
        for width, some in by_width.items():
            name = f"{self._base(scope)}{width}"
            upsert = partial(self._call, "upsert", name, some, wait=True)
            try:
                if width not in self._known(scope):
                    raise Missing
                upsert()
            except Missing:
                self._create(scope, name, width)
                upsert()
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
        return sum(self._count(scope, name, where) for name in self._collections(scope))

    def nearest(self, scope: Scope, vector: bytes, limit: int) -> list[Near]:
        """The nearest points; by the nearest of a point's vectors to any of those asked."""
        width = dimension(vector)
        if not width or limit < 1 or width not in self._known(scope):
            return []
        best: dict[str, Near] = {}
        search = partial(
            self._call,
            "query_points",
            f"{self._base(scope)}{width}",
            limit=limit * _PIECES,
            query_filter=self._filter(_where(scope)),
            with_payload=True,
        )
        for asked in rows(vector):
            found = self._if_there(scope, None, partial(search, query=asked))
            for each in found.points if found else ():
                near = Near(str((each.payload or {}).get("id")), max(-1.0, min(1.0, each.score)))
                if near.id not in best or best[near.id].score < near.score:
                    best[near.id] = near
        return sorted(best.values(), key=lambda near: (-near.score, near.id))[:limit]

    def delete(self, scope: Scope, ids: Sequence[str]) -> None:
        for name in self._collections(scope):
            self._delete(scope, name, {**_where(scope), "id": list(ids)})

    def forget(self, scope: Scope) -> None:
        for name in self._collections(scope):
            self._delete(scope, name, _where(scope))

    def forget_tenant(self, tenant: str) -> None:
        chosen = self._chosen({"tenant": tenant_digest(tenant).hex()})
        for name in self._names():
            if name.startswith(f"{self._prefix}-"):
                with suppress(Missing):
                    self._call("delete", name, chosen, wait=True)

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _client(self) -> _Client:
        with self._lock:
            if self._opened is None:
                self._opened = _Client(*self._connect)
            return self._opened

    def _call(self, method: str, *given: Any, **more: Any) -> Any:
        return self._client().call(method, *given, **more)

    def _names(self) -> list[str]:
        return [each.name for each in self._call("get_collections").collections]

    def _filter(self, where: Where, older: tuple[str, int] | None = None) -> Any:
        """A filter for what a payload has; with `older`, whose number in that field is less."""
        models = self._client().models
        must: list[Any] = []
        for key, value in where.items():
            match = models.MatchAny(any=value) if isinstance(value, list) else models.MatchValue(value=value)
            must.append(models.FieldCondition(key=key, match=match))
        if older is not None:
            must.append(models.FieldCondition(key=older[0], range=models.Range(lt=older[1])))
        return models.Filter(must=must) if must else None

    def _chosen(self, where: Where, older: tuple[str, int] | None = None) -> Any:
        return self._client().models.FilterSelector(filter=self._filter(where, older))

    def _count(self, scope: Scope, name: str, where: Where) -> int:
        count = partial(self._call, "count", name, count_filter=self._filter(where), exact=True)
        found = self._if_there(scope, None, count)
        return found.count if found else 0

    def _delete(self, scope: Scope, name: str, where: Where, older: tuple[str, int] | None = None) -> None:
        self._if_there(scope, None, partial(self._call, "delete", name, self._chosen(where, older), wait=True))

    def _base(self, scope: Scope) -> str:
        model = re.sub(r"[^A-Za-z0-9_]+", "-", scope.model)[:40]
        digest = blake2b(scope.model.encode(errors="surrogatepass"), digest_size=6).hexdigest()
        return f"{self._prefix}-{scope.kind}-{model}-{digest}-"

    def _known(self, scope: Scope) -> frozenset[int]:
        """The dimensions for which the server has a collection; more than one only where a model's weights changed."""
        base, now = self._base(scope), self._clock()
        at, widths = self._widths.get(base, (float("-inf"), frozenset()))
        if not widths and not now - _LISTED < at <= now:
            ends = (name.removeprefix(base) for name in self._names() if name.startswith(base))
            widths = frozenset(int(end) for end in ends if end.isdecimal())
            self._widths[base] = (now, widths)
        return widths

    def _collections(self, scope: Scope) -> list[str]:
        return [f"{self._base(scope)}{width}" for width in sorted(self._known(scope))]

    def _create(self, scope: Scope, name: str, width: int) -> None:
        """Make a collection in which points of one tenant are stored together. Fine if it is there already.

        Its vectors have unit length, so their product is the cosine.
        """
        models = self._client().models
        vectors = models.VectorParams(size=width, distance=models.Distance.DOT)
        if not self._call("collection_exists", name):
            self._make("create_collection", name, vectors_config=vectors)
        keyword = models.KeywordIndexParams(type="keyword")
        number = models.IntegerIndexParams(type="integer", lookup=False, range=True)
        tenant = models.KeywordIndexParams(type="keyword", is_tenant=True)
        kinds = {"tenant": tenant, "scope": keyword, "id": keyword, "piece": number, "used": number}
        for field, kind in kinds.items():
            self._make("create_payload_index", name, field, field_schema=kind)
        self._widths[self._base(scope)] = (self._clock(), self._known(scope) | {width})

    def _make(self, method: str, *given: Any, **more: Any) -> None:
        """Make something on the server; that another replica has made it is as good."""
        try:
            self._call(method, *given, **more)
        except IndexFailed as error:
            if error.cause != "status_409":
                raise

    def _if_there(self, scope: Scope, otherwise: T, work: Callable[[], T]) -> T:
        """What it gives; where the collection is gone the server was emptied, and there is nothing."""
        try:
            return work()
        except Missing:
            self._widths.pop(self._base(scope), None)
            return otherwise

    def _rows(self, scope: Scope, point: Point) -> list[Any]:
        vectors, struct = rows(point.vector), self._client().models.PointStruct
        payload: dict[str, Any] = {
            "tenant": tenant_digest(scope.tenant).hex(),
            "scope": scope.digest.hex(),
            "id": point.id,
            "pieces": len(vectors),
            "used": int(self._clock()),
        }
        return [
            struct(id=_name(scope, point.id, piece), vector=vector, payload={**payload, "piece": piece})
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
        pieces = first | self._rows_of(scope, name, others)
        now, found, old = int(self._clock()), dict[str, bytes](), list[str]()
        for row in first.values():
            id, count = row.payload["id"], int(row.payload.get("pieces", 1))
            places = [_name(scope, id, piece) for piece in range(count)]
            if all(place in pieces for place in places):
                found[id] = joined([pieces[place].vector for place in places])
                if int(row.payload.get("used", 0)) < now - self._bounds.ttl / _FRESH:
                    old += places
        if old:
            use = partial(self._call, "set_payload", name, {"used": now}, points=old, wait=False)
            self._if_there(scope, None, use)
        return found

    def _rows_of(self, scope: Scope, name: str, places: list[str], *, vectors: bool = True) -> dict[str, Any]:
        if not places:
            return {}
        read = partial(self._call, "retrieve", name, places, with_payload=True, with_vectors=vectors)
        found: Sequence[Any] = self._if_there(scope, (), read)
        return {str(row.id): row for row in found if "id" in (row.payload or {})}

    def _evict(self, scope: Scope, name: str, put: int) -> None:
        """What was used longest ago leaves, in steps, where there are too many."""
        self._unchecked += put
        if self._unchecked < min(_CHECKED, self._bounds.scope // _SLACK + 1):
            return
        self._unchecked = 0
        self._delete(scope, name, {}, ("used", int(self._clock() - self._bounds.ttl)))
        models = self._client().models
        for where, most in ((_where(scope), self._bounds.scope), ({}, self._bounds.all)):
            count = self._count(scope, name, where)
            if count > most:
                chosen = {
                    "scroll_filter": self._filter(where),
                    "limit": count - most + most // _SLACK,
                    "order_by": models.OrderBy(key="used", direction="asc"),
                }
                oldest, _ = self._call("scroll", name, with_payload=False, **chosen)
                gone = models.PointIdsList(points=[each.id for each in oldest])
                self._call("delete", name, gone, wait=True)


def _where(scope: Scope) -> Where:
    return {"tenant": tenant_digest(scope.tenant).hex(), "scope": scope.digest.hex()}


def _name(scope: Scope, id: str, piece: int) -> str:
    """The name of a vector on the server: of whose it is and of what, so that no tenant's put touches another's."""
    return str(uuid5(_NAMES, f"{scope.digest.hex()}/{piece}/{id}"))
