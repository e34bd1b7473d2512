"""SQLite files that all workers of one machine share.

They are in write-ahead mode, so that readers and one writer do not wait for each other. The directory must be on a
local disk: SQLite's locks do not hold on a network's.
"""

import asyncio
import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from proxy.state.store import Cause, StoreError

T = TypeVar("T")

BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
"""SQLite's codes for a file that is no database, or no whole one."""

MOST_WAITING = 512
"""Calls that may wait for a database's threads; more are refused at once."""

_USED = (
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
)

_AGAIN = 0.005
_LARGEST_LOG = 2**24
"""Bytes of the write-ahead log that stay on disk when it is empty."""
_CACHE = 512
"""KiB of pages that a connection keeps. The system has all of them in memory anyway."""
_KEEP_OPEN: frozenset[Cause] = frozenset({"full", "locked"})
"""Failures that say nothing against the open file."""

_SQLITE: dict[int, Cause] = {
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_FULL: "full",
    **dict.fromkeys(BROKEN, "corrupted"),
}
_SYSTEM: dict[int, Cause] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read_only",
    errno.EACCES: "read_only",
    errno.EPERM: "read_only",
}


class Database:
    """One SQLite file, and this process's connections to it. Opened anew where it was replaced or failed."""

    def __init__(
        self,
        file: Path | None,
        schema: str,
        *,
        name: str,
        threads: int = 1,
        synchronous: Literal["OFF", "NORMAL"] = "NORMAL",
        busy: float = 1.0,
        replaces_broken: bool = True,
    ) -> None:
        """Without a file it is in memory. Of two threads one writes; without any, callers do the work.

        `busy` is in seconds.
        """
        self._file, self._schema, self._synchronous, self._busy = file, schema, synchronous, busy
        self._replaces_broken = replaces_broken
        self._lanes = [_Lane(name, has_thread=threads > 0) for _ in range(max(1, threads))]
        self._opening = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._closed = False
        self.losses = 0
        """The number of times that the file was removed or replaced."""

    async def run(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        writes: bool = True,
        synced: bool = False,
        waits: bool = True,
    ) -> T:
        """Do work in one transaction, by default with a lock. A loss of power may undo it unless it is `synced`."""
        if self._closed:
            raise StoreError("closed")
        lane = self._lanes[0 if writes else -1]
        job = partial(self._do, lane, work, writes, synced, waits)
        if lane.threads is None:
            return job()
        if lane.waiting >= (MOST_WAITING if waits else 1):
            raise StoreError("busy" if waits else "locked")
        lane.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(lane.threads, job)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():  # not the caller, the work was cancelled
                raise StoreError("closed") from None
            raise
        finally:
            lane.waiting -= 1

    async def tidy(self) -> None:
        """Bring what was written into the file itself, so that nothing that was overwritten is left beside it."""

        def work(database: sqlite3.Connection) -> None:
            database.execute("COMMIT")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        await self.run(work)

    async def aclose(self) -> None:
        """End the threads and close the connections; what is being written is finished first."""
        self._closed = True
        for lane in self._lanes:
            await asyncio.to_thread(lane.close)

    def _do(self, lane: "_Lane", work: Callable[[sqlite3.Connection], T], writes: bool, synced: bool, waits: bool) -> T:
        for attempt in (0, 1):
            try:
                database = self._opened(lane)
                busy = self._busy * waits
                if writes:
                    lane.set("synchronous", "FULL" if synced else self._synchronous)
                    lane.set("busy_timeout", "0")
                with database:
                    _patiently(partial(database.execute, "BEGIN IMMEDIATE" if writes else "BEGIN"), busy)
                    lane.set("busy_timeout", str(int(1000 * busy)))
                    return work(database)
            except (sqlite3.Error, OSError) as error:
                cause = cause_of(error)
                lane.is_doubtful |= cause not in _KEEP_OPEN
                if cause != "corrupted" or attempt or not self._begin_anew():
                    raise StoreError(cause) from error
        raise AssertionError("unreachable")

    def _opened(self, lane: "_Lane") -> sqlite3.Connection:
        # a database whose file was removed or replaced takes writes as before, and shares them with nobody
        known = lane.database if self._file is None or identity(self._file) == lane.file else None
        if known is not None and not lane.is_doubtful:
            return known
        with self._opening:
            try:
                database = connect(self._file, busy=self._busy, schema=self._schema, locks=self._replaces_broken)
            except (sqlite3.Error, OSError):
                if known is None:
                    raise
                return known  # where it cannot be opened again, it may still be read
            before, self._identity = self._identity, None if self._file is None else identity(self._file)
            self.losses += before not in (None, self._identity)
            lane.use(database, self._identity)
        return database

    def _begin_anew(self) -> bool:
        if self._file is None or not self._replaces_broken:
            return False
        try:
            remove_broken(self._file, busy=self._busy)
        except (sqlite3.Error, OSError):
            return False
        return True


