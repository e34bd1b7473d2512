"""No row that somebody else wrote is unpickled, read from a file or removes one; threads write in turn."""

import os
import pickle
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from proxy.state.rows import DATABASE, BytesDisk, Rows
from proxy.state.sqlite import DiskStore
from proxy.state.store import StoreError


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DiskStore]:
    made = DiskStore(tmp_path / "state", 2**20)
    yield made
    await made.aclose()


class Bomb:
    fired = False

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str, bool]]:
        return _fire, ("fired", True)


def _fire(name: str, value: bool) -> None:
    setattr(Bomb, name, value)


@pytest.mark.parametrize("mode", [0, 2, 3, 4])
@pytest.mark.parametrize("filename", [None, "planted.val", "../planted.val"])
async def test_no_planted_row_is_unpickled_or_names_a_file(
    store: DiskStore, tmp_path: Path, mode: int, filename: str | None
) -> None:
    await store.put("a", b"1", ttl=1000)
    (tmp_path / "planted.val").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "state" / "planted.val").write_bytes(pickle.dumps(Bomb()))
    value = None if filename else pickle.dumps(Bomb())
    with closing(sqlite3.connect(tmp_path / "state" / DATABASE)) as connection, connection:
        connection.execute("UPDATE Cache SET mode = ?, filename = ?, value = ?", (mode, filename, value))
    with pytest.raises(StoreError, match="corrupted"):
        await store.get("a", ttl=1000)
    await store.delete(["a"])
    await store.put("a", b"2", ttl=1000)
    assert await store.get("a") == b"2"
    assert not Bomb.fired
    assert (tmp_path / "planted.val").exists()
    pickle.loads(pickle.dumps(Bomb()))
    assert Bomb.fired, "the bomb would have worked"
    Bomb.fired = False


async def test_no_planted_key_is_unpickled(store: DiskStore, tmp_path: Path) -> None:
    await store.put("a", b"1", ttl=1000)
    with closing(sqlite3.connect(tmp_path / "state" / DATABASE)) as connection, connection:
        connection.execute("UPDATE Cache SET raw = 0, key = CAST(? AS TEXT)", (pickle.dumps(Bomb(), 0),))
    with pytest.raises(StoreError, match="corrupted"):
        await store.keys("")
    assert not Bomb.fired


def test_only_text_and_bytes_are_stored(tmp_path: Path) -> None:
    made = BytesDisk(os.fspath(tmp_path))
    for key in (b"a", 1, 1.0, True, None, ("a",)):
        with pytest.raises(TypeError):
            made.put(key)
    for value in ("a", 1, True, None, ("a",), bytearray(b"a")):
        with pytest.raises(TypeError):
            made.store(value, False)


def test_threads_of_one_process_wait_for_each_other_longer_than_for_other_processes(tmp_path: Path) -> None:
    rows, begun = Rows(str(tmp_path), 2**20, busy=0.01), threading.Event()

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
