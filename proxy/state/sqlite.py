"""The embedded store: a directory that all workers of one machine share, one SQLite database.

The directory must be on a local disk: SQLite's locks do not hold on a network's.
"""

import asyncio
import errno
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from proxy.state.rows import DATABASE, Rows
from proxy.state.store import LARGEST_SHARE, PASSING, PROTECTED, SHORT, Cause, StoreError
from proxy.state.warnings import Warnings

logger = logging.getLogger("penstock.state")

T = TypeVar("T")

BUSY = 1.0
"""Seconds to wait for another process's lock; less than a chain may take."""
THREADS = 2
MOST_WAITING = 512
"""Calls that may wait for a thread; more are refused at once."""

_LOOK = 10.0
"""Seconds that a look may take."""

_SQLITE: dict[int, Cause] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_CORRUPT: "corrupted",
    sqlite3.SQLITE_NOTADB: "corrupted",
    sqlite3.SQLITE_FORMAT: "corrupted",
}
_SYSTEM: dict[int, Cause] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read_only",
    errno.EACCES: "read_only",
    errno.EPERM: "read_only",
}


class DiskStore:
    """A `Store` in a directory, for all workers of one machine.

    What `put` has returned from survives the end of the process and of the machine: SQLite has synced it. Opened by
    the first call, in a thread, and again after a failure that a repaired directory would end.
    """

    def __init__(
        self,
        directory: Path,
        max_bytes: int,
        *,
        protected: float = PROTECTED,
        busy: float = BUSY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_bytes` bounds the database file, `protected` and `busy` are in seconds; `clock` is all workers' own.

        The directory is made if it is missing, and closed to other users (0700).
        """
        self._directory = directory
        self._room = (max_bytes, protected)
        self._busy = busy
        self._clock = clock
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="penstock-store")
        self._opening = Lock()
        self._rows: Rows | None = None
        self._doubtful = False
        self._file: tuple[int, int] | None = None
        self._waiting = 0
        self._closed = False
        self._warnings = Warnings(logger, "state degraded")
        self.losses = 0
        """The number of times that the file was removed or replaced."""
        self.degraded: Cause | None = None
        """Why it cannot be read or written; `full` also where it is about to be, as of the last look."""

    async def get(self, key: str, *, ttl: float | None = None) -> bytes | None:
        return await self._run(lambda rows: rows.read(key, self._clock(), ttl))

    async def put(self, key: str, value: bytes, *, ttl: float) -> None:
        await self.put_all({key: value}, ttl=ttl)

    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        if max(map(len, values.values()), default=0) > self._room[0] // LARGEST_SHARE:
            raise StoreError("too_large")
        await self._run(lambda rows: rows.write(values, self._clock(), ttl, self._room))

    async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
        if len(value) > self._room[0] // LARGEST_SHARE:
            raise StoreError("too_large")
        return await self._run(lambda rows: rows.add(key, value, self._clock(), ttl, self._room))

    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        return await self._run(lambda rows: rows.use(keys, self._clock(), ttl)) if keys else frozenset()

    async def delete(self, keys: Collection[str]) -> None:
        await self._run(lambda rows: rows.drop(keys))

    async def keys(self, prefix: str, *, limit: int = 1000) -> tuple[str, ...]:
        return await self._run(lambda rows: rows.names(prefix, self._clock(), limit))

    async def latest(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        return await self._run(lambda rows: rows.names(prefix, self._clock(), limit, latest=True))

    async def look(self) -> None:
        """Find out whether it takes writes, also where no request asks."""
        try:
            async with asyncio.timeout(_LOOK):
                await self.put("probe", b"", ttl=_LOOK)
                is_short = await self._run(lambda rows: rows.is_short(self._room[0], self._clock() - SHORT))
            self.degraded = "full" if is_short else None
            if is_short:
                self._warnings.warn(cause="full")
        except TimeoutError:
            self.degraded = "unreachable"
        except StoreError:
            pass  # noted where it was raised

    async def aclose(self) -> None:
        """End the threads; what is being written is finished first, and goes to the database file itself."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown, wait=True, cancel_futures=True)
        if self._rows is not None:
            with suppress(sqlite3.Error, OSError):
                await asyncio.to_thread(self._rows.settle)
        self._rows = None

    async def _run(self, work: Callable[[Rows], T]) -> T:
        if self._closed:
            raise StoreError("closed")
        if self._waiting >= MOST_WAITING:
            raise StoreError("busy")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work)
        except StoreError as error:
            if error.cause not in PASSING:
                self.degraded = error.cause
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():  # not the caller, the work was cancelled
                raise StoreError("closed") from None
            raise
        finally:
            self._waiting -= 1

    def _work(self, work: Callable[[Rows], T]) -> T:
        try:
            return work(self._opened())
        except (sqlite3.Error, OSError) as error:
            cause = cause_of(error)
            if cause not in {"full", "locked"}:
                self._doubtful = True
            raise StoreError(cause) from error

    def _opened(self) -> Rows:
        with self._opening:
            # a database whose file was removed or replaced takes writes as before, and loses them
            if self._rows is None or self._doubtful or identity(self._directory / DATABASE) != self._file:
                try:
                    self._rows = _open(self._directory, self._room[0], self._busy)
                    before, self._file, self._doubtful = self._file, identity(self._directory / DATABASE), False
                    self.losses += before not in (None, self._file)
                except (sqlite3.Error, OSError):
                    if self._rows is None or identity(self._directory / DATABASE) != self._file:
                        raise
            # where it cannot be opened again, what was open may still be read
            return self._rows


def identity(file: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of the same name; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def make_private(directory: Path) -> None:
    """Make a directory where it is missing, and close it to other users (0700)."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


def _open(directory: Path, max_bytes: int, busy: float) -> Rows:
    make_private(directory)
    database = directory / DATABASE
    if database.exists():  # opening repeats itself for a minute where another process holds the lock
        with closing(sqlite3.connect(database, timeout=busy, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    return Rows(os.fspath(directory.absolute()), max_bytes, busy)


def cause_of(error: Exception) -> Cause:
    """Why a database or its directory did not do what was asked, in a word."""
    if isinstance(error, OSError):
        return _SYSTEM.get(error.errno or 0, "unreachable")
    return _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "unreachable")
