"""What was done to a request is told by any replica of one Redis server, to whom it concerns, and also without it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.served import served
from tests.e2e.servers import Upstream, proxy
from tests.e2e.test_admin import ADMIN, CONFIG, SECRET, Client
from tests.e2e.test_redis import asleep, away
from tests.redis_process import RedisProcess, redis_process


@pytest.fixture
def running() -> Generator[RedisProcess, None, None]:
    with redis_process() as made:
        yield made


def config(behind: Upstream, running: RedisProcess, timeout: float = 60.0) -> str:
    made = CONFIG.format(url=behind.url, folder="unused", server="admin_key: s3cret")
    state = f'state: {{kind: redis, url: "{running.url}", timeout: {timeout}}}'
    changed = made.replace('state: {directory: "unused"}', state)
    assert changed != made
    return changed


@asynccontextmanager
async def replicas(text: str, folder: Path, http: aiohttp.ClientSession) -> AsyncGenerator[tuple[Client, Client], None]:
    async with AsyncExitStack() as stack:
        bases = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            bases.append(await stack.enter_async_context(proxy(text, folder / name)))
        yield Client(bases[0], http), Client(bases[1], http)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def told(client: Client, path: str, headers: dict[str, str]) -> Any:
    """The answer as soon as there is one: a record is written a moment after its request."""
    async with asyncio.timeout(60):
        while (answer := await client.ask("GET", path, headers))[0] != 200:
            await asyncio.sleep(0.02)
    return answer[1]


async def test_a_record_of_one_replica_is_told_by_the_other_to_its_own_tenant(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    async with replicas(config(behind, running), tmp_path, http) as (first, second):
        await first.chat("mine", "one")
        here = await told(first, "/v1/explain/one", bearer("mine"))
        assert await told(second, "/v1/explain/one", bearer("mine")) == here
        assert await told(second, "/admin/requests/one", ADMIN) == here
        of_another = await second.ask("GET", "/v1/explain/one", bearer("other"))
        assert of_another[0] == 404
        assert of_another == await second.ask("GET", "/v1/explain/none", bearer("mine"))
        assert (await second.ask("GET", "/v1/explain/one"))[0] == 404
        # an id that another client takes as well hides nothing, wherever it does
        await second.chat("other", "one")
        theirs = await told(first, "/v1/explain/one", bearer("other"))
        assert theirs["tenant"] != here["tenant"]
        assert await told(second, "/v1/explain/one", bearer("mine")) == here
        # a list is of one replica, and says whether there may be more elsewhere
        _, listed = await second.ask("GET", "/admin/requests", ADMIN)
        assert ([each["request_id"] for each in listed["requests"]], listed["shared"]) == (["one"], True)


async def test_the_newest_of_an_id_is_told_wherever_it_was_made(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    async with replicas(config(behind, running), tmp_path, http) as (first, second):
        await first.chat("mine", "one")
        old = await told(second, "/v1/explain/one", bearer("mine"))
        await second.chat("mine", "one")
        new = await told(second, "/v1/explain/one", bearer("mine"))
        assert new["ended"] > old["ended"]
        async with asyncio.timeout(60):
            while await told(first, "/v1/explain/one", bearer("mine")) != new:
                await asyncio.sleep(0.02)


async def test_the_server_gets_no_text_and_no_key(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    async with replicas(config(behind, running), tmp_path, http) as (first, second):
        await first.chat("sk-client", "one")
        await told(second, "/v1/explain/one", bearer("sk-client"))
        with running.admin() as admin:
            (key,) = admin.scan_iter("penstock:value:explain/*")
            kept = key + admin.get(key)
            assert 0 < admin.ttl(key) <= 3600
    assert b"window_history" in kept
    for secret in (SECRET, "sk-client", "s3cret"):
        assert secret.encode() not in kept


@pytest.mark.parametrize("fault", [away, asleep])
async def test_without_the_server_requests_go_on_and_each_replica_tells_its_own(
    tmp_path: Path,
    behind: Upstream,
    http: aiohttp.ClientSession,
    running: RedisProcess,
    fault: Callable[[RedisProcess], Callable[[], None]],
) -> None:
    async with replicas(config(behind, running, timeout=2.0), tmp_path, http) as (first, second):
        await first.chat("mine", "before")
        await told(second, "/v1/explain/before", bearer("mine"))
        mend = fault(running)
        await first.chat("mine", "meanwhile")
        assert (await first.ask("GET", "/v1/explain/meanwhile", bearer("mine")))[0] == 200
        assert (await first.ask("GET", "/v1/explain/before", bearer("mine")))[0] == 200
        status, answer = await second.ask("GET", "/v1/explain/meanwhile", bearer("mine"))
        assert (status, answer["error"]["code"]) == (404, "unknown_request")
        assert "cannot be read right now" in answer["error"]["message"]
        assert (await second.ask("GET", "/v1/explain/meanwhile", bearer("other")))[1] == answer, "it tells nobody more"
        mend()
        assert (await told(second, "/v1/explain/meanwhile", bearer("mine")))["request_id"] == "meanwhile"


async def test_a_replica_that_stops_leaves_its_last_records(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    (tmp_path / "first").mkdir()
    async with served(config(behind, running), tmp_path / "first") as leaving:
        await Client(leaving.base, http).chat("mine", "last")
    assert not leaving.log
    (tmp_path / "second").mkdir()
    async with proxy(config(behind, running), tmp_path / "second") as base:
        status, last = await Client(base, http).ask("GET", "/v1/explain/last", bearer("mine"))
        assert (status, last["request_id"]) == (200, "last")


async def test_workers_and_replicas_tell_a_request_once(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "other").mkdir()
    text = config(behind, running)
    async with served(text, tmp_path / "workers", "--workers", "2") as one, proxy(text, tmp_path / "other") as other:
        workers, elsewhere = Client(one.base, http), Client(other, http)
        for n in range(6):
            await workers.chat("mine", f"id-{n}")
        for n in range(6):
            assert (await told(elsewhere, f"/v1/explain/id-{n}", bearer("mine")))["request_id"] == f"id-{n}"
        _, listed = await workers.ask("GET", "/admin/requests", ADMIN)
        assert [each["request_id"] for each in listed["requests"]] == [f"id-{n}" for n in reversed(range(6))]
