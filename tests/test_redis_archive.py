"""The archive on a Redis server that several share: what has a handle is there, whatever happened to the server."""

from collections.abc import AsyncIterator

import pytest

from proxy.context import Identity
from proxy.state.archive import Archives
from proxy.state.redis import RedisStore
from tests.redis_process import RedisProcess


@pytest.fixture
async def stores(running: RedisProcess) -> AsyncIterator[list[RedisStore]]:
    made = [running.store(timeout=30.0) for _ in range(3)]
    yield made
    for each in made:
        await each.aclose()


async def test_a_tenant_is_forgotten_for_all(stores: list[RedisStore], running: RedisProcess) -> None:
    first, second = (Archives(store) for store in stores[:2])
    for n in range(30):
        for tenant in ("a", "b"):
            await first.bind(Identity(tenant, f"named-s{n % 3}")).keep(f"{tenant} {n}")
    assert await second.forget("a") == 30
    with running.admin() as admin:
        left = [name.decode() for name in admin.scan_iter("*:value:*")]
    assert len(left) == 60
    assert all("/b/" in name for name in left)


async def test_what_was_seen_by_one_is_not_trusted_after_the_server_was_emptied_and_another_wrote_first(
    stores: list[RedisStore], running: RedisProcess
) -> None:
    first, second = (Archives(store) for store in stores[:2])
    for archives in (first, second):
        assert await archives.bind(Identity("t", "named-s")).keep("shared")
    only = await second.bind(Identity("t", "named-s")).keep("only")
    assert only is not None
    running.flush()
    await first.bind(Identity("t", "named-u")).keep("shared")  # its pointer, which is the tenant's, is there again
    archive = second.bind(Identity("t", "named-s"))
    assert await archive.keep("shared")
    assert await archive.keep("only") == only
    assert await first.bind(Identity("t", "named-s")).fetch(only) == "only"
    running.flush()
    shared = await first.bind(Identity("t", "named-s")).keep("shared") or ""
    assert await second.bind(Identity("t", "named-s")).touch([shared, only]) == {shared}, "nor by touch"
