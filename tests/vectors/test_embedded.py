"""The embedded index under what befalls files: several threads and processes, damage, bounds."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.vectors.base import IndexFailed, Scope
from proxy.vectors.embedded import FILE
from tests.vectors.made import T, embedded, points


@pytest.mark.parametrize(("damage", "repaired"), [
    pytest.param(lambda whole: b"this is no database " * 500, 1, id="garbage"),
    pytest.param(lambda whole: whole[: len(whole) // 2], 1, id="cut off"),
    pytest.param(lambda whole: whole[:4096] + b"\xff" * (len(whole) - 4096), 1, id="pages overwritten"),
    pytest.param(lambda whole: b"", 0, id="empty"),
])  # fmt: skip
def test_a_damaged_file_is_begun_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes], repaired: int
) -> None:
    before = embedded(tmp_path)
    before.put(T, points(300))
    before.close()
    (tmp_path / FILE).write_bytes(damage((tmp_path / FILE).read_bytes()))
    index = embedded(tmp_path)
    index.vectors(T, [f"p{n}" for n in range(300)])
    index.put(T, points(300))
    assert None not in index.vectors(T, [f"p{n}" for n in range(300)])
    assert [record.__dict__["fields"]["cause"] for record in caplog.records] == ["corrupted"] * repaired
    assert str(tmp_path) not in caplog.text
    index.close()


def test_a_file_that_is_removed_under_us_is_begun_anew(tmp_path: Path) -> None:
    index, twin = embedded(tmp_path), embedded(tmp_path)
    index.put(T, points(50))
    assert twin.vectors(T, ["p0"]) != [None]
    for rest in ("", "-wal", "-shm"):
        (tmp_path / (FILE + rest)).unlink()
    index.put(T, points(5, name="new"))
    assert [each is not None for each in twin.vectors(T, ["new0", "p0"])] == [True, False]
    index.close()
    twin.close()


def test_the_directory_is_closed_to_others_and_no_name_stands_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "vectors"
    index = embedded(folder)
    index.put(Scope("sk-tenant", "model"), points(2))
    assert folder.stat().st_mode & 0o777 == 0o700
    index.close()
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"sk-tenant" not in content


def test_another_process_that_writes_for_long_is_waited_for_only_so_long(tmp_path: Path) -> None:
    index = embedded(tmp_path)
    index.put(T, points(3))
    blocking = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    blocking.execute("BEGIN IMMEDIATE")
    with pytest.raises(IndexFailed) as failed:
        index.put(T, points(3))
    assert failed.value.cause == "locked"
    assert None not in index.vectors(T, ["p0"])
    blocking.execute("ROLLBACK")
    blocking.close()
    index.put(T, points(3))
    index.close()
    with pytest.raises(IndexFailed, match="closed"):
        index.vectors(T, ["p0"])
