"""The embedded index under what befalls files: several threads and processes, damage, bounds."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.vectors.base import IndexBounds, IndexFailed, Scope
from proxy.vectors.embedded import FILE, Embedded
from tests.clock import Clock
from tests.vectors.made import BOUNDS, T, points, vector


def ids(index: Embedded, asked: bytes, limit: int = 5, scope: Scope = T) -> list[str]:
    return [near.id for near in index.nearest(scope, asked, limit)]


def test_eight_threads_at_once(tmp_path: Path) -> None:
    index = Embedded(tmp_path, BOUNDS)
    made = points(400)

    def work(number: int) -> None:
        for start in range(number * 50, number * 50 + 50, 10):
            some = made[start : start + 10]
            index.put(T, some)
            for point in some:
                assert ids(index, point.vector, 1) == [point.id]
            assert None not in index.vectors(T, [point.id for point in some])
            index.delete(T, [some[0].id])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(8))) == [None] * 8
    assert index.size(T) == 360
    assert len(ids(index, made[1].vector, 1000)) == 360
    index.close()


def test_what_one_process_changes_others_see(tmp_path: Path) -> None:
    index, twin = Embedded(tmp_path, BOUNDS), Embedded(tmp_path, BOUNDS)  # the twin is as another process would be
    asked = vector(*[1.0] * 8)
    index.put(T, points(50, name="mine"))
    assert len(ids(index, asked, 1000)) == len(ids(twin, asked, 1000)) == 50
    twin.put(T, points(60, name="theirs"))
    assert len(ids(index, asked, 1000)) == 110
    twin.forget(T._replace(owner="somebody else"))
    twin.delete(T, [f"mine{n}" for n in range(50)])
    assert not any(id.startswith("mine") for id in ids(index, asked, 1000))
    twin.forget(T)
    assert ids(index, asked) == []
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
    assert ids(index, points(3)[2].vector, 1) == ["p2"]
    assert index.repaired == repaired
    index.close()


def test_a_file_that_is_damaged_or_removed_under_us_is_begun_anew(tmp_path: Path) -> None:
    index, twin = Embedded(tmp_path, BOUNDS), Embedded(tmp_path, BOUNDS)
    index.put(T, points(50))
    assert twin.size(T) == 50
    for rest in ("", "-wal", "-shm"):
        (tmp_path / (FILE + rest)).unlink()
    index.put(T, points(5, name="new"))
    assert twin.known(T, ["new0", "p0"]) == {"new0"}
    assert ids(twin, points(1)[0].vector, 100) == ids(index, points(1)[0].vector, 100)
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


def test_a_search_forgets_the_scopes_that_were_asked_longest_ago() -> None:
    index = Embedded(None, BOUNDS, loaded=25_000)
    scopes = [T._replace(owner=str(number)) for number in range(4)]
    for scope in scopes:
        index.put(scope, points(250))
    for scope in [*scopes, *scopes]:
        for point in points(250)[::50]:
            assert ids(index, point.vector, 1, scope) == [point.id]
        assert len(ids(index, point.vector, 1000, scope)) == 250
    assert len(index._scopes) == 2
    index.close()