class _Lane:
    """One connection, and the thread that works with it."""

    def __init__(self, name: str, *, has_thread: bool) -> None:
        self.threads = ThreadPoolExecutor(1, thread_name_prefix=f"penstock-{name}") if has_thread else None
        self.waiting = 0
        self.is_doubtful = False
        """True after a failure: it is to be opened again, if that can be done."""
        self.database: sqlite3.Connection | None = None
        self.file: tuple[int, int] | None = None
        self._pragmas: dict[str, str] = {}

    def use(self, database: sqlite3.Connection | None, file: tuple[int, int] | None) -> None:
        """Take a connection in place of the one before."""
        if self.database is not None:
            self.database.close()
        self.database, self.file, self.is_doubtful, self._pragmas = database, file, False, {}

    def set(self, pragma: str, value: str) -> None:
        if self.database is not None and self._pragmas.get(pragma) != value:
            self.database.execute(f"PRAGMA {pragma} = {value}")
            self._pragmas[pragma] = value

    def close(self) -> None:
        if self.threads is not None:
            self.threads.shutdown(wait=True, cancel_futures=True)
        self.use(None, None)


def identity(file: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of the same name; None where there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def make_private(directory: Path) -> None:
    """Make a directory where it is missing, and close it to other users (0700)."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


def cause_of(error: Exception) -> Cause:
    """Return why a database or its directory did not do what was asked, in a word."""
    if isinstance(error, OSError):
        return _SYSTEM.get(error.errno or 0, "unreachable")
    return _SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "unreachable")


def used_bytes(database: sqlite3.Connection) -> int:
    """Return the bytes in use."""
    (used,) = database.execute(_USED).fetchone()
    return int(used)


def connect(file: Path | None, *, busy: float, schema: str = "", locks: bool = True) -> sqlite3.Connection:
    """Return a connection in autocommit mode that any thread may use. Raises `sqlite3.Error` and `OSError`.

    With `locks`, it waits while another process removes a broken file.
    """
    if file is None:
        return _connect(":memory:", busy, schema)
    make_private(file.parent)
    with _locked(file, fcntl.LOCK_SH) if locks else nullcontext():
        return _connect(os.fspath(file), busy, schema)


def remove_broken(file: Path, *, busy: float) -> bool:
    """Remove a broken file, and return whether this process did. Raise `sqlite3.Error` and `OSError`."""
    # who opened a file while its parts go one by one would write where nobody looks
    with _locked(file, fcntl.LOCK_EX):
        is_broken = _is_broken(file, busy)
        for part in ("", "-wal", "-shm") if is_broken else ():
            file.with_name(file.name + part).unlink(missing_ok=True)
        return is_broken


def _is_broken(file: Path, busy: float) -> bool:
    try:
        with closing(_connect(os.fspath(file), busy, "")) as database:
            return bool(database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError as error:
        return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in BROKEN


@contextmanager
def _locked(file: Path, kind: int) -> Iterator[None]:
    """Keep other processes from removing the file, or, with LOCK_EX, also from opening it."""
    with file.with_name("repair.lock").open("w") as lock:
        fcntl.flock(lock, kind)
        yield


def _connect(name: str, busy: float, schema: str) -> sqlite3.Connection:
    database = sqlite3.connect(name, timeout=busy, isolation_level=None, check_same_thread=False)
    try:
        _patiently(partial(database.execute, "PRAGMA journal_mode = WAL"), busy)
        database.execute(f"PRAGMA journal_size_limit = {_LARGEST_LOG}")
        database.execute(f"PRAGMA cache_size = -{_CACHE}")
        _patiently(partial(database.executescript, schema), busy)
    except BaseException:
        database.close()
        raise
    return database


def _patiently(work: Callable[[], object], busy: float) -> None:
    """Do what needs a lock, tried again at short intervals.

    SQLite's own grow to 100 ms: while another process writes all the time, one may never be lucky. And of two that
    open a new file at once, each may hold what the other needs: it then refuses one of them without waiting
    (https://www.sqlite.org/c3ref/busy_handler.html).
    """
    until = time.monotonic() + busy
    while True:
        try:
            work()
            return
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_AGAIN)
