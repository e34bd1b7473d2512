"""The embedded index under what befalls files: several threads and processes, kills, damage, bounds."""

import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.vectors.base import IndexFailed, Scope
from proxy.vectors.embedded import Embedded
from proxy.vectors.points import FILE, IndexBounds, Points
from tests.clock import Clock
from tests.vectors.made import BOUNDS, T, points, vector

ROOT = Path(__file__).parent.parent.parent


def other_process(directory: Path, name: str, count: int, at_once: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.vectors.made", str(directory), name, str(count), str(at_once)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def ids(index: Embedded, asked: bytes, limit: int = 5, scope: Scope = T) -> list[str]:
    return [near.id for near in index.nearest(scope, asked, limit, -1.0)]


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


def test_two_processes_on_one_directory_see_each_others_points(tmp_path: Path) -> None:
    index = Embedded(tmp_path, BOUNDS)
    index.put(T, points(50, name="mine"))
    assert len(ids(index, vector(*[1.0] * 8), 1000)) == 50
    others = [other_process(tmp_path, name, 60, 6) for name in ("first", "second")]
    for start in range(50, 110, 5):
        index.put(T, points(110, name="mine")[start : start + 5])
    for process in others:
        assert process.stdout is not None
        assert process.stdout.read().split()[-1] == "60"
        process.stdout.close()
        assert process.wait() == 0
    assert index.size(T) == 230
    assert len(ids(index, vector(*[1.0] * 8), 1000)) == 230
    twin = Embedded(tmp_path, BOUNDS)  # as another process would be
    twin.forget(T._replace(owner="somebody else"))
    twin.delete(T, [f"first{n}" for n in range(60)])
    assert not any(id.startswith("first") for id in ids(index, vector(*[1.0] * 8), 1000))
    twin.forget(T)
    assert ids(index, vector(*[1.0] * 8)) == []
    twin.close()
    index.close()


def test_what_a_killed_process_has_put_is_there(tmp_path: Path) -> None:
    process = other_process(tmp_path, "p", 10**5, 20)
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(5)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    said += process.stdout.read().split()
    process.stdout.close()
    index = Embedded(tmp_path, IndexBounds(10**6, 10**6, 3600.0))
    done = int(said[-1])
    assert None not in index.vectors(T, [f"p{n}" for n in range(done)])
    assert index.size(T) % 20 == 0, "a put is there whole or not at all"
    assert ids(index, points(done, name="p")[done - 1].vector, 1) == [f"p{done - 1}"]
    assert index.repaired == 0
    index.close()


@pytest.mark.parametrize("damage", ["garbage", "cut off", "pages overwritten", "empty", "removed"])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, damage: str) -> None:
    before = Embedded(tmp_path, BOUNDS)
    before.put(T, points(300))
    before.close()
    path = tmp_path / FILE
    whole = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(b"this is no database " * 500)
    elif damage == "cut off":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "pages overwritten":
        path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    index = Embedded(tmp_path, BOUNDS)
    index.vectors(T, [f"p{n}" for n in range(300)])
    index.put(T, points(300))
    assert None not in index.vectors(T, [f"p{n}" for n in range(300)])
    assert ids(index, points(3)[2].vector, 1) == ["p2"]
    assert index.repaired == (0 if damage in ("empty", "removed") else 1)
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


def test_the_directory_is_closed_to_others_and_no_text_stands_in_it_but_payloads(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "vectors"
    index = Embedded(folder, BOUNDS)
    index.put(Scope("sk-tenant", "texts", "model", "ann@example.com"), points(2))
    assert folder.stat().st_mode & 0o777 == 0o700
    index.close()
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"sk-tenant" not in content
    assert b"ann@example" not in content


def test_another_process_that_writes_for_long_is_waited_for_only_so_long(tmp_path: Path) -> None:
    index = Points(tmp_path, BOUNDS, busy=0.05)
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


def test_a_directory_that_cannot_be_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    index = Points(tmp_path / "file" / "vectors", BOUNDS)
    with pytest.raises(IndexFailed) as failed:
        index.put(T, points(1))
    assert failed.value.cause == "unreachable"
    index.close()


def test_what_was_used_longest_ago_leaves_a_full_scope() -> None:
    clock = Clock()
    index = Points(None, IndexBounds(10_000, 100, 160.0), clock=clock)
    for start in range(0, 100, 10):
        index.put(T, points(100)[start : start + 10])
        clock.now += 1
    index.put(T._replace(owner="other"), points(90))
    clock.now += 11  # longer than a sixteenth of the time to live
    index.vectors(T, ["p0", "p1"])
    clock.now += 1
    index.put(T, points(3, name="new"))
    assert 90 <= index.size(T) <= 100
    assert index.known(T, ["p0", "p1", "p2", "p3", "p99", "new0"]) == {"p0", "p1", "p99", "new0"}
    assert index.size(T._replace(owner="other")) == 90
    index.close()


def test_all_scopes_together_are_bounded_too_and_what_is_old_leaves() -> None:
    clock = Clock()
    index = Points(None, IndexBounds(1000, 1000, 100.0), clock=clock)
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
