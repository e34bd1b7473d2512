"""Counts that workers share, for rates and budgets: in this process, or in a file for all workers of one machine.

A count is worth little: losing one lets a client have a little more. So nothing here waits for a disk.
"""

import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from proxy.state.database import Database

BUSY = 1.0
"""Seconds to wait for another process's lock; less than a request waits for its counts."""
_SWEEP = 60.0
"""Seconds between two removals of what is forgotten."""

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS counts (key TEXT PRIMARY KEY, value REAL NOT NULL, expires REAL NOT NULL) WITHOUT ROWID"
)
_ADD = """
INSERT INTO counts (key, value, expires) VALUES (:key, :amount, :expires) ON CONFLICT (key) DO UPDATE SET
value = CASE WHEN expires <= :now THEN excluded.value ELSE value + excluded.value END, expires = excluded.expires
RETURNING value
"""

_READ = "SELECT value FROM counts WHERE key = ? AND expires > ?"


class Counters(Protocol):
    """Counts that all who share the state share: for rates and budgets."""

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float]:
        """Add to counts and return their new values; each is forgotten after `ttl` seconds. Raise `StoreError`."""

    async def read(self, keys: Collection[str]) -> Mapping[str, float]:
        """Return several counts, 0 where there is none; nothing is added or used. Raise `StoreError`."""

    async def aclose(self) -> None:
        pass


class SqliteCounters:
    """Counts in a SQLite file for all workers of one machine, or in memory. A loss of power may lose them."""

    def __init__(self, directory: Path | None, *, busy: float = BUSY, clock: Callable[[], float] = time.time) -> None:
        file, threads = (None, 0) if directory is None else (directory / "counters.db", 1)
        self._database = Database(file, _SCHEMA, name="counters", threads=threads, synchronous="OFF", busy=busy)
        self._clock = clock
        self._swept = 0.0

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float]:
        given = dict(amounts)
        return await self._database.run(lambda database: self._written(database, given, ttl))

    async def read(self, keys: Collection[str]) -> Mapping[str, float]:
        asked = tuple(keys)
        return await self._database.run(lambda database: self._counts(database, asked))

    async def aclose(self) -> None:
        await self._database.aclose()

    def _written(self, database: sqlite3.Connection, amounts: Mapping[str, float], ttl: float) -> dict[str, float]:
        now = self._clock()
        if now - self._swept >= _SWEEP:
            self._swept = now
            database.execute("DELETE FROM counts WHERE expires <= ?", (now,))
        sums: dict[str, float] = {}
        for key, amount in sorted(amounts.items()):
            row = {"key": key, "amount": amount, "expires": now + ttl, "now": now}
            sums[key] = database.execute(_ADD, row).fetchone()[0]
        return sums

    def _counts(self, database: sqlite3.Connection, keys: Collection[str]) -> dict[str, float]:
        now = self._clock()
        rows = ((key, database.execute(_READ, (key, now)).fetchone()) for key in keys)
        return {key: 0.0 if row is None else row[0] for key, row in rows}
