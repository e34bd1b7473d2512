"""The rows of the embedded store: diskcache's table, without its pickles, its files and its eviction.

Every value is a row of one SQLite file, none is a file of its own: so a write is one transaction, whole or absent
whenever the process dies, and no row can name a path. Nothing is ever unpickled.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any

import diskcache  # type: ignore[import-untyped]

from proxy.state.store import FULL, StoreError

DATABASE: str = diskcache.core.DBNAME
"""The name of the file that holds everything."""

_RAW = 1
"""diskcache's mode of a value that is in the row itself, as it is."""
_PAGES = 3 * 4096
"""Bytes that a row takes at most besides its value: parts of pages, and its place in the indices."""
_AT_ONCE = 64
"""Expired rows that one write removes."""
_MEASURES = ("page_count", "freelist_count", "page_size")
_OPTIONS: dict[str, Any] = {
    "eviction_policy": "least-recently-used",  # makes the index; the eviction is ours
    "cull_limit": 0,
    "sqlite_cache_size": 1024,  # pages, of each thread's connection: by default each would come to hold 32 MB
    "sqlite_mmap_size": 0,  # reading a mapped file that was cut short would end the process
    "sqlite_journal_size_limit": 2**24,
}


class BytesDisk(diskcache.Disk):  # type: ignore[misc]
    """Text as keys, bytes as values, both as they are. Any other row is refused, whoever wrote it."""

    def put(self, key: object) -> tuple[str, bool]:
        if type(key) is not str:
            raise TypeError("a key is text")
        return key, True

    def get(self, key: object, raw: object) -> str:
        if raw != 1 or type(key) is not str:
            raise StoreError("corrupted")
        return key

    def store(self, value: object, read: bool, key: object = None) -> tuple[int, int, None, bytes]:
        if read or type(value) is not bytes:
            raise TypeError("a value is bytes")
        return 0, _RAW, None, value

    def fetch(self, mode: object, filename: object, value: object, read: bool) -> bytes:
        if mode != _RAW or filename is not None or read or type(value) is not bytes:
            raise StoreError("corrupted")
        return value

    def remove(self, file_path: object) -> None:
        """Remove no file: no value has one."""


class Rows(diskcache.Cache):  # type: ignore[misc]
    """The rows of diskcache's table, in transactions of ours.

    diskcache's own eviction may take the row that was just written, and its `touch` does not count as a use.
    """

    def __init__(self, directory: str, max_bytes: int, busy: float) -> None:
        """Open or make the database, waiting up to a minute for others who do so. `busy` is in seconds."""
        super().__init__(directory, timeout=busy, disk=BytesDisk, size_limit=max_bytes, **_OPTIONS)
        # SQLite's lock is asked for again and again: of two busy threads one may never be lucky
        self._one_thread = RLock()

    def settle(self) -> None:
        """Move to the file itself what is still in its log, unless another process is at it; for the end."""
        self._sql("PRAGMA wal_checkpoint(TRUNCATE)")
        self.close()

    @contextmanager
    def writing(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """Give a transaction that no other writer interrupts; undone if anything is raised.

        Unless it is `synced`, a loss of power may undo it, and nothing else; what is synced later takes it along.
        """
        connection: sqlite3.Connection = self._con
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
        """Return a value, used if `ttl` says so and its last use is not of this very moment."""
        row = self._sql(
            "SELECT mode, filename, value, access_time FROM Cache WHERE key = ? AND raw = 1 AND expire_time > ?",
            (key, now),
        ).fetchone()
        if row is None:
            return None
        mode, filename, stored, used = row
        value: bytes = self.disk.fetch(mode, filename, stored, read=False)
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
            self._sql(f"PRAGMA busy_timeout = {int(self.timeout * 1000)}")
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
        size, mode, filename, stored = self.disk.store(value, False)
        connection.execute(
            "DELETE FROM Cache WHERE rowid IN (SELECT rowid FROM Cache WHERE expire_time <= ? LIMIT ?)",
            (now, _AT_ONCE),
        )
        self._make_room(connection, key, len(value) + _PAGES, now, room)
        connection.execute(
            "INSERT INTO Cache (key, raw, store_time, expire_time, access_time, size, mode, filename, value)"
            " VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key, raw) DO UPDATE SET"
            " store_time = excluded.store_time, expire_time = excluded.expire_time,"
            " access_time = excluded.access_time, size = excluded.size, mode = excluded.mode,"
            " filename = excluded.filename, value = excluded.value",
            (key, now, now + ttl, now, size, mode, filename, stored),
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
        """Return whether the database is nearly full of values that were used since then."""
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
        """Return the keys that start with a prefix: in their order, or those used last, the latest first."""
        # the sign keeps the planner on the keys: by time it would read the whole table
        order = "+access_time DESC" if latest else "key"
        rows = self._sql(
            f"SELECT key, raw FROM Cache WHERE key >= ? AND key < ? AND expire_time > ? ORDER BY {order} LIMIT ?",  # noqa: S608
            (prefix, prefix + chr(0x10FFFF), now, limit),
        )
        return tuple(self.disk.get(key, raw) for key, raw in rows)
