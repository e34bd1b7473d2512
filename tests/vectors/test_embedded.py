"""The embedded index under what befalls files: several threads and processes, damage, bounds."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.vectors.base import IndexBounds, IndexFailed, Scope
from proxy.vectors.embedded import FILE, Embedded
from tests.clock import Clock
from tests.vectors.made import BOUNDS, T, points


def test_eight_threads_at_once(tmp_path: Path) -> None:
    index = Embedded(tmp_path, BOUNDS)
    made = points(400)

    def work(number: int) -> None:
        for start in range(number * 50, number * 50 + 50, 10):
            some = made[start : start + 10]
            index.put(T, some)
            assert None not in index.vectors(T, [point.id for point in some])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == [None] * 8
    assert index.size(T) == 400
    index.close()


def test_what_one_process_changes_others_see(tmp_path: Path) -> None:
    index, twin = Embedded(tmp_path, BOUNDS), Embedded(tmp_path, BOUNDS)  # the twin is as another process would be
    index.put(T, points(50, name="mine"))
    assert index.size(T) == twin.size(T) == 50
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
def test_a_damaged_file_is_begun_anew(tmp_path: Path, damage: Callable[[bytes], bytes], repaired: int) -> None:
    before = Embedded(tmp_path, BOUNDS)
    before.put(T, points(300))
    before.close()
    (tmp_path / FILE).write_bytes(damage((tmp_path / FILE).read_bytes()))
    index = Embedded(tmp_path, BOUNDS)
    index.vectors(T, [f"p{n}" for n in range(300)])
    index.put(T, points(300))
    assert None not in index.vectors(T, [f"p{n}" for n in range(300)])
    assert index.repaired == repaired
    index.close()


def test_a_file_that_is_damaged_or_removed_under_us_is_begun_anew(tmp_path: Path) -> None:
    index, twin = Embedded(tmp_path, BOUNDS), Embedded(tmp_path, BOUNDS)
    index.put(T, points(50))
    assert twin.size(T) == 50
    for rest in ("", "-wal", "-shm"):
        (tmp_path / (FILE + rest)).unlink()
    index.put(T, points(5, name="new"))
    assert [each is not None for each in twin.vectors(T, ["new0", "p0"])] == [True, False]
    index.close()
    twin.close()


def test_the_directory_is_closed_to_others_and_no_name_stands_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "vectors"
    index = Embedded(folder, BOUNDS)
    index.put(Scope("sk-tenant", "texts", "model", "ann@example.com"), points(2))
    assert folder.stat().st_mode & 0o777 == 0o700
    index.close()
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"sk-tenant" not in content
    assert b"ann@example" not in content


def test_another_process_that_writes_for_long_is_waited_for_only_so_long(tmp_path: Path) -> None:
    index = Embedded(tmp_path, BOUNDS, busy=0.05)
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
        index.size(T)


def test_all_scopes_together_are_bounded_too_and_what_is_old_leaves() -> None:
    clock = Clock()
    index = Embedded(None, IndexBounds(1000, 1000, 100.0), clock=clock)
    scopes = [T._replace(owner=str(number)) for number in range(30)]
    for scope in scopes:
        index.put(scope, points(50))
        clock.now += 1
    assert 600 <= sum(index.size(scope) for scope in scopes) <= 1050
    assert index.size(scopes[0]) == 0
    assert index.size(scopes[-1]) == 50
    clock.now += 101
    index.put(T, points(60))
    assert sum(index.size(scope) for scope in scopes) == 0
    assert index.size(T) == 60
    index.close()
