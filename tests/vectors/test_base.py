"""The behaviour of every index, and of the embedded one under what befalls files."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.vectors.base import IndexFailed, Scope
from proxy.vectors.embedded import FILE, Embedded
from proxy.vectors.index import Blocking
from proxy.vectors.packing import rows
from proxy.vectors.qdrant_server import PointServer
from tests.vectors.made import T, embedded, points, vector, vectors
from tests.vectors.qdrant_server import QdrantServer


@pytest.fixture(params=["in a directory", "on a server"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blocking]:
    if request.param == "in a directory":
        made: Blocking = embedded(tmp_path / "vectors")
        yield made
        made.close()
    else:
        with QdrantServer() as server:
            made = PointServer(server.url, None, "penstock", 30.0)
            yield made
            made.close()


def there(index: Blocking, scope: Scope, *ids: str) -> list[bool]:
    return [each is not None for each in index.vectors(scope, ids)]


def cosine(one: bytes, other: bytes) -> float:
    return max(sum(x * y for x, y in zip(a, b, strict=True)) for a in rows(one) for b in rows(other))


def test_what_was_put_is_there_also_by_odd_names(index: Blocking) -> None:
    made = points(120)
    assert index.vectors(T, ["p0"]) == [None]
    index.put(T, made)
    found = index.vectors(T, ["p3", "no", *(f"p{n}" for n in range(120))])
    assert found[1] is None
    for packed, put in zip(found[2:], made.values(), strict=True):
        assert packed is not None
        assert cosine(packed, put) == pytest.approx(1.0, abs=2e-3)
    scope = Scope("a/b\0c%_*\ud800", "../model 'x' \" ; DROP")
    index.put(scope, {"'; --": vector(1, 0)})
    assert None not in index.vectors(scope, ["'; --"])


def test_all_vectors_of_a_text_come_back(index: Blocking) -> None:
    index.put(T, {"long": vectors((1, 0, 0), (0, 1, 0), (0, 1, 0.2)), "short": vector(0.6, 0.8, 0)})
    (whole,) = index.vectors(T, ["long"])
    assert whole is not None
    assert len(rows(whole)) == 3


@pytest.mark.parametrize("other", [T._replace(tenant="other"), T._replace(model="m/2 ü")], ids=["tenant", "model"])
def test_scopes_share_nothing(index: Blocking, other: Scope) -> None:
    here, elsewhere = points(5), points(3, seed=1)
    index.put(T, here)
    index.put(other, elsewhere)
    index.put(T, here)
    assert there(index, T, "p0", "p4") == [True, True]
    assert there(index, other, "p0", "p4") == [True, False]
    assert index.vectors(T, ["p0"]) != index.vectors(other, ["p0"])


def test_a_tenant_is_forgotten_in_all_its_scopes(index: Blocking) -> None:
    scopes = [T, T._replace(model="m-2")]
    others = [T._replace(tenant="tenant2"), T._replace(tenant="")]
    for scope in scopes + others:
        index.put(scope, points(3))
    index.forget_tenant(T.tenant)
    assert [there(index, scope, "p0", "p2") for scope in scopes] == [[False, False]] * 2
    assert [there(index, scope, "p0", "p2") for scope in others] == [[True, True]] * 2


def test_vectors_of_another_dimension_begin_a_collection_anew() -> None:
    with QdrantServer() as server:
        index = PointServer(server.url, None, "penstock", 30.0)
        index.put(T, {"flat": vector(1, 0)})
        index.put(T, {"deep": vector(1, 0, 0), "void": b""})
        assert [each is not None for each in index.vectors(T, ["flat", "deep", "void"])] == [False, True, False]
        index.close()


def test_the_oldest_leave_where_there_is_no_room(tmp_path: Path) -> None:
    index = Embedded(tmp_path, 2**20, ttl=3600.0)
    for start in range(0, 3000, 100):
        index.put(T, points(100, width=384, name=f"{start}-"))
    assert there(index, T, "0-0", "2900-99") == [False, True]
    index.close()
    assert sum(file.stat().st_size for file in tmp_path.glob("*.db")) <= 1.1 * 2**20


def test_a_vector_leaves_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, now = Embedded(tmp_path, 2**20, ttl=100.0), time.time()
    index.put(T, points(1))
    assert there(index, T, "p0") == [True]
    monkeypatch.setattr("time.time", lambda: now + 101)
    assert there(index, T, "p0") == [False]
    index.close()


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
