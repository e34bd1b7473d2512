"""The embedded index under what befalls files: several threads and processes, damage, bounds."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.state.sqlite import DATABASE
from proxy.state.store import StoreError
from proxy.vectors.base import Scope
from proxy.vectors.embedded import Embedded
from tests.vectors.made import T, embedded, points


async def test_eight_write_at_once(tmp_path: Path) -> None:
    made = points(400)

    async def work(number: int) -> None:
        index = Embedded(tmp_path, 2**26, ttl=3600.0, busy=60.0)
        for start in range(number * 50, number * 50 + 50, 10):
            some = made[start : start + 10]
            await index.put(T, some)
            assert None not in await index.vectors(T, [point.id for point in some])
        await index.aclose()

    await asyncio.gather(*map(work, range(8)))
    index = embedded(tmp_path)
    assert None not in await index.vectors(T, [point.id for point in made])
    await index.aclose()


async def test_what_one_process_changes_others_see(tmp_path: Path) -> None:
    index, twin = embedded(tmp_path), embedded(tmp_path)  # the twin is as another process would be
    await index.put(T, points(50, name="mine"))
    assert await index.vectors(T, ["mine0"]) == await twin.vectors(T, ["mine0"])
    await twin.put(T, points(60, name="theirs"))
    assert None not in await index.vectors(T, ["mine1", "theirs1"])
    await twin.forget_tenant(T.tenant)
    assert await index.vectors(T, ["mine1", "theirs1"]) == [None, None]
    await twin.aclose()
    await index.aclose()


@pytest.mark.parametrize(
    ("damage", "repaired"),
    [
        pytest.param(lambda whole: b"this is no database " * 500, 1, id="garbage"),
        pytest.param(lambda whole: whole[: len(whole) // 2], 1, id="cut off"),
        pytest.param(lambda whole: whole[:4096] + b"\xff" * (len(whole) - 4096), 1, id="pages overwritten"),
        pytest.param(lambda whole: b"", 0, id="empty"),
    ],
)
async def test_a_damaged_file_is_begun_anew(
    tmp_path: Path, damage: Callable[[bytes], bytes], repaired: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = embedded(tmp_path)
    await before.put(T, points(300))
    await before.aclose()
    (tmp_path / DATABASE).write_bytes(damage((tmp_path / DATABASE).read_bytes()))
    index = embedded(tmp_path)
    await index.vectors(T, [f"p{n}" for n in range(300)])
    await index.put(T, points(300))
    assert None not in await index.vectors(T, [f"p{n}" for n in range(300)])
    assert caplog.messages == ["a broken database was begun anew"] * repaired
    await index.aclose()


async def test_a_file_that_is_removed_under_us_is_begun_anew(tmp_path: Path) -> None:
    index, twin = embedded(tmp_path), embedded(tmp_path)
    await index.put(T, points(50))
    assert await twin.vectors(T, ["p0"]) != [None]
    for rest in ("", "-wal", "-shm"):
        (tmp_path / (DATABASE + rest)).unlink()
    await index.put(T, points(5, name="new"))
    assert [each is not None for each in await twin.vectors(T, ["new0", "p0"])] == [True, False]
    await index.aclose()
    await twin.aclose()


async def test_the_directory_is_closed_to_others_and_no_name_stands_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "vectors"
    index = embedded(folder)
    await index.put(Scope("sk-tenant", "model"), points(2))
    assert folder.stat().st_mode & 0o777 == 0o700
    await index.aclose()
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"sk-tenant" not in content


async def test_another_process_that_writes_for_long_is_waited_for_only_so_long(tmp_path: Path) -> None:
    index = embedded(tmp_path)
    await index.put(T, points(3))
    blocking = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    blocking.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as failed:
        await index.put(T, points(3))
    assert failed.value.cause == "locked"
    assert None not in await index.vectors(T, ["p0"])
    blocking.execute("ROLLBACK")
    blocking.close()
    await index.put(T, points(3))
    await index.aclose()
    with pytest.raises(StoreError, match="closed"):
        await index.vectors(T, ["p0"])
