"""The index of one machine: a SQLite file that all its processes share, bounded in bytes.

Qdrant's own local directory is not used: it belongs to one process at a time. Only what was written longest ago leaves,
so that reading takes no lock.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from proxy.state.database import Database, used_bytes
from proxy.state.store import StoreError
from proxy.vectors.base import IndexFailed, Point, Scope, tenant_digest
from proxy.vectors.packing import dimension

T = TypeVar("T")

FILE = "cache.db"
_AT_ONCE = 64
"""Rows that leave together."""
_ROW = 600
"""Bytes that a row takes besides its vector, with its places in the indices, about."""

# the table, with `raw` and `mode` of 1, is that of diskcache, by which earlier versions read and write the file
_SCHEMA = """
CREATE TABLE IF NOT EXISTS Cache (
    rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, expire_time REAL, access_time REAL,
    access_count INTEGER DEFAULT 0, tag BLOB, size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0, filename TEXT, value BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS Cache_key_raw ON Cache (key, raw);
CREATE INDEX IF NOT EXISTS Cache_store_time ON Cache (store_time);
CREATE INDEX IF NOT EXISTS Cache_expire_time ON Cache (expire_time);
CREATE INDEX IF NOT EXISTS Cache_tag ON Cache (tag);
"""
_PUT = "INSERT OR REPLACE INTO Cache (key, raw, mode, store_time, expire_time, tag, value) VALUES (?, 1, 1, ?, ?, ?, ?)"
_GET = "SELECT value FROM Cache WHERE key = ? AND raw = 1 AND expire_time > ?"
_EXPIRED = "DELETE FROM Cache WHERE rowid IN (SELECT rowid FROM Cache WHERE expire_time <= ? LIMIT ?)"
_OLDEST = "DELETE FROM Cache WHERE rowid IN (SELECT rowid FROM Cache ORDER BY store_time LIMIT ?)"


class Embedded:
    """Keeps points in a directory. Blocking; any thread may call."""

    def __init__(self, directory: Path, max_bytes: int, *, ttl: float, busy: float = 1.0) -> None:
        """Open nothing before it is needed. `ttl` is in seconds, and `busy` to wait for another process's write."""
        self._max_bytes, self._ttl = max_bytes, ttl
        self._database = Database(directory / FILE, _SCHEMA, name="vectors", threads=0, busy=busy)
        self.close = self._database.close

    def put(self, scope: Scope, points: Sequence[Point]) -> None:
        now, tag = time.time(), tenant_digest(scope.tenant).hex()
        usable = [each for each in points if dimension(each.vector)]
        rows = [(_key(scope, each.id), now, now + self._ttl, tag, each.vector) for each in usable]
        room = self._max_bytes - sum(_ROW + len(each.vector) for each in usable)

        def write(database: sqlite3.Connection) -> None:
            database.execute(_EXPIRED, (now, _AT_ONCE))
            while used_bytes(database) > room and database.execute(_OLDEST, (_AT_ONCE,)).rowcount:
                pass
            database.executemany(_PUT, rows)

        self._run(write)

    def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        now = time.time()

        def read(database: sqlite3.Connection) -> list[bytes | None]:
            found = (database.execute(_GET, (_key(scope, id), now)).fetchone() for id in ids)
            return [None if row is None else row[0] for row in found]

        return self._run(read, writes=False)

    def forget_tenant(self, tenant: str) -> None:
        tag = tenant_digest(tenant).hex()
        self._run(lambda database: database.execute("DELETE FROM Cache WHERE tag = ?", (tag,)))

    def _run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        try:
            return self._database.do(work, writes=writes)
        except StoreError as error:
            raise IndexFailed(error.cause) from None


def _key(scope: Scope, id: str) -> str:
    return f"{scope.digest.hex()}/{id}"
