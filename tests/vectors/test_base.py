"""What every index must do: the embedded one with Qdrant's local mode, and the one on a server."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from proxy.vectors.base import IndexBounds, Point, Scope
from proxy.vectors.embedded import Embedded
from proxy.vectors.index import Blocking
from proxy.vectors.packing import rows
from proxy.vectors.qdrant_server import PointServer
from tests.clock import Clock
from tests.vectors.made import BOUNDS, T, points, vector, vectors
from tests.vectors.qdrant_server import QdrantServer


@pytest.fixture(params=["in memory", "in a directory", "on a server"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Blocking]]:
    """What makes an index, within bounds and by a clock."""
    if request.param == "on a server":
        with QdrantServer() as server:
            yield lambda bounds: PointServer(server.url, None, "penstock", 30.0)
    else:
        yield partial(Embedded, tmp_path / "vectors" if request.param == "in a directory" else None)


@pytest.fixture
def index(make: Callable[..., Blocking]) -> Iterator[Blocking]:
    made = make(BOUNDS)
    yield made
    made.close()


def cosine(one: bytes, other: bytes) -> float:
    return max(sum(x * y for x, y in zip(a, b, strict=True)) for a in rows(one) for b in rows(other))


def test_what_was_put_is_there(index: Blocking) -> None:
    made = points(120)
    assert index.vectors(T, ["p0"]) == [None]
    index.put(T, made)
    assert index.size(T) == 120
    found = index.vectors(T, ["p3", "no", *(f"p{n}" for n in range(120))])
    assert found[1] is None
    for packed, point in zip(found[2:], made, strict=True):
        assert packed is not None
        assert cosine(packed, point.vector) == pytest.approx(1.0, abs=2e-3)


def test_all_vectors_of_a_text_come_back(index: Blocking) -> None:
    long = Point("long", vectors((1, 0, 0), (0, 1, 0), (0, 1, 0.2)))
    index.put(T, [long, Point("short", vector(0.6, 0.8, 0))])
    (whole,) = index.vectors(T, ["long"])
    assert whole is not None
    assert len(rows(whole)) == 3
    assert index.size(T) == 2


@pytest.mark.parametrize(
    "other",
    [T._replace(tenant="other"), T._replace(kind="memories"), T._replace(model="m/2 ü"), T._replace(owner="user")],
    ids=["tenant", "kind", "model", "owner"],
)
def test_scopes_share_nothing(index: Blocking, other: Scope) -> None:
    here, there = points(5), points(3, seed=1)
    index.put(T, here)
    index.put(other, there)
    index.put(T, here)
    assert (index.size(T), index.size(other)) == (5, 3)
    assert index.vectors(other, ["p4"]) == [None]
    assert index.vectors(T, ["p0"]) != index.vectors(other, ["p0"])


def test_a_tenant_is_forgotten_in_all_its_scopes(index: Blocking) -> None:
    scopes = [T, T._replace(kind="memories"), T._replace(owner="user"), T._replace(model="m-2")]
    others = [T._replace(tenant="tenant2"), T._replace(tenant="")]
    for scope in scopes + others:
        index.put(scope, points(3))
    index.forget_tenant(T.tenant)
    assert [index.size(scope) for scope in scopes] == [0] * 4
    assert [index.size(scope) for scope in others] == [3] * 2


def test_odd_names_are_names(index: Blocking) -> None:
    scope = Scope("a/b\0c", "texts", "../model 'x' \" ; DROP", "%_*\ud800")
    index.put(scope, [Point("'; --", vector(1, 0))])
    assert None not in index.vectors(scope, ["'; --"])


def test_vectors_of_another_dimension_begin_a_collection_anew() -> None:
    with QdrantServer() as server:
        index = PointServer(server.url, None, "penstock", 30.0)
        index.put(T, [Point("flat", vector(1, 0))])
        index.put(T, [Point("deep", vector(1, 0, 0)), Point("void", b"")])
        assert [each is not None for each in index.vectors(T, ["flat", "deep", "void"])] == [False, True, False]
        index.close()


def test_a_scope_is_bounded_and_what_was_used_longest_ago_leaves() -> None:
    clock = Clock()
    index = Embedded(None, IndexBounds(1000, 100, 1600.0), clock=clock)
    for start in range(0, 100, 10):
        index.put(T, points(100)[start : start + 10])
        clock.now += 1
    index.put(T._replace(owner="other"), points(90))
    clock.now += 101  # longer than a sixteenth of the time to live
    index.vectors(T, ["p0", "p1"])
    clock.now += 1
    index.put(T, points(10, name="new"))
    assert 90 <= index.size(T) <= 100
    there = index.vectors(T, ["p0", "p1", "p2", "p3", "p99", "new0"])
    assert [each is not None for each in there] == [True, True, False, False, True, True]
    assert index.size(T._replace(owner="other")) == 90
    clock.now += 1601
    index.put(T, points(60, name="newer"))
    assert index.size(T) == 60, "what was not used for long has left"
    index.close()
