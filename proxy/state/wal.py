"""SQLite files that several processes write.

They are opened in write-ahead mode, so that readers and one writer do not wait for each other, and begun anew by one
process where they are broken.
"""

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Literal, TypeVar

from proxy.state.sqlite import cause_of, identity, make_private
from proxy.state.store import StoreError

T = TypeVar("T")

BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
"""SQLite's codes for a file that is no database, or no whole one."""

_AGAIN = 0.005
"""Seconds between two tries."""
_MOST_WAITING = 512
"""Calls that may wait for a database's thread; more are refused at once."""


class SharedFile:
    """One SQLite file, for all workers of one machine. Blocking; any thread may call, and one at a time works.

    Opened by the first call, and again where it was removed, replaced or failed. A file that is broken is set aside,
    begun anew, and the work done with that. The directory must be on a local disk.
    """

    def __init__(
        self,
        file: Path | None,
        schema: str,
        *,
        synchronous: Literal["OFF", "NORMAL"],
        busy: float = 1.0,
        keeps_broken: bool = False,
    ) -> None:
        """Without a file the database ends with the process, and is on disk only as far as it is large.

        `busy` is in seconds. With `keeps_broken` a broken file stays beside the new one.
        """
        self._file, self._schema, self._synchronous, self._busy = file, schema, synchronous, busy
        self._keeps_broken = keeps_broken
        self._lock = Lock()
        self._database: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._closed = False
        self.repaired = 0
        """The number of broken files that this process has set aside."""

    def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """Do work in one transaction; where it `writes`, no other writer interrupts it. Raise `StoreError`."""
        with self._lock:
            for attempt in (0, 1):
                try:
                    database = self._opened()
                    with database:
                        database.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                        return work(database)
                except (sqlite3.Error, OSError) as error:
                    cause = cause_of(error)
                    if cause != "locked":
                        self._drop()
                    if cause != "corrupted" or attempt or not self._begin_anew():
                        raise StoreError(cause) from error
            raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the file; later work raises `closed`."""
        with self._lock:
            self._closed = True
            self._drop()

    def _opened(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError("closed")
        # a database whose file was removed or replaced takes writes as before, and shares them with nobody
        if self._database is None or (self._file is not None and identity(self._file) != self._identity):
            self._drop()
            if self._file is None:
                self._database = _connect("", self._busy, self._synchronous, self._schema)
            else:
                self._database = connect(
                    self._file, busy=self._busy, synchronous=self._synchronous, schema=self._schema
                )
                self._identity = identity(self._file)
        return self._database

    def _begin_anew(self) -> bool:
        if self._file is None:
            return False
        try:
            if set_aside(self._file, busy=self._busy):
                self.repaired += 1
                if not self._keeps_broken:
                    self._file.with_name(f"{self._file.name}.broken").unlink(missing_ok=True)
        except (sqlite3.Error, OSError):
            return False
        return True

    def _drop(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


class Database:
    """A `SharedFile`, and the thread of this process that works with it. Nothing in it is worth refusing work for."""

    def __init__(
        self, file: Path | None, schema: str, *, name: str, synchronous: Literal["OFF", "NORMAL"], busy: float = 1.0
    ) -> None:
        """As of `SharedFile`; `name` is the thread's."""
        self._shared = SharedFile(file, schema, synchronous=synchronous, busy=busy)
        # one thread: SQLite lets one write at a time anyway
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"penstock-{name}")
        self._waiting = 0
        self._closed = False

    async def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """Do work in one transaction; where it `writes`, no other writer interrupts it. Raise `StoreError`."""
        if self._closed:
            raise StoreError("closed")
        if self._waiting >= _MOST_WAITING:
            raise StoreError("busy")
        self._waiting += 1
        try:
            run = partial(self._shared.run, work, writes=writes)
            return await asyncio.get_running_loop().run_in_executor(self._thread, run)
        finally:
            self._waiting -= 1

    async def tidy(self) -> None:
        """Bring what was written into the file itself, so that nothing that was overwritten is left beside it."""

        def work(database: sqlite3.Connection) -> None:
            database.execute("COMMIT")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        await self.run(work)

    async def aclose(self) -> None:
        """End the thread, and with it the connection; what is being written is finished first."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._shared.close)
            self._thread.shutdown(wait=False)


def connect(file: Path, *, busy: float, synchronous: Literal["OFF", "NORMAL"], schema: str = "") -> sqlite3.Connection:
    """Return a connection in autocommit mode that any thread may use; directory and `schema` are made where missing.

    Statements wait `busy` seconds for another process's lock. Raises `sqlite3.Error` and `OSError`.
    """
    make_private(file.parent)
    with _held(file, fcntl.LOCK_SH):
        return _connect(os.fspath(file), busy, synchronous, schema)


def set_aside(file: Path, *, busy: float) -> bool:
    """Rename a broken file, so that the next connection begins it anew; return whether this process did.

    Of several processes that find it broken, one does. Raise `sqlite3.Error` and `OSError`.
    """
    # who opened a file while its parts go one by one would write where nobody looks
    with _held(file, fcntl.LOCK_EX):
        if not _is_broken(file, busy):
            return False
        os.replace(file, file.with_name(f"{file.name}.broken"))
        for rest in ("-wal", "-shm"):
            file.with_name(file.name + rest).unlink(missing_ok=True)
        return True


def _is_broken(file: Path, busy: float) -> bool:
    try:
        with closing(_connect(os.fspath(file), busy, "NORMAL", "")) as database:
            return bool(database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError as error:
        return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in BROKEN


@contextmanager
def _held(file: Path, kind: int) -> Iterator[None]:
    """Keep other processes from setting the file aside, or, with LOCK_EX, also from opening it."""
    with file.with_name("repair.lock").open("w") as lock:
        fcntl.flock(lock, kind)
        yield


def _connect(name: str, busy: float, synchronous: str, schema: str) -> sqlite3.Connection:
    database = sqlite3.connect(name, timeout=busy, isolation_level=None, check_same_thread=False)
    try:
        _turn(database, busy)
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.executescript(schema)
    except BaseException:
        database.close()
        raise
    return database


def _turn(database: sqlite3.Connection, busy: float) -> None:
    # Two that open a new file at once may each hold what the other needs: SQLite then refuses one of them without
    # waiting (https://www.sqlite.org/c3ref/busy_handler.html), so the wait is here.
    until = time.monotonic() + busy
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if (error.sqlite_errorcode & 0xFF) != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_AGAIN)
