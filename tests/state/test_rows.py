"""The rows of the embedded store: read from older files, refused where they are not ours, written by threads in turn."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from proxy.state.rows import DATABASE, Rows
from proxy.state.sqlite import DiskStore
from proxy.state.store import StoreError

OLD = """
PRAGMA auto_vacuum = 1; PRAGMA journal_mode = WAL;
CREATE TABLE Settings (key TEXT NOT NULL UNIQUE, value);
CREATE TABLE Cache (rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, expire_time REAL,
  access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB, size INTEGER DEFAULT 0, mode INTEGER DEFAULT 0,
  filename TEXT, value BLOB);
CREATE UNIQUE INDEX Cache_key_raw ON Cache (key, raw);
INSERT INTO Settings VALUES ('count', 0), ('size', 0);
CREATE TRIGGER Settings_size_insert AFTER INSERT ON Cache FOR EACH ROW
  BEGIN UPDATE Settings SET value = value + NEW.size WHERE key = 'size'; END;
INSERT INTO Cache (key, raw, store_time, expire_time, access_time, mode, value) VALUES ('a', 1, 0, 1e12, 0, 1, X'00FF');
"""
"""A file as diskcache made it for earlier versions."""


async def test_a_file_of_an_earlier_version_is_read_and_written(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE)) as old:
        old.executescript(OLD)
    store = DiskStore(tmp_path, 2**20)
    assert await store.get("a", ttl=1000) == b"\0\xff"
    await store.put_all({"a": b"2", "b": b"3"}, ttl=1000)
    assert await store.keys("") == ("a", "b")
    assert await store.get("a") == b"2"
    await store.aclose()


async def test_what_was_removed_leaves_the_file(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, 2**24)
    await store.put("a", b"secret" * 200_000, ttl=1000)
    await store.delete(["a"])
    await store.aclose()
    assert (tmp_path / DATABASE).stat().st_size < 100_000


async def test_a_row_whose_value_is_not_ours_is_refused(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, 2**20)
    await store.put("a", b"1", ttl=1000)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.execute("UPDATE Cache SET value = 'text'")
    with pytest.raises(StoreError, match="corrupted"):
        await store.get("a", ttl=1000)
    await store.put("a", b"2", ttl=1000)
    assert await store.get("a") == b"2"
    await store.aclose()


def test_threads_of_one_process_wait_for_each_other_longer_than_for_other_processes(tmp_path: Path) -> None:
    rows, begun = Rows(tmp_path / DATABASE, busy=0.01), threading.Event()

    def write_slowly() -> None:
        with rows.writing():
            begun.set()
            time.sleep(0.5)

    thread = threading.Thread(target=write_slowly)
    thread.start()
    begun.wait()
    rows.write({"a": b"1"}, 1.0, 10.0, (2**20, 1.0))
    thread.join()
    assert rows.read("a", 1.0, None) == b"1"
    rows.close()
