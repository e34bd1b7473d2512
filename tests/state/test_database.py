"""Several processes may open the same new database at the same moment: each gets its connection."""

import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from proxy.state.database import BROKEN, connect, remove_broken

TOGETHER = 6
NO_DATABASE = b"no database " * 400
NAMES = "CREATE TABLE IF NOT EXISTS names (name INTEGER)"


@pytest.mark.parametrize("number", range(60))
def test_those_that_open_a_new_file_at_once_all_may_write(tmp_path: Path, number: int) -> None:
    start = Barrier(TOGETHER)

    def write(name: int) -> None:
        start.wait(60)
        with closing(connect(tmp_path / "new.db", busy=60.0, schema=NAMES)) as database:
            database.execute("INSERT INTO names VALUES (?)", (name,))

    with ThreadPoolExecutor(TOGETHER) as threads:
        list(threads.map(write, range(TOGETHER)))
    with closing(connect(tmp_path / "new.db", busy=1.0)) as database:
        assert database.execute("SELECT name FROM names ORDER BY name").fetchall() == [(n,) for n in range(TOGETHER)]
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_of_those_that_find_a_file_broken_one_removes_it(tmp_path: Path) -> None:
    file, start = tmp_path / "broken.db", Barrier(TOGETHER)
    file.write_bytes(NO_DATABASE)

    def write(name: int) -> int:
        start.wait(60)
        aside = 0
        while True:
            try:
                with closing(connect(file, busy=60.0, schema=NAMES)) as database:
                    database.execute("INSERT INTO names VALUES (?)", (name,))
                return aside
            except sqlite3.DatabaseError as error:
                assert error.sqlite_errorcode in BROKEN
                aside += remove_broken(file, busy=60.0)

    with ThreadPoolExecutor(TOGETHER) as threads:
        assert sum(threads.map(write, range(TOGETHER))) == 1
    assert written(file) == [*range(TOGETHER)]


def test_nobody_writes_in_vain_while_a_file_is_remove_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, unlink = tmp_path / "broken.db", Path.unlink
    file.write_bytes(NO_DATABASE)

    def write() -> sqlite3.Connection:
        database = connect(file, busy=60.0, schema=NAMES)
        database.execute("INSERT INTO names VALUES (1)")
        return database

    with ThreadPoolExecutor(1) as thread:
        writing: list[Future[sqlite3.Connection]] = []

        def slowly(path: Path, missing_ok: bool) -> None:
            unlink(path, missing_ok)
            if path != file:
                return
            writing.append(thread.submit(write))
            wait(writing, 0.2)  # it would be done by then, were it not kept waiting

        monkeypatch.setattr(Path, "unlink", slowly)
        assert remove_broken(file, busy=60.0)
        with closing(writing[0].result(60)):
            assert written(file) == [1]


def written(file: Path) -> list[int]:
    with closing(connect(file, busy=60.0)) as database:
        return [name for (name,) in database.execute("SELECT name FROM names ORDER BY name")]


def test_one_that_holds_the_file_is_waited_for_no_longer_than_said(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "held.db", isolation_level=None)) as holder:
        holder.execute("CREATE TABLE held (number INTEGER)")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            connect(tmp_path / "held.db", busy=0.05)


def test_a_file_that_is_no_database_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        connect(tmp_path / "text.db", busy=60.0)
