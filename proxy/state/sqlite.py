"""The embedded store and its counters: SQLite files in a directory that all workers of one machine share, or in memory.

`Overlay` reads another store and keeps in memory what is written: for work whose traces nobody must find.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from proxy.state.database import Database, used_bytes
from proxy.state.store import FULL, LARGEST_SHARE, PASSING, PROTECTED, SHORT, Cause, Store, StoreError
from proxy.state.warnings import Warnings
from proxy.text.tables import statements

logger = logging.getLogger("penstock.state")

T = TypeVar("T")

DATABASE = "cache.db"
BUSY = 1.0
"""Seconds to wait for another process's lock; less than a chain may take."""
THREADS = 2

_LOOK = 10.0
_PAGES = 3 * 4096
"""Bytes that a row takes at most besides its value: parts of pages, and its place in the indices."""
_SQL = statements("state")


class SqliteStore(Store):
    """A `Store` in a directory, for all workers of one machine; or in memory, for this process.

    What `put` has returned from survives the end of the process and of the machine: SQLite has synced it. Opened by
    the first call, in a thread, and again after a failure that a repaired directory would end.
    """

    def __init__(
        self,
        directory: Path | None,
        max_bytes: int,
        *,
        protected: float = PROTECTED,
        busy: float = BUSY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_bytes` bounds the database, `protected` and `busy` are in seconds; `clock` is all workers' own."""
        file, threads = (None, 0) if directory is None else (directory / DATABASE, THREADS)
        self._database = Database(file, _SQL["schema"], name="store", threads=threads, busy=busy, replaces_broken=False)
        self._max_bytes, self._protected, self._clock = max_bytes, protected, clock
        self._warnings = Warnings(logger, "state degraded")
        self.degraded: Cause | None = None
        """Why it cannot be read or written; `full` also where it is about to be, as of the last look."""

    @property
    def losses(self) -> int:
        return self._database.losses

    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        if not keys:
            return []
        rows = await self._run(lambda database: [self._read(database, key) for key in keys], writes=False)
        if ttl is not None:
            since = self._clock() - min(60.0, ttl / 10)
            used = [key for key, row in zip(keys, rows, strict=True) if row is not None and row[1] < since]
            if used:  # what can be read is worth more than its next day: no lock is waited for, no failure reported
                with suppress(StoreError):
                    await self._database.run(lambda database: self._use(database, used, ttl), waits=False)
        return [None if row is None else row[0] for row in rows]

    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        self._check(values.values())

        def write(database: sqlite3.Connection) -> None:
            for key, value in values.items():
                self._set(database, key, value, ttl)

        await self._run(write, synced=True)

    async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
        self._check((value,))

        def write(database: sqlite3.Connection) -> bytes:
            if (row := self._read(database, key)) is not None:
                self._use(database, (key,), ttl)
                return row[0]
            self._set(database, key, value, ttl)
            return value

        return await self._run(write)

    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        return await self._run(lambda database: self._use(database, keys, ttl)) if keys else frozenset()

    async def delete(self, keys: Collection[str]) -> None:
        rows = [{"key": key} for key in keys]
        await self._run(lambda database: database.executemany(_SQL["delete"], rows), synced=True)

    async def keys(self, prefix: str, *, limit: int = 1000, latest: bool = False) -> tuple[str, ...]:
        known = {"first": prefix, "end": prefix + chr(0x10FFFF), "now": self._clock(), "limit": limit}
        statement = _SQL["latest" if latest else "keys"]
        rows = await self._run(lambda database: database.execute(statement, known).fetchall(), writes=False)
        return tuple(key for (key,) in rows)

    async def look(self) -> None:
        try:
            async with asyncio.timeout(_LOOK):
                await self.put("probe", b"", ttl=_LOOK)
                is_short = await self._run(self._is_short, writes=False)
            self.degraded = "full" if is_short else None
            if is_short:
                self._warnings.warn(cause="full")
        except TimeoutError:
            self.degraded = "unreachable"
        except StoreError:
            pass  # noted where it was raised

    async def aclose(self) -> None:
        await self._database.aclose()

    async def _run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True, synced: bool = False) -> T:
        try:
            return await self._database.run(work, writes=writes, synced=synced)
        except StoreError as error:
            if error.cause not in PASSING:
                self.degraded = error.cause
            raise

    def _check(self, values: Collection[bytes]) -> None:
        if max(map(len, values), default=0) > self._max_bytes // LARGEST_SHARE:
            raise StoreError("too_large")

    def _read(self, database: sqlite3.Connection, key: str) -> tuple[bytes, float] | None:
        known = {"key": key, "now": self._clock()}
        row: tuple[bytes, float] | None = database.execute(_SQL["get"], known).fetchone()
        if row is not None and type(row[0]) is not bytes:
            raise StoreError("corrupted")
        return row

    def _use(self, database: sqlite3.Connection, keys: Collection[str], ttl: float) -> frozenset[str]:
        known = {"now": self._clock(), "ttl": ttl}
        return frozenset(key for key in keys if database.execute(_SQL["use"], {"key": key, **known}).rowcount)

    def _set(self, database: sqlite3.Connection, key: str, value: bytes, ttl: float) -> None:
        now = self._clock()
        database.execute(_SQL["remove_expired"], {"now": now})
        while used_bytes(database) + len(value) + _PAGES > self._max_bytes:
            if not database.execute(_SQL["remove_oldest"], {"until": now - self._protected, "key": key}).rowcount:
                raise StoreError("full")
        database.execute(_SQL["put"], {"key": key, "value": value, "now": now, "ttl": ttl})

    def _is_short(self, database: sqlite3.Connection) -> bool:
        """Return whether the database is nearly full of values that were used in the last minutes."""
        (oldest,) = database.execute("SELECT min(access_time) FROM Cache").fetchone()
        is_recent = oldest is not None and oldest > self._clock() - SHORT
        return is_recent and used_bytes(database) >= FULL * self._max_bytes


_MOST = 2**28


class Overlay(SqliteStore):
    """A `Store` in memory over one of which nothing is changed, not even when a value was used last."""

    def __init__(self, below: Store) -> None:
        super().__init__(None, _MOST)
        self._below, self._cleared = below, 0

    @property
    def losses(self) -> int:
        return self._below.losses + self._cleared

    async def get_all(self, keys: Sequence[str], *, ttl: float | None = None) -> list[bytes | None]:
        own, below = await super().get_all(keys, ttl=ttl), await self._below.get_all(keys)
        return [old if new is None else new for new, old in zip(own, below, strict=True)]

    async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
        found = await self._below.get(key)
        return await super().add(key, value if found is None else found, ttl=ttl)

    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        own = await super().touch(keys, ttl=ttl)
        return own | {key for key in keys if key not in own and await self._below.get(key) is not None}

    async def keys(self, prefix: str, *, limit: int = 1000, latest: bool = False) -> tuple[str, ...]:
        own = await super().keys(prefix, limit=limit, latest=latest)
        found = dict.fromkeys((*own, *await self._below.keys(prefix, limit=limit, latest=latest)))
        return tuple(found if latest else sorted(found))[:limit]

    async def clear(self) -> None:
        await self._run(lambda database: database.execute("DELETE FROM Cache"))
        self._cleared += 1


_SWEEP = 60.0
"""Seconds between two removals of what is forgotten."""


class SqliteCounters:
    """Counts in a SQLite file for all workers of one machine, or in memory. A loss of power may lose them."""

    def __init__(self, directory: Path | None, *, busy: float = BUSY, clock: Callable[[], float] = time.time) -> None:
        file, threads = (None, 0) if directory is None else (directory / "counters.db", 1)
        self._database = Database(file, _SQL["counts"], name="counters", threads=threads, synchronous="OFF", busy=busy)
        self._clock = clock
        self._swept = 0.0

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float]:
        rows = sorted(amounts.items())

        def write(database: sqlite3.Connection) -> dict[str, float]:
            known = {"now": self._clock(), "ttl": ttl}
            if known["now"] - self._swept >= _SWEEP:
                self._swept = known["now"]
                database.execute(_SQL["remove_counts"], known)
            added = ((key, {"key": key, "amount": amount, **known}) for key, amount in rows)
            return {key: database.execute(_SQL["add_count"], row).fetchone()[0] for key, row in added}

        return await self._database.run(write)

    async def read(self, keys: Collection[str]) -> Mapping[str, float]:
        asked = {key: {"key": key, "now": self._clock()} for key in keys}

        def look(database: sqlite3.Connection) -> dict[str, float]:
            rows = ((key, database.execute(_SQL["read_count"], known).fetchone()) for key, known in asked.items())
            return {key: 0.0 if row is None else row[0] for key, row in rows}

        return await self._database.run(look)

    async def aclose(self) -> None:
        await self._database.aclose()
