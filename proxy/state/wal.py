"""SQLite files that several processes write: opened in write-ahead mode, so that readers and one writer do not wait for
each other, and begun anew by one of them where they are broken."""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
"""SQLite's codes for a file that is no database, or no whole one."""

_AGAIN = 0.005
"""Seconds between two tries."""


def connect(
    file: Path | None, *, busy: float, synchronous: Literal["OFF", "NORMAL"], schema: str = ""
) -> sqlite3.Connection:
    """A connection in autocommit mode that any thread may use; its directory is made if it is missing (0700).

    The `schema` is made where it is missing.

    Statements wait `busy` seconds for another process's lock. Without a file the database is in memory. Raises
    `sqlite3.Error` and `OSError`.
    """
    if file is None:
        return _connect(":memory:", busy, synchronous, schema)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.parent.stat().st_mode & 0o077:
        file.parent.chmod(0o700)
    with _held(file, fcntl.LOCK_SH):
        return _connect(os.fspath(file), busy, synchronous, schema)


def set_aside(file: Path, *, busy: float) -> bool:
    """Rename a broken file, so that the next connection begins it anew. Of several processes that find it broken, one
    does: whether it was this one. Raises `sqlite3.Error` and `OSError`.
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
