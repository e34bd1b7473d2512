"""The index of one machine: one SQLite table in a directory that all its processes share, kept by use.

Qdrant's own local directory is not used: it belongs to one process at a time, commits point by point, and is read back
by unpickling whatever stands in it. Here a batch is one transaction, every process sees every point, and there are only
numbers. The directory must be on a local disk. What is written survives the process; after a loss of power the
last few may be missing, which costs their making.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any, TypeVar

from proxy.state.store import StoreError
from proxy.state.wal import SharedFile
from proxy.vectors.base import IndexBounds, IndexFailed, Point, Scope, tenant_digest
from proxy.vectors.packing import dimension

T = TypeVar("T")

FILE = "points.db"
_AT_ONCE = 500
"""Ids in one statement."""
_FRESH = 16
"""A use is written down if the last one is longer ago than this part of the time to live."""
_SLACK = 20
"""When there are too many points, so much less than the bound stays: a twentieth leaves at once, not one each time."""
_CHECKED = 256
"""Points that are put between two looks at the bound of all scopes together."""

# `payload` is empty: tables of earlier versions must have one
_SCHEMA = """
CREATE TABLE IF NOT EXISTS points (
  number INTEGER PRIMARY KEY AUTOINCREMENT, scope BLOB NOT NULL, id TEXT NOT NULL, width INTEGER NOT NULL,
  used INTEGER NOT NULL, vector BLOB NOT NULL, payload TEXT NOT NULL, UNIQUE (scope, id)
);
CREATE INDEX IF NOT EXISTS points_of_scope ON points (scope, width, number);
CREATE INDEX IF NOT EXISTS points_by_use ON points (used);
"""


class Embedded:
    """Keeps points in a directory, or without one in memory. Blocking; any thread may call."""

    def __init__(
        self,
        directory: Path | None,
        bounds: IndexBounds,
        *,
        busy: float = 1.0,
        clock: Callable[[], float] = time,
    ) -> None:
        """Open and import nothing before it is needed. `busy`, the time to wait for another process that writes,
        and `clock` are in seconds."""
        file = None if directory is None else directory / FILE
        self._file = SharedFile(file, _SCHEMA, synchronous="NORMAL", busy=busy, keeps_broken=True)
        self.close = self._file.close
        self._bounds = bounds
        self._clock = clock
        self._unchecked = _CHECKED

    @property
    def repaired(self) -> int:
        """The number of times that a broken file was set aside."""
        return self._file.repaired

    def put(self, scope: Scope, points: Sequence[Point]) -> None:
        """Keep points, in one transaction. What was used longest ago leaves where there are too many."""
        digest, now = scope.digest, int(self._clock())
        rows = [(digest, each.id, width, now, each.vector) for each in points if (width := dimension(each.vector))]

        def write(db: sqlite3.Connection) -> None:
            # a replaced point gets a new number: that is how other processes see that it changed
            db.executemany(
                "REPLACE INTO points (scope, id, width, used, vector, payload) VALUES (?, ?, ?, ?, ?, '')", rows
            )
            self._evict(db, digest, len(rows), now)

        self._run(write, writes=True)

    def vectors(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        """Return the packed vectors of points; it is a use."""
        now = int(self._clock())

        def read(db: sqlite3.Connection) -> dict[str, tuple[bytes, int]]:
            found = _chosen(db, "id, vector, used", scope.digest, ids)
            return {id: (vector, used) for id, vector, used in found}

        found = self._run(read)
        old = [id for id, (_, used) in found.items() if used < now - self._bounds.ttl / _FRESH]
        if old:
            self._use(scope, old, now)
        return [found[id][0] if id in found else None for id in ids]

    def size(self, scope: Scope) -> int:
        count = "SELECT COUNT(*) FROM points WHERE scope = ?"
        return int(self._run(lambda db: db.execute(count, (scope.digest,)).fetchone()[0]))

    def forget_tenant(self, tenant: str) -> None:
        first = tenant_digest(tenant)
        between = (first + b"\0" * 16, first + b"\xff" * 16)
        self._run(lambda db: db.execute("DELETE FROM points WHERE scope BETWEEN ? AND ?", between), writes=True)

    def _use(self, scope: Scope, ids: Sequence[str], now: int) -> None:
        rows = [(now, scope.digest, id) for id in ids]
        update = "UPDATE points SET used = ? WHERE scope = ? AND id = ?"
        with suppress(IndexFailed):  # what can be read but not written still answers
            self._run(lambda db: db.executemany(update, rows), writes=True)

    def _evict(self, db: sqlite3.Connection, digest: bytes, put: int, now: int) -> None:
        (count,) = db.execute("SELECT COUNT(*) FROM points WHERE scope = ?", (digest,)).fetchone()
        if count > self._bounds.scope:
            _leave(db, "WHERE scope = ?", (digest,), count - self._bounds.scope + self._bounds.scope // _SLACK)
        self._unchecked += put
        if self._unchecked >= min(_CHECKED, self._bounds.all // _SLACK + 1):
            self._unchecked = 0
            db.execute("DELETE FROM points WHERE used < ?", (now - self._bounds.ttl,))
            (count,) = db.execute("SELECT COUNT(*) FROM points").fetchone()
            if count > self._bounds.all:
                _leave(db, "", (), count - self._bounds.all + self._bounds.all // _SLACK)

    def _run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        try:
            return self._file.run(work, writes=writes)
        except StoreError as error:
            raise IndexFailed(error.cause) from None


def _chosen(db: sqlite3.Connection, columns: str, digest: bytes, ids: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        places = ",".join("?" * len(some))
        sql = f"SELECT {columns} FROM points WHERE scope = ? AND id IN ({places})"  # noqa: S608 -- names and ?
        found += db.execute(sql, (digest, *some)).fetchall()
    return found


def _leave(db: sqlite3.Connection, where: str, given: Iterable[object], count: int) -> None:
    oldest = f"SELECT number FROM points {where} ORDER BY used, number LIMIT ?"  # noqa: S608 -- written above
    db.execute(f"DELETE FROM points WHERE number IN ({oldest})", (*given, count))  # noqa: S608 -- written above
