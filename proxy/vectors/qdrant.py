"""A Qdrant server's REST, for threads. The only file that imports qdrant_client, which takes 0.8 s."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from proxy.vectors.base import IndexFailed
from proxy.vectors.products import one_thread

T = TypeVar("T")

_CONNECTIONS = 8

Where = dict[str, Any]
"""What fields of the payload must have: a value, or one of a list."""


class Missing(Exception):
    """There is no such collection."""


class QdrantPoint(NamedTuple):
    """A point as Qdrant has it."""

    id: int | str
    """A number, or a UUID."""
    vector: list[float]
    payload: dict[str, Any]


class Client:
    """A Qdrant. All methods raise `IndexFailed`; those that need a collection raise `Missing`."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        """`timeout` is in seconds; the library rounds it up."""
        one_thread()
        try:
            library: Any = import_module("qdrant_client")
            self._models: Any = import_module("qdrant_client.models")
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

    def create(self, name: str, width: int) -> None:
        """Make a collection in which points of one tenant are stored together. Fine if it is there already.

        Its vectors have unit length, so their product is the cosine.
        """
        models = self._models
        vectors = models.VectorParams(size=width, distance=models.Distance.DOT)
        self._call(
            lambda: (
                self._client.collection_exists(name) or self._client.create_collection(name, vectors_config=vectors)
            ),
            there=True,
        )
        keyword = models.KeywordIndexParams(type="keyword")
        number = models.IntegerIndexParams(type="integer", lookup=False, range=True)
        tenant = models.KeywordIndexParams(type="keyword", is_tenant=True)
        kinds = {"tenant": tenant, "scope": keyword, "id": keyword, "piece": number, "used": number}
        for field, kind in kinds.items():
            self._call(partial(self._client.create_payload_index, name, field, field_schema=kind), there=True)

    def names(self) -> list[str]:
        return self._call(lambda: [each.name for each in self._client.get_collections().collections])

    def upsert(self, name: str, rows: Sequence[QdrantPoint]) -> None:
        if rows:
            struct = self._models.PointStruct
            points = [struct(id=each.id, vector=each.vector, payload=each.payload) for each in rows]
            self._call(lambda: self._client.upsert(name, points, wait=True))

    def retrieve(self, name: str, ids: Sequence[int | str], *, vectors: bool) -> list[QdrantPoint]:
        if not ids:
            return []
        found = self._call(lambda: self._client.retrieve(name, list(ids), with_payload=True, with_vectors=vectors))
        return [QdrantPoint(each.id, each.vector if vectors else [], each.payload or {}) for each in found]

    def nearest(
        self, name: str, vector: Sequence[float], limit: int, least: float, where: Where
    ) -> list[tuple[int | str, float, dict[str, Any]]]:
        """The points nearest to a vector: id, cosine and payload."""
        found = self._call(
            lambda: self._client.query_points(
                name,
                query=list(vector),
                limit=limit,
                score_threshold=least if least > -1.0 else None,  # opposites are rounded to less than -1
                query_filter=self._where(where),
                with_payload=True,
            )
        )
        return [(each.id, max(-1.0, min(1.0, each.score)), each.payload or {}) for each in found.points]

    def delete(self, name: str, ids: Sequence[int | str]) -> None:
        if ids:
            self._call(lambda: self._client.delete(name, self._models.PointIdsList(points=list(ids)), wait=True))

    def delete_where(self, name: str, where: Where | None, older: tuple[str, int] | None = None) -> None:
        """Remove the points whose payload has these values; with `older`, whose number in that field is less."""
        chosen = self._models.FilterSelector(filter=self._where(where, older))
        self._call(lambda: self._client.delete(name, chosen, wait=True))

    def count(self, name: str, where: Where | None = None) -> int:
        return int(self._call(lambda: self._client.count(name, count_filter=self._where(where), exact=True)).count)

    def oldest(self, name: str, field: str, limit: int, where: Where | None = None) -> list[int | str]:
        """The points with the least numbers in a field of the payload."""
        order = self._models.OrderBy(key=field, direction="asc")
        found, _ = self._call(
            lambda: self._client.scroll(
                name, scroll_filter=self._where(where), limit=limit, order_by=order, with_payload=False
            )
        )
        return [each.id for each in found]

    def mark(self, name: str, payload: dict[str, Any], ids: Sequence[int | str]) -> None:
        """Set fields of points' payloads."""
        self._call(lambda: self._client.set_payload(name, payload, points=list(ids), wait=False))

    def close(self) -> None:
        self._client.close()

    def _where(self, where: Where | None, older: tuple[str, int] | None = None) -> Any:
        models = self._models
        must: list[Any] = []
        for key, value in (where or {}).items():
            match = models.MatchAny(any=value) if isinstance(value, list) else models.MatchValue(value=value)
            must.append(models.FieldCondition(key=key, match=match))
        if older is not None:
            must.append(models.FieldCondition(key=older[0], range=models.Range(lt=older[1])))
        return models.Filter(must=must) if must else None

    def _call(self, work: Callable[[], T], *, there: bool = False) -> T:
        """Do it. With `there`, that something is there already is as good as done."""
        try:
            return work()
        except self._errors.UnexpectedResponse as error:
            if error.status_code == 404:
                raise Missing from None
            if there and error.status_code == 409:
                return None  # type: ignore[return-value]
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
