"""The archive on a Redis server that several share: what has a handle is there, whatever happened to the server."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.context import Identity
from proxy.state.archive import HANDLE, Archives
from proxy.state.redis import RedisStore
from tests.redis_process import RedisProcess

ROOT = Path(__file__).parent.parent


@pytest.fixture
async def stores(running: RedisProcess) -> AsyncIterator[list[RedisStore]]:
    made = [running.store(timeout=30.0) for _ in range(3)]
    yield made
    for each in made:
        await each.aclose()


TEXTS = ["", "a", "\ud800", "\udfff" * 5000, "\0" * 2000, "é€😀" * 20_000, "line\r\n" * 9000]


async def test_text_of_all_kinds_comes_back_from_another(stores: list[RedisStore]) -> None:
    other = Archives(stores[1])
    for content in TEXTS:
        handle = await Archives(stores[0]).bind(Identity("t/é", "named-s")).keep(content)
        assert handle is not None
        assert HANDLE.fullmatch(handle)
        assert await other.bind(Identity("t/é", "named-s")).fetch(handle) == content
        assert await other.find("t/é", handle) == content
        assert await other.bind(Identity("t/é", "named-u")).fetch(handle) is None
        assert await other.bind(Identity("t", "named-s")).fetch(handle) is None
        assert await other.find("t", handle) is None


async def test_those_who_share_a_server_share_what_they_keep(stores: list[RedisStore]) -> None:
    sharing = [Archives(store).bind(Identity("t", "named-s")) for store in stores]
    handles = await asyncio.gather(*(each.keep(f"{n % 20}" * 5000) for each in sharing for n in range(60)))
    assert len(set(handles)) == 20
    assert None not in handles
    for each in sharing:
        assert await each.fetch(handles[7] or "") == "7" * 5000
        assert set(await each.handles(100)) == set(handles)
        assert await each.touch([handle or "" for handle in handles]) == set(handles)


async def test_a_tenant_is_forgotten_for_all(stores: list[RedisStore], running: RedisProcess) -> None:
    first, second = (Archives(store) for store in stores[:2])
    for n in range(30):
        for tenant in ("a", "b"):
            await first.bind(Identity(tenant, f"named-s{n % 3}")).keep(f"{tenant} {n}")
    assert await second.forget("a", "named-s0") == 10
    assert await second.forget("a") == 20
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


async def test_nor_by_touch(stores: list[RedisStore], running: RedisProcess) -> None:
    first, second = (Archives(store) for store in stores[:2])
    handles = [await second.bind(Identity("t", "named-s")).keep(content) or "" for content in ("shared", "only")]
    running.flush()
    await first.bind(Identity("t", "named-s")).keep("shared")
    assert await second.bind(Identity("t", "named-s")).touch(handles) == {handles[0]}


async def test_a_kill_after_keep_loses_nothing_that_has_a_handle(
    stores: list[RedisStore], running: RedisProcess
) -> None:
    script = (
        "import asyncio, os, signal, sys\nfrom proxy.context import Identity\nfrom proxy.state.archive import Archives\n"
        "from proxy.state.redis_server import RedisServer\nfrom proxy.state.redis import RedisStore\n"
        "async def main():\n"
        "    archive = Archives(RedisStore(RedisServer(sys.argv[1], timeout=30))).bind(Identity('t', 'named-s'))\n"
        "    print(*[await archive.keep(f'{n} ' * 20_000) for n in range(5)], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    arguments = [sys.executable, "-c", script, running.url]
    ended = await asyncio.to_thread(subprocess.run, arguments, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert ended.returncode == -9, ended.stderr
    archive = Archives(stores[0]).bind(Identity("t", "named-s"))
    for number, handle in enumerate(ended.stdout.split()):
        assert await archive.fetch(handle) == f"{number} " * 20_000
    assert len(ended.stdout.split()) == 5
