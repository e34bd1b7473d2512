"""The behaviour of every index: of the embedded one, and of the one on a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.state.sqlite import DATABASE
from proxy.vectors.base import Point, Scope
from proxy.vectors.embedded import Embedded
from proxy.vectors.packing import rows
from proxy.vectors.qdrant_server import PointServer
from tests.vectors.made import T, embedded, points, vector, vectors
from tests.vectors.qdrant_server import QdrantServer

Index = Embedded | PointServer


@pytest.fixture(params=["in a directory", "on a server"])
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Index]:
    if request.param == "in a directory":
        made: Index = embedded(tmp_path / "vectors")
        yield made
        await made.aclose()
    else:
        with QdrantServer() as server:
            made = PointServer(server.url, None, "penstock", 30.0)
            yield made
            await made.aclose()


async def there(index: Index, scope: Scope, *ids: str) -> list[bool]:
    return [each is not None for each in await index.vectors(scope, ids)]


def cosine(one: bytes, other: bytes) -> float:
    return max(sum(x * y for x, y in zip(a, b, strict=True)) for a in rows(one) for b in rows(other))


async def test_what_was_put_is_there(index: Index) -> None:
    made = points(120)
    assert await index.vectors(T, ["p0"]) == [None]
    await index.put(T, made)
    found = await index.vectors(T, ["p3", "no", *(f"p{n}" for n in range(120))])
    assert found[1] is None
    for packed, point in zip(found[2:], made, strict=True):
        assert packed is not None
        assert cosine(packed, point.vector) == pytest.approx(1.0, abs=2e-3)


async def test_all_vectors_of_a_text_come_back(index: Index) -> None:
    long = Point("long", vectors((1, 0, 0), (0, 1, 0), (0, 1, 0.2)))
    await index.put(T, [long, Point("short", vector(0.6, 0.8, 0))])
    (whole,) = await index.vectors(T, ["long"])
    assert whole is not None
    assert len(rows(whole)) == 3


@pytest.mark.parametrize("other", [T._replace(tenant="other"), T._replace(model="m/2 ü")], ids=["tenant", "model"])
async def test_scopes_share_nothing(index: Index, other: Scope) -> None:
    here, elsewhere = points(5), points(3, seed=1)
    await index.put(T, here)
    await index.put(other, elsewhere)
    await index.put(T, here)
    assert await there(index, T, "p0", "p4") == [True, True]
    assert await there(index, other, "p0", "p4") == [True, False]
    assert await index.vectors(T, ["p0"]) != await index.vectors(other, ["p0"])


async def test_a_tenant_is_forgotten_in_all_its_scopes(index: Index) -> None:
    scopes = [T, T._replace(model="m-2")]
    others = [T._replace(tenant="tenant2"), T._replace(tenant="")]
    for scope in scopes + others:
        await index.put(scope, points(3))
    await index.forget_tenant(T.tenant)
    assert [await there(index, scope, "p0", "p2") for scope in scopes] == [[False, False]] * 2
    assert [await there(index, scope, "p0", "p2") for scope in others] == [[True, True]] * 2


async def test_odd_names_are_names(index: Index) -> None:
    scope = Scope("a/b\0c%_*\ud800", "../model 'x' \" ; DROP")
    await index.put(scope, [Point("'; --", vector(1, 0))])
    assert None not in await index.vectors(scope, ["'; --"])


async def test_vectors_of_another_dimension_begin_a_collection_anew() -> None:
    with QdrantServer() as server:
        index = PointServer(server.url, None, "penstock", 30.0)
        await index.put(T, [Point("flat", vector(1, 0))])
        await index.put(T, [Point("deep", vector(1, 0, 0)), Point("void", b"")])
        assert [each is not None for each in await index.vectors(T, ["flat", "deep", "void"])] == [False, True, False]
        await index.aclose()


async def test_the_oldest_leave_where_there_is_no_room(tmp_path: Path) -> None:
    index = Embedded(tmp_path, 2**20, ttl=3600.0)
    for start in range(0, 3000, 100):
        await index.put(T, points(100, width=384, name=f"{start}-"))
    assert await there(index, T, "0-0", "2900-99") == [False, True]
    await index.aclose()
    assert (tmp_path / DATABASE).stat().st_size <= 1.1 * 2**20


async def test_a_vector_leaves_when_its_time_is_over(tmp_path: Path) -> None:
    for ttl, is_there in ((100.0, True), (0.0, False)):
        index = Embedded(tmp_path, 2**20, ttl=ttl)
        await index.put(T, points(1))
        assert await there(index, T, "p0") == [is_there]
        await index.aclose()
