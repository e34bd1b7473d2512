"""Several processes may open the same new database at the same moment: each gets its connection."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from proxy.wal import connect

TOGETHER = 6


@pytest.mark.parametrize("number", range(60))
def test_those_that_open_a_new_file_at_once_all_may_write(tmp_path: Path, number: int) -> None:
    start = Barrier(TOGETHER)

    def write(name: int) -> None:
        start.wait(10)
        with closing(connect(tmp_path / "new.db", busy=10.0, synchronous="OFF")) as database:
            database.execute("CREATE TABLE IF NOT EXISTS names (name INTEGER)")
            database.execute("INSERT INTO names VALUES (?)", (name,))

    with ThreadPoolExecutor(TOGETHER) as threads:
        list(threads.map(write, range(TOGETHER)))
    with closing(connect(tmp_path / "new.db", busy=1.0, synchronous="OFF")) as database:
        assert database.execute("SELECT name FROM names ORDER BY name").fetchall() == [(n,) for n in range(TOGETHER)]
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_one_that_holds_the_file_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "held.db", isolation_level=None)) as holder:
        holder.execute("CREATE TABLE held (number INTEGER)")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            connect(tmp_path / "held.db", busy=0.05, synchronous="NORMAL")


def test_a_file_that_is_no_database_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        connect(tmp_path / "text.db", busy=60.0, synchronous="OFF")
