"""The embedded index under what befalls files: several threads and processes, damage, bounds."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.vectors.base import IndexFailed, Scope
from proxy.vectors.embedded import FILE, Embedded
from tests.vectors.made import T, embedded, points


def test_eight_write_at_once(tmp_path: Path) -> None:
    made = points(400)

    def work(number: int) -> None:
        index = Embedded(tmp_path, 2**26, ttl=3600.0, busy=60.0)
        for start in range(number * 50, number * 50 + 50, 10):
            some = made[start : start + 10]
            index.put(T, some)
            assert None not in index.vectors(T, [point.id for point in some])
        index.close()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == [None] * 8
    index = embedded(tmp_path)
    assert None not in index.vectors(T, [point.id for point in made])
    index.close()


def test_what_one_process_changes_others_see(tmp_path: Path) -> None:
    index, twin = embedded(tmp_path), embedded(tmp_path)  # the twin is as another process would be
    index.put(T, points(50, name="mine"))
    assert index.vectors(T, ["mine0"]) == twin.vectors(T, ["mine0"])
    twin.put(T, points(60, name="theirs"))
    assert None not in index.vectors(T, ["mine1", "theirs1"])
    twin.forget_tenant(T.tenant)
    assert index.vectors(T, ["mine1", "theirs1"]) == [None, None]
    twin.close()
    index.close()


@pytest.mark.parametrize(
    ("damage", "repaired"),
    [
        pytest.param(lambda whole: b"this is no database " * 500, 1, id="garbage"),
        pytest.param(lambda whole: whole[: len(whole) // 2], 1, id="cut off"),
        pytest.param(lambda whole: whole[:4096] + b"\xff" * (len(whole) - 4096), 1, id="pages overwritten"),
        pytest.param(lambda whole: b"", 0, id="empty"),
    ],
)
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
