"""The store on disk: what may go wrong with a directory, and with the processes that share it."""

import asyncio
import errno
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from threading import Barrier
from typing import Any

import pytest

from proxy.state import database, sqlite
from proxy.state.database import BROKEN, connect, remove_broken
from proxy.state.sqlite import DATABASE, THREADS, SqliteStore
from proxy.state.store import StoreError

MIB = 2**20
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "state", 16 * MIB, busy=0.05)
    yield made
    await made.aclose()


def child(script: str, directory: Path) -> "subprocess.Popen[str]":
    """A process in which `store` is a store on the directory, and `script` the body of a coroutine."""
    body = "\n".join(f"    {line}" for line in script.splitlines())
    source = (
        "import asyncio, sys, os, resource, signal\nfrom pathlib import Path\nfrom proxy.state.sqlite import SqliteStore\n"
        "from proxy.state.store import StoreError\n"
        f"async def main():\n    store = SqliteStore(Path(sys.argv[1]), 64 * 2**20, busy=10)\n{body}\n"
        "asyncio.run(main())\n"
    )
    arguments = [sys.executable, "-c", source, os.fspath(directory)]
    return subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit code of a process, and what it printed."""
    printed, _ = process.communicate(timeout=180)
    return process.returncode, printed.strip()


@pytest.mark.parametrize("mode", [None, 0o777, 0o750])
async def test_the_directory_is_closed_to_others(store: SqliteStore, tmp_path: Path, mode: int | None) -> None:
    if mode is not None:
        (tmp_path / "state").mkdir()
        (tmp_path / "state").chmod(mode)
    await store.put("a", b"1", ttl=1000)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert {path.name for path in (tmp_path / "state").iterdir()} <= {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"}


async def test_it_survives_a_restart_and_stays_within_its_bound(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path, 2 * MIB, protected=0.0)
    for number in range(300):
        await first.put(str(number), os.urandom(20_000), ttl=1000)
    await first.aclose()
    assert (tmp_path / DATABASE).stat().st_size <= 2 * MIB
    assert not (tmp_path / f"{DATABASE}-wal").exists(), "a copy of the file has all"
    second = SqliteStore(tmp_path, 2 * MIB)
    assert len(await second.keys("")) > 80
    assert await second.get("299")
    assert await second.get("0") is None
    await second.aclose()


async def test_processes_share_a_directory_without_losing_a_write(tmp_path: Path) -> None:
    script = (
        "sys.stdin.readline()\n"
        "await asyncio.gather(*(store.put(f'{os.getpid()}/{n}', b'x' * 5000, ttl=1000) for n in range(100)))\n"
        "assert len(await store.keys(f'{os.getpid()}/')) == 100\n"
        "await store.aclose()"
    )
    processes = [child(script, tmp_path / "state") for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert await asyncio.to_thread(lambda: [ended(process) for process in processes]) == [(0, "")] * 3
    store = SqliteStore(tmp_path / "state", 64 * MIB)
    assert len(await store.keys("")) == 300
    await store.aclose()


async def test_a_lock_of_another_process_fails_writes_soon_and_no_reads(store: SqliteStore, tmp_path: Path) -> None:
    now = 1_000_000.0
    store._clock = lambda: now
    await store.put("a", b"1", ttl=1000)
    now += 500
    holder = sqlite3.connect(tmp_path / "state" / DATABASE, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await store.put("b", b"1", ttl=1000)
    with pytest.raises(StoreError, match="locked"):
        await store.touch(["a"], ttl=1000)
    assert await store.get("a", ttl=1000) == b"1"
    unopened = SqliteStore(tmp_path / "state", MIB, busy=0.05)
    with pytest.raises(StoreError, match="locked"):
        await unopened.put("b", b"1", ttl=1000)
    holder.close()
    await store.put("b", b"1", ttl=1000)
    await unopened.put("c", b"1", ttl=1000)
    assert await store.get("c") == b"1"
    await unopened.aclose()


async def test_a_write_gets_its_turn_while_another_process_writes_all_the_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, MIB, busy=0.5)
    await store.put("a", b"1", ttl=60)
    is_over = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(tmp_path / DATABASE, timeout=5, isolation_level=None)) as other:
            while not is_over.is_set():
                other.execute("BEGIN IMMEDIATE")
                time.sleep(0.045)
                other.execute("COMMIT")
                time.sleep(0.008)

    writing = asyncio.create_task(asyncio.to_thread(write))
    try:
        for number in range(10):
            await asyncio.sleep(0.01)
            await store.put(f"{number}", b"1", ttl=60)
    finally:
        is_over.set()
        await writing
        await store.aclose()


async def test_a_corrupted_file_is_reported_and_a_replaced_one_is_used(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"this is no database" * 1000)
    store = SqliteStore(tmp_path, MIB)
    await store.look()
    assert store.degraded == "corrupted", "also where no request has met it"
    with pytest.raises(StoreError, match="corrupted"):
        await store.put("a", b"1", ttl=1000)
    with pytest.raises(StoreError, match="corrupted"):
        await store.get("a")
    (tmp_path / DATABASE).unlink()
    await store.put("a", b"1", ttl=1000)
    assert await store.get("a") == b"1"
    await store.look()
    assert store.degraded is None
    await store.aclose()


async def test_a_directory_that_was_removed_is_made_again(store: SqliteStore, tmp_path: Path) -> None:
    await store.put("a", b"1", ttl=1000)
    assert store.losses == 0
    rmtree(tmp_path / "state")
    await store.put("b", b"1", ttl=1000)
    assert await store.keys("") == ("b",)
    assert store.losses == 1


async def test_a_read_only_database_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = SqliteStore(tmp_path, MIB)
    await before.put("a", b"1", ttl=1000)
    await before.aclose()
    connect, now = database._connect, time.time() + 500

    def read_only(*arguments: Any) -> sqlite3.Connection:
        made = connect(*arguments)
        made.execute("PRAGMA query_only = 1")
        return made

    monkeypatch.setattr(database, "_connect", read_only)
    monkeypatch.setattr(sqlite, "THREADS", 1)
    store = SqliteStore(tmp_path, MIB, clock=lambda: now)
    assert await store.get("a", ttl=1000) == b"1"
    with pytest.raises(StoreError, match="read_only"):
        await store.put("b", b"1", ttl=1000)
    monkeypatch.undo()
    await store.put("b", b"1", ttl=1000)  # opened again, as after a repair
    assert await store.get("b") == b"1"
    await store.aclose()


async def test_a_full_disk_is_reported_and_harms_nothing(tmp_path: Path) -> None:
    # a limit on the size of files stands for the full disk
    process = child(
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "await store.put('a', os.urandom(20_000), ttl=1000)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
        "try:\n"
        "    for number in range(200):\n"
        "        await store.put(str(number), os.urandom(20_000), ttl=1000)\n"
        "except StoreError as error:\n"
        "    print(error.cause, await store.get('a') is not None, number > 10, flush=True)\n"
        "    await store.aclose()",
        tmp_path,
    )
    assert ended(process) in {(0, "full True True"), (0, "unreachable True True")}
    store = SqliteStore(tmp_path, 64 * MIB)
    assert await store.get("9")
    await store.put("more", bytes(20_000), ttl=1000)
    await store.aclose()


@pytest.mark.parametrize(("number", "cause"), [
    (errno.ENOSPC, "full"), (errno.EROFS, "read_only"), (errno.EACCES, "read_only"), (errno.EIO, "unreachable"),
])  # fmt: skip
async def test_errors_have_causes(store: SqliteStore, monkeypatch: pytest.MonkeyPatch, number: int, cause: str) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(number, "no", "/secret/path")

    monkeypatch.setattr(database, "_connect", fail)
    with pytest.raises(StoreError) as failed:
        await store.put("a", b"1", ttl=1000)
    assert (failed.value.cause, str(failed.value)) == (cause, cause)


async def test_the_loop_turns_while_the_disk_sleeps(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    woken = threading.Event()

    def sleep(*arguments: object) -> tuple[bytes, float]:
        assert woken.wait(30)
        return b"late", 0.0

    monkeypatch.setattr(SqliteStore, "_read", sleep)
    monkeypatch.setattr(database, "MOST_WAITING", 4)
    reads = [asyncio.ensure_future(store.get("a")) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="busy"):
        await store.get("a")
    assert not any(read.done() for read in reads)
    assert sum(thread.name.startswith("penstock-store") for thread in threading.enumerate()) <= THREADS
    woken.set()
    assert await asyncio.gather(*reads) == [b"late"] * 4


async def test_closing_ends_what_waits(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    woken = threading.Event()
    monkeypatch.setattr(SqliteStore, "_read", lambda *arguments: (woken.wait(30) and b"late", 0.0))
    reads = [asyncio.ensure_future(store.get("a")) for _ in range(6)]
    await asyncio.sleep(0)
    closing_ = asyncio.ensure_future(store.aclose())
    await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
    woken.set()
    await closing_
    ends = await asyncio.gather(*reads, return_exceptions=True)
    assert sum(end == b"late" for end in ends) <= 2
    assert all(end == b"late" or (isinstance(end, StoreError) and end.cause == "closed") for end in ends)


async def test_threads_of_one_process_wait_for_each_other_longer_than_for_other_processes(store: SqliteStore) -> None:
    begun = threading.Event()

    def write_slowly(connection: sqlite3.Connection) -> None:
        begun.set()
        time.sleep(0.5)

    slow = asyncio.ensure_future(store._run(write_slowly))
    await asyncio.to_thread(begun.wait)
    await store.put("a", b"1", ttl=1000)
    await slow
    assert await store.get("a") == b"1"


@pytest.mark.parametrize("value", [None, "text", 1])
async def test_a_planted_value_is_reported(store: SqliteStore, tmp_path: Path, value: object) -> None:
    await store.put("a", b"1", ttl=1000)
    with closing(sqlite3.connect(tmp_path / "state" / DATABASE)) as connection, connection:
        connection.execute("UPDATE Cache SET value = ?", (value,))
    with pytest.raises(StoreError, match="corrupted"):
        await store.get("a", ttl=1000)
    await store.put("a", b"2", ttl=1000)
    assert await store.get("a") == b"2"


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
