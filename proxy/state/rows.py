"""The rows of the embedded store, in one SQLite file: a write is one transaction, whole or absent whenever the process
dies. Reading a row that somebody else wrote unpickles nothing and opens no file.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import local

from proxy.state.store import FULL, StoreError
from proxy.state.wal import connect

DATABASE = "cache.db"
"""The name of the file that holds everything."""

_RAW = 1
"""The mode of a value that is in the row itself, as it is."""
_PAGES = 3 * 4096
"""Bytes that a row takes at most besides its value: parts of pages, and its place in the indices."""
_AT_ONCE = 64
"""Expired rows that one write removes."""
_MEASURES = ("page_count", "freelist_count", "page_size")
_SCHEMA = """
PRAGMA cache_size = 1024;
PRAGMA journal_size_limit = 16777216;
CREATE TABLE IF NOT EXISTS Cache (
  rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, expire_time REAL, access_time REAL,
  access_count INTEGER DEFAULT 0, tag BLOB, size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0, filename TEXT, value BLOB
);
CREATE UNIQUE INDEX IF NOT EXISTS Cache_key_raw ON Cache (key, raw);
CREATE INDEX IF NOT EXISTS Cache_expire_time ON Cache (expire_time);
CREATE INDEX IF NOT EXISTS Cache_access_time ON Cache (access_time);
"""
"""The table of diskcache, which kept the rows before: its files are read on."""


class Rows:
    """The rows, in transactions. Any thread may call; each has a connection of its own."""

    def __init__(self, file: Path, busy: float) -> None:
        """Open or make the database. `busy` is in seconds. Raises `sqlite3.Error` and `OSError`."""
        self._file, self._busy = file, busy
        self._mine, self._made = local(), list[sqlite3.Connection]()
        self._connection()

    def close(self) -> None:
        """Close the connections, which no thread may be using any more."""
        for each in self._made:
            each.close()

    def _sql(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self._connection().execute(statement, values)

    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._mine, "connection"):
            made = connect(self._file, busy=self._busy, synchronous="FULL", schema=_SCHEMA, shrinks=True)
            self._mine.connection = made
            self._made.append(made)
        known: sqlite3.Connection = self._mine.connection
        return known

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other writer interrupts; undone if anything is raised."""
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection

    def read(self, key: str, now: float, ttl: float | None) -> bytes | None:
        """A value, used if `ttl` says so and its last use is not of this very moment."""
        row = self._sql(
            "SELECT mode, filename, value, access_time FROM Cache WHERE key = ? AND raw = 1 AND expire_time > ?",
            (key, now),
        ).fetchone()
        if row is None:
            return None
        mode, filename, stored, used = row
        if mode != _RAW or filename is not None or type(stored) is not bytes:
            raise StoreError("corrupted")
        if ttl is not None and now - used > min(60.0, ttl / 10):
            self._use_at_once(key, now, ttl)
        return stored

    def _use_at_once(self, key: str, now: float, ttl: float) -> None:
        # what can be read is worth more than its next day: no lock is waited for, no failure reported
        self._sql("PRAGMA busy_timeout = 0")
        try:
            with suppress(sqlite3.OperationalError):
                self.use((key,), now, ttl)
        finally:
            self._sql(f"PRAGMA busy_timeout = {int(self._busy * 1000)}")

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
        with self.writing() as connection:
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
            "INSERT INTO Cache (key, raw, store_time, expire_time, access_time, mode, value)"
            " VALUES (?, 1, ?, ?, ?, ?, ?) ON CONFLICT (key, raw) DO UPDATE SET store_time = excluded.store_time,"
            " expire_time = excluded.expire_time, access_time = excluded.access_time, mode = excluded.mode,"
            " filename = NULL, value = excluded.value",
            (key, now, now + ttl, now, _RAW, value),
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
        """Touch values; those that are there."""
        with self.writing() as connection:
            return frozenset(
                key
                for key in keys
                if connection.execute(
                    "UPDATE Cache SET access_time = ?, expire_time = ? WHERE key = ? AND raw = 1 AND expire_time > ?",
                    (now, now + ttl, key, now),
                ).rowcount
            )

    def drop(self, keys: Collection[str]) -> None:
        """Remove values."""
        with self.writing() as connection:
            connection.executemany("DELETE FROM Cache WHERE key = ?", [(key,) for key in keys])

    def names(self, prefix: str, now: float, limit: int, *, latest: bool = False) -> tuple[str, ...]:
        """The keys that start with a prefix: in their order, or those used last, the latest first."""
        # the sign keeps the planner on the keys: by time it would read the whole table
        order = "+access_time DESC" if latest else "key"
        rows = self._sql(
            f"SELECT key, raw FROM Cache WHERE key >= ? AND key < ? AND expire_time > ? ORDER BY {order} LIMIT ?",  # noqa: S608
            (prefix, prefix + chr(0x10FFFF), now, limit),
        )
        found = tuple(rows)
        if any(raw != 1 or type(key) is not str for key, raw in found):
            raise StoreError("corrupted")
        return tuple(key for key, _ in found)
