import asyncio
from contextlib import suppress

import pytest

from proxy.state.background import BackgroundWork


async def test_a_key_is_under_way_until_its_work_ends_also_where_nobody_waits_any_more() -> None:
    work, go_on = BackgroundWork[str](), asyncio.Event()
    work.begin(go_on.wait(), "a", "b")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await work.wait("a")
    await work.wait("abc", 0)
    assert set(work) == {"a", "b"}
    go_on.set()
    await work.wait("a")
    assert not work


async def test_forgetting_a_tenant_ends_its_work_alone() -> None:
    work = BackgroundWork[tuple[str, str]]()
    for keys in ([("t", "1"), ("t", "2")], [("other", "1")], []):
        work.begin(asyncio.sleep(1000), *keys)
    work.forget("t")
    await work.wait([("t", "1")])
    assert (("other", "1") in work, len(work)) == (True, 2)
    await work.aclose()
    assert not work


async def test_work_ends_also_where_a_cancellation_is_lost() -> None:
    work, began = BackgroundWork[str](), asyncio.Event()

    async def deaf() -> None:
        with suppress(asyncio.CancelledError):
            began.set()
            await asyncio.sleep(1000)
        await asyncio.sleep(1000)

    work.begin(deaf(), "a")
    await began.wait()
    await work.aclose()
    assert not work
