"""The index of one machine: a cache on disk that all its processes share, bounded in bytes (diskcache).

Qdrant's own local directory is not used: it belongs to one process at a time. The directory must be on a local disk.
Only what was written longest ago leaves, so that reading takes no lock.
"""

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from proxy.state.database import cause_of, identity, make_private, remove_broken
from proxy.vectors.base import IndexFailed, Scope, tenant_digest
from proxy.vectors.packing import dimension

T = TypeVar("T")

_log = logging.getLogger("penstock.index")

FILE = "cache.db"

_OPTIONS: dict[str, Any] = {
    "eviction_policy": "least-recently-stored",
    "tag_index": True,
    "disk_min_file_size": 2**30,  # no vector is a file of its own
    "sqlite_cache_size": 1024,  # pages, of each thread's connection: by default each would come to hold 32 MB
    "sqlite_mmap_size": 0,  # reading a mapped file that was cut short would end the process
}


class Embedded:
    """Keeps points in a directory. Blocking; any thread may call."""

    def __init__(self, directory: Path, max_bytes: int, *, ttl: float, busy: float = 1.0) -> None:
        """Open nothing before it is needed. `ttl` is in seconds, and `busy` to wait for another process's write."""
        self._file, self._max_bytes, self._ttl, self._busy = directory / FILE, max_bytes, ttl, busy
        self._opening = Lock()
        self._cache: Any = None
        self._identity: tuple[int, int] | None = None
        self._closed = False

    def put(self, scope: Scope, points: Mapping[str, bytes]) -> None:
        tag = tenant_digest(scope.tenant).hex()

        def write(cache: Any) -> None:
            with cache.transact():
                for id, packed in points.items():
                    if dimension(packed):
                        cache.set(_key(scope, id), packed, expire=self._ttl, tag=tag)

        self._run(write)

    def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        return self._run(lambda cache: [cache.get(_key(scope, id)) for id in ids])

    def forget_tenant(self, tenant: str) -> None:
        self._run(lambda cache: cache.evict(tenant_digest(tenant).hex()))

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _run(self, work: Callable[[Any], T]) -> T:
        from diskcache import Timeout  # type: ignore[import-untyped]

        for attempt in (0, 1):
            try:
                return work(self._opened())
            except Timeout:
                raise IndexFailed("locked") from None
            except (sqlite3.Error, OSError) as error:
                cause = cause_of(error)
                if cause != "corrupted" or attempt:
                    raise IndexFailed(cause) from None
                self._drop()
                if remove_broken(self._file, busy=self._busy):
                    _log.warning("the vector index was broken and begun anew", extra={"fields": {"cause": cause}})
        raise AssertionError("unreachable")

    def _opened(self) -> Any:
        with self._opening:
            if self._closed:
                raise IndexFailed("closed")
            # a file that was removed or replaced takes writes as before, and shares them with nobody
            if self._cache is None or identity(self._file) != self._identity:
                self._drop()
                make_private(self._file.parent)
                folder = str(self._file.parent)
                self._cache = import_module("diskcache").Cache(
                    folder, timeout=self._busy, size_limit=self._max_bytes, **_OPTIONS
                )
                self._identity = identity(self._file)
            return self._cache

    def _drop(self) -> None:
        if self._cache is not None:
            self._cache.close()
        self._cache = None


def _key(scope: Scope, id: str) -> str:
    return f"{scope.digest.hex()}/{id}"
