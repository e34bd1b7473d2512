"""The index on a Qdrant server, which all replicas share. The only file that imports qdrant_client: it takes 0.8 s.

Each model has a collection. The payload of a point names its tenant, under a tenant index. Nothing is evicted: a
collection may be deleted at any time, and the next writes begin it anew.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from importlib import import_module
from threading import Lock
from typing import Any
from uuid import UUID, uuid5

from proxy.text.arrays import one_thread
from proxy.vectors.base import IndexFailed, Scope, tenant_digest
from proxy.vectors.packing import dimension, joined, rows

_CONNECTIONS = 8
_NAMES = UUID("7f0c6a52-5d0e-4b0c-9d29-3b6f1f0c8a11")


class Missing(IndexFailed):
    """There is no such collection."""


class PointServer:
    """Points on a server. Blocking; any thread may call."""

    def __init__(self, url: str, api_key: str | None, prefix: str, timeout: float) -> None:
        """Import and connect nothing yet. `prefix` begins the collections' names; `timeout` is in whole seconds."""
        self._connect = (url, api_key, timeout)
        self._prefix = prefix
        self._lock = Lock()
        self._client: Any = None
        self._models: Any = None
        self._errors: Any = None

    def warm(self) -> None:
        """Import the library, which takes a second that the server is not to blame for."""
        with self._lock:
            if self._client is None:
                self._client = self._connected(*self._connect)

    def look(self) -> None:
        self._call("get_collections")

    def put(self, scope: Scope, points: Mapping[str, bytes]) -> None:
        self.warm()
        width = max(map(dimension, points.values()), default=0)
        owner = {"tenant": tenant_digest(scope.tenant).hex()}
        structs = [
            self._models.PointStruct(id=_name(scope, id), vector=rows(packed), payload=owner)
            for id, packed in points.items()
            if width and dimension(packed) == width
        ]
        upsert = partial(self._call, "upsert", self._collection(scope), structs, wait=True)
        try:
            if structs:
                upsert()
        except IndexFailed as error:
            if not isinstance(error, Missing) and not self._is_other_models(error, scope, width):
                raise
            self._create(self._collection(scope), width)
            upsert()

    def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        names = [_name(scope, id) for id in ids]
        with suppress(Missing):
            there = self._call("retrieve", self._collection(scope), names, with_payload=False, with_vectors=True)
            packed = {str(each.id): joined(each.vector) for each in there}
            return [packed.get(name) for name in names]
        return [None] * len(ids)

    def forget_tenant(self, tenant: str) -> None:
        collections = self._call("get_collections").collections
        match = self._models.MatchValue(value=tenant_digest(tenant).hex())
        points = self._models.Filter(must=[self._models.FieldCondition(key="tenant", match=match)])
        for each in collections:
            if each.name.startswith(f"{self._prefix}-"):
                with suppress(Missing):
                    self._call("delete", each.name, points, wait=True)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _connected(self, url: str, api_key: str | None, timeout: float) -> Any:
        one_thread()
        try:
            library: Any = import_module("qdrant_client")
            self._models = import_module("qdrant_client.models")
            self._errors = import_module("qdrant_client.http.exceptions")
        except ImportError:
            raise IndexFailed("not_installed") from None
        limits = import_module("httpx").Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS)
        return library.QdrantClient(
            url=url,
            # as a header: with `api_key` the library warns of http://, which inside a cluster is no news
            headers={"api-key": api_key} if api_key else None,
            timeout=timeout,
            check_compatibility=False,  # asks the server in a thread of its own, and warns
            limits=limits,
            trust_env=False,
        )

    def _call(self, method: str, *given: Any, **more: Any) -> Any:
        """Call a method of the library. Raises `IndexFailed`: `Missing` for a collection that is not there."""
        self.warm()
        try:
            return getattr(self._client, method)(*given, **more)
        except self._errors.UnexpectedResponse as error:
            if error.status_code == 404:
                raise Missing("collection_lost") from None
            raise IndexFailed(f"status_{error.status_code}") from None
        except self._errors.ResponseHandlingException as error:
            raise IndexFailed(_cause(error.source)) from None
        except Exception as error:  # whatever the library raises, no request depends on it
            raise IndexFailed("overloaded" if "Exhausted" in type(error).__name__ else type(error).__name__) from None

    def _collection(self, scope: Scope) -> str:
        model = re.sub(r"[^A-Za-z0-9_]+", "-", scope.model)[:40]
        digest = blake2b(scope.model.encode(errors="surrogatepass"), digest_size=6).hexdigest()
        return f"{self._prefix}-texts-{model}-{digest}"

    def _create(self, name: str, width: int) -> None:
        """Make a collection in which the points of one tenant are stored together; a point may have several vectors."""
        models = self._models
        several = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
        vectors = models.VectorParams(size=width, distance=models.Distance.DOT, multivector_config=several)
        self._make("create_collection", name, vectors_config=vectors)
        kind = models.KeywordIndexParams(type="keyword", is_tenant=True)
        self._make("create_payload_index", name, "tenant", field_schema=kind)

    def _make(self, method: str, *given: Any, **more: Any) -> None:
        try:
            self._call(method, *given, **more)
        except IndexFailed as error:
            if error.cause != "status_409":  # another replica has made it
                raise

    def _is_other_models(self, error: IndexFailed, scope: Scope, width: int) -> bool:
        """Delete a collection that refused vectors because its own are another model's; return whether it did so."""
        if error.cause != "status_400":
            return False
        name = self._collection(scope)
        is_other = self._call("get_collection", name).config.params.vectors.size != width
        if is_other:
            self._call("delete_collection", name)
        return bool(is_other)


def _name(scope: Scope, id: str) -> str:
    """Return the name of a point on the server: its tenant's and scope's, so that no put touches another tenant's."""
    return str(uuid5(_NAMES, f"{scope.digest.hex()}/{id}"))


def _cause(error: Exception) -> str:
    name = type(error).__name__
    if "Timeout" in name:
        return "timeout"
    return "unexpected_answer" if name == "ValidationError" else "unreachable"
