"""The rows of the embedded store. Every value is a row of one SQLite file, so a write is one transaction: whole or
absent whenever the process dies."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock, local

from proxy.state.store import FULL, StoreError
from proxy.state.wal import connect

DATABASE = "cache.db"
"""The name of the file that holds everything."""

_PAGES = 3 * 4096
"""Bytes that a row takes at most besides its value: parts of pages, and its place in the indices."""
_AT_ONCE = 64
"""Expired rows that one write removes."""
_MEASURES = ("page_count", "freelist_count", "page_size")
_NEW = "PRAGMA auto_vacuum = FULL"
"""For a file that is not there yet: what is removed leaves the file, too."""
_SCHEMA = """
PRAGMA journal_size_limit = 16777216;
CREATE TABLE IF NOT EXISTS Cache (
  rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, expire_time REAL, access_time REAL,
  access_count INTEGER DEFAULT 0, tag BLOB, size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0, filename TEXT, value BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS Cache_key_raw ON Cache (key, raw);
CREATE INDEX IF NOT EXISTS Cache_expire_time ON Cache (expire_time);
CREATE INDEX IF NOT EXISTS Cache_access_time ON Cache (access_time);
"""
"""The table of diskcache, which earlier versions used: `raw` and `mode` are 1 in every row of theirs and ours."""


class Rows:
    """The rows of one file. Any thread may call; each has a connection of its own."""

    def __init__(self, file: Path, busy: float) -> None:
        """Open or make the file, waiting for others who do so; `busy` is in seconds. Raises as `connect` does."""
        self._file, self._busy = file, busy
        self._of_thread = local()
        self._connections: list[sqlite3.Connection] = []
        # SQLite's lock is asked for again and again: of two busy threads one may never be lucky
        self._one_thread = RLock()
        self._sql("SELECT 1")

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection of this thread."""
        found: sqlite3.Connection | None = getattr(self._of_thread, "connection", None)
        if found is None:
            new = "" if self._file.exists() and self._file.stat().st_size else _NEW
            found = connect(self._file, busy=self._busy, synchronous="FULL", schema=_SCHEMA, new=new)
            self._of_thread.connection = found
            self._connections.append(found)
        return found

    def close(self) -> None:
        """Close all connections, which no thread may use any more."""
        for each in self._connections:
            each.close()

    def _sql(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self.connection.execute(statement, values)

    @contextmanager
    def writing(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that no other writer interrupts; undone if anything is raised.

        Unless it is `synced`, a loss of power may undo it, and nothing else; what is synced later takes it along.
        """
        connection = self.connection
        with self._one_thread:
            connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def read(self, key: str, now: float, ttl: float | None) -> bytes | None:
        """A value, used if `ttl` says so and its last use is not of this very moment."""
        row = self._sql(
            "SELECT value, access_time FROM Cache WHERE key = ? AND raw = 1 AND expire_time > ?", (key, now)
        ).fetchone()
        if row is None:
            return None
        value, used = row
        if not isinstance(value, bytes):
            raise StoreError("corrupted")
        if ttl is not None and now - used > min(60.0, ttl / 10):
            self._use_at_once(key, now, ttl)
        return value

    def _use_at_once(self, key: str, now: float, ttl: float) -> None:
        # what can be read is worth more than its next day: no lock is waited for, no failure reported
        if not self._one_thread.acquire(blocking=False):
            return
        self._sql("PRAGMA busy_timeout = 0")
        try:
            with suppress(sqlite3.OperationalError):
                self.use((key,), now, ttl)
        finally:
            self._sql(f"PRAGMA busy_timeout = {int(self._busy * 1000)}")
            self._one_thread.release()

    def write(self, values: Mapping[str, bytes], now: float, ttl: float, room: tuple[int, float]) -> None:
        """Set values, all or none, where `room` is the bound in bytes and the protected time in seconds."""
        with self.writing() as connection:
            for key, value in values.items():
                self._set(connection, key, value, now, ttl, room)

    def add(self, key: str, value: bytes, now: float, ttl: float, room: tuple[int, float]) -> bytes:
        """Set a value where there is none; what is there then."""
        known = self.read(key, now, ttl)
        if known is not None:
            return known
        with self.writing(synced=False) as connection:
            known = self.read(key, now, None)
            if known is None:
                self._set(connection, key, value, now, ttl, room)
        return value if known is None else known

    def _set(
        self,
        connection: sqlite3.Connection,
        key: str,
        value: bytes,
        now: float,
        ttl: float,
        room: tuple[int, float],
    ) -> None:
        connection.execute(
            "DELETE FROM Cache WHERE rowid IN (SELECT rowid FROM Cache WHERE expire_time <= ? LIMIT ?)",
            (now, _AT_ONCE),
        )
        self._make_room(connection, key, len(value) + _PAGES, now, room)
        connection.execute(
            "INSERT INTO Cache (key, raw, mode, expire_time, access_time, value) VALUES (?, 1, 1, ?, ?, ?)"
            " ON CONFLICT (key, raw) DO UPDATE SET"
            " expire_time = excluded.expire_time, access_time = excluded.access_time, value = excluded.value",
            (key, now + ttl, now, value),
        )

    def _make_room(
        self, connection: sqlite3.Connection, key: str, needed: int, now: float, room: tuple[int, float]
    ) -> None:
        limit, protected = room
        while self.used_bytes() + needed > limit:
            oldest = connection.execute(
                "SELECT rowid FROM Cache WHERE access_time <= ? AND key <> ? ORDER BY access_time LIMIT 1",
                (now - protected, key),
            ).fetchone()
            if oldest is None:
                raise StoreError("full")
            connection.execute("DELETE FROM Cache WHERE rowid = ?", oldest)

    def is_short(self, limit: int, since: float) -> bool:
        """Whether the database is nearly full, of what was used since then."""
        (oldest,) = self._sql("SELECT min(access_time) FROM Cache").fetchone()
        return oldest is not None and oldest > since and self.used_bytes() >= FULL * limit

    def used_bytes(self) -> int:
        """Bytes of the database that hold something."""
        pages, free, size = (self._sql(f"PRAGMA {name}").fetchone()[0] for name in _MEASURES)
        return int((pages - free) * size)

    def use(self, keys: Collection[str], now: float, ttl: float) -> frozenset[str]:
        with self.writing(synced=False) as connection:
            return frozenset(
                key
                for key in keys
                if connection.execute(
                    "UPDATE Cache SET access_time = ?, expire_time = ? WHERE key = ? AND raw = 1 AND expire_time > ?",
                    (now, now + ttl, key, now),
                ).rowcount
            )

    def drop(self, keys: Collection[str]) -> None:
        with self.writing() as connection:
            connection.executemany("DELETE FROM Cache WHERE key = ?", [(key,) for key in keys])

    def names(self, prefix: str, now: float, limit: int, *, latest: bool = False) -> tuple[str, ...]:
        """The keys that start with a prefix: in their order, or those used last, the latest first."""
        # the sign keeps the planner on the keys: by time it would read the whole table
        order = "+access_time DESC" if latest else "key"
        rows = self._sql(
            f"SELECT key FROM Cache WHERE raw = 1 AND key >= ? AND key < ? AND expire_time > ? "  # noqa: S608
            f"ORDER BY {order} LIMIT ?",
            (prefix, prefix + chr(0x10FFFF), now, limit),
        )
        return tuple(key for (key,) in rows)
