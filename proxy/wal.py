"""SQLite files that several processes write: opened in write-ahead mode, so that readers and one writer do not wait for
each other."""

import os
import sqlite3
import time
from pathlib import Path
from typing import Literal

_AGAIN = 0.005
"""Seconds between two tries."""


def connect(file: Path | None, *, busy: float, synchronous: Literal["OFF", "NORMAL"]) -> sqlite3.Connection:
    """A connection in autocommit mode that any thread may use; its directory is made if it is missing (0700).

    Statements wait `busy` seconds for another process's lock. Without a file the database is in memory. Raises
    `sqlite3.Error` and `OSError`.
    """
    if file is not None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.parent.stat().st_mode & 0o077:
            file.parent.chmod(0o700)
    name = ":memory:" if file is None else os.fspath(file)
    database = sqlite3.connect(name, timeout=busy, isolation_level=None, check_same_thread=False)
    try:
        _turn(database, busy)
        database.execute(f"PRAGMA synchronous = {synchronous}")
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
