"""The points nearest to a vector, in Qdrant's local mode in memory, filled from the table as far as it is asked.

The table is the truth: before each search what was put since the last one is read, by whichever process, and what was
found stands only if the table still has it. A scope is read when it is first asked, about 0.1 ms a point.
"""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from proxy.vectors.base import IndexFailed, Near, Scope
from proxy.vectors.packed import dimension, rows
from proxy.vectors.points import Points
from proxy.vectors.qdrant import Client, Row

SHARD = 20_000
"""Vectors in one collection: beyond it the library warns. A scope with more has several."""

LOADED = 100_000
"""Vectors that may be in memory, of all scopes: about 200 MB. The scope that was asked longest ago leaves."""

_STEP = 500
_DEAD = 2_000
"""Removed vectors after which a scope is read again: the local mode never gives back their room."""


class Search:
    """A search over the points of a table. Blocking; any thread may call, one at a time gets on."""

    def __init__(self, points: Points, *, shard: int = SHARD, loaded: int = LOADED) -> None:
        """Nothing is imported before the first search."""
        self._points = points
        self._shard, self._most = shard, loaded
        self._lock = Lock()
        self._client: Client | None = None
        self._scopes: OrderedDict[tuple[bytes, int], _Loaded] = OrderedDict()
        self._made = 0

    def warm(self) -> None:
        with self._lock:
            self._opened()

    def nearest(self, scope: Scope, vector: bytes, limit: int, least: float) -> list[Near]:
        """The nearest points; by the nearest of a point's vectors to any of those asked."""
        width = dimension(vector)
        if not width or limit < 1:
            return []
        with self._lock:
            client = self._opened()
            key = (scope.digest, width)
            try:
                loaded = self._current(client, key, scope)
                scores = loaded.nearest(client, rows(vector), limit, least)
            except Exception:
                self._forget(key)  # a collection whose call failed may be torn for good
                raise
            self._bound(key)
        return self._there(scope, scores, limit)

    def close(self) -> None:
        with self._lock:
            self._scopes.clear()
            if self._client is not None:
                self._client.close()
                self._client = None

    def _opened(self) -> Client:
        if self._client is None:
            self._client = Client()
        return self._client

    def _current(self, client: Client, key: tuple[bytes, int], scope: Scope) -> "_Loaded":
        """The scope as the table has it now."""
        if key in self._scopes and self._scopes[key].dead > max(_DEAD, self._scopes[key].size):
            self._forget(key)
        if key not in self._scopes:
            self._made += 1
            self._scopes[key] = _Loaded(f"scope-{self._made}", key[1], self._shard)
        self._scopes.move_to_end(key)
        loaded = self._scopes[key]
        while put := self._points.since(scope, key[1], loaded.number, _STEP):
            loaded.add(client, put)
        if len(loaded.places) != self._points.count(scope, key[1]):
            loaded.remove(client, set(loaded.places) - self._points.ids(scope, key[1]))
        return loaded

    def _there(self, scope: Scope, scores: dict[str, float], limit: int) -> list[Near]:
        order = sorted(scores, key=lambda id: (-scores[id], id))[:limit]
        payloads = self._points.payloads(scope, order)
        return [Near(id, scores[id], payloads[id]) for id in order if id in payloads]

    def _bound(self, keep: tuple[bytes, int]) -> None:
        while len(self._scopes) > 1 and sum(each.size + each.dead for each in self._scopes.values()) > self._most:
            oldest = next(iter(self._scopes))
            if oldest == keep:
                break
            self._forget(oldest)

    def _forget(self, key: tuple[bytes, int]) -> None:
        loaded = self._scopes.pop(key, None)
        if loaded is not None and self._client is not None:
            for name in loaded.names:
                try:
                    self._client.drop(name)
                except IndexFailed:
                    self._client, self._scopes = None, OrderedDict()  # begin anew
                    return


class _Loaded:
    """A scope in memory: collections that are filled one after the other."""

    def __init__(self, name: str, width: int, shard: int) -> None:
        self._name, self._width, self._shard = name, width, shard
        self.names: list[str] = []
        self.number = 0
        """Of the point that was read last."""
        self.places: dict[str, list[int]] = {}
        """The vectors of each point, by the order in which they were added."""
        self.dead = 0
        self._ids: dict[int, str] = {}
        self._next = 0
        self._widest = 1

    @property
    def size(self) -> int:
        return len(self._ids)

    def add(self, client: Client, put: Sequence[tuple[int, str, bytes]]) -> None:
        """Add points, in place of those with the same ids."""
        self.remove(client, {id for _, id, _ in put} & self.places.keys())
        new: dict[str, list[Row]] = {}
        for _, id, packed in put:
            for vector in rows(packed):
                place, self._next = self._next, self._next + 1
                new.setdefault(self._collection(client, place), []).append(Row(place, vector, {}))
                self.places.setdefault(id, []).append(place)
                self._ids[place] = id
            self._widest = max(self._widest, len(self.places.get(id, ())))
        for name, some in new.items():
            client.upsert(name, some)
        self.number = put[-1][0]

    def remove(self, client: Client, ids: set[str]) -> None:
        gone: dict[str, list[int | str]] = {}
        for place in [place for id in ids for place in self.places.pop(id)]:
            gone.setdefault(self.names[place // self._shard], []).append(place)
            del self._ids[place]
            self.dead += 1
        for name, places in gone.items():
            client.delete(name, places)

    def nearest(self, client: Client, asked: list[list[float]], limit: int, least: float) -> dict[str, float]:
        """The best cosine of each of the nearest points."""
        scores: dict[str, float] = {}
        for name in self.names:
            for vector in asked:
                for place, score, _ in client.nearest(name, vector, limit * self._widest, least):
                    id = self._ids[int(place)]
                    scores[id] = max(score, scores.get(id, -1.0))
        return scores

    def _collection(self, client: Client, place: int) -> str:
        if place // self._shard == len(self.names):
            name = f"{self._name}-{len(self.names)}"
            client.create(name, self._width)
            self.names.append(name)
        return self.names[place // self._shard]
