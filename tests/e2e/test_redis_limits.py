"""Two proxies on one Redis server count together what keys use, and do without counts where it is away."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.config.keys import hash_of
from tests.e2e.served import Served, served
from tests.e2e.servers import Upstream
from tests.redis_process import RedisProcess, redis_process

ANN, SPARE, BOB = "pk-ann", "pk-spare", "pk-bob"
CONFIG = """
server: {{admin_key: the-operator}}
upstreams: {{main: {{kind: openai, base_url: "{url}", api_key: sk-own}}}}
models: [{{match: "*", upstream: main, window: 4000, reserve: 100, prices: {{input: 1000000, output: 1000000}}}}]
state: {{kind: redis, url: "{redis}", timeout: {timeout}}}
embedding: {{kind: none}}
telemetry: {{log_level: warning}}
auth:
  kind: keys
  keys:
    - {{name: ann, hash: {ann}, {limits}}}
    - {{name: spare, hash: {spare}, tenant: ann, {limits}}}
    - {{name: bob, hash: {bob}, {limits}}}
"""
TALK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def running() -> Generator[RedisProcess, None, None]:
    with redis_process() as made:
        yield made


def config(limits: str, running: RedisProcess, behind: Upstream, timeout: float) -> str:
    keys = {name: hash_of(key) for name, key in (("ann", ANN), ("spare", SPARE), ("bob", BOB))}
    return CONFIG.format(url=behind.url, redis=running.url, limits=limits, timeout=timeout, **keys)


@asynccontextmanager
async def two(
    limits: str, running: RedisProcess, behind: Upstream, folder: Path, patience: float = 60.0
) -> AsyncGenerator[list[Served], None]:
    """Two proxies, each in a process of its own, which wait so many seconds for the server."""
    made = config(limits, running, behind, patience)
    for name in ("first", "second"):
        (folder / name).mkdir()
    async with served(made, folder / "first") as first, served(made, folder / "second") as second:
        yield [first, second]


async def ask(http: aiohttp.ClientSession, proxy: Served, key: str = ANN) -> tuple[int, Any, Any]:
    headers = {"authorization": f"Bearer {key}"}
    async with http.post(f"{proxy.base}/v1/chat/completions", headers=headers, json=TALK) as response:
        return response.status, response.headers, await response.json()


async def test_a_minutes_requests_count_once_for_both(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    async with two("requests_per_minute: 4", running, behind, tmp_path) as proxies:
        told = [await ask(http, proxies[n % 2]) for n in range(7)]
        assert [status for status, _, _ in told] == [200] * 4 + [429] * 3
        assert int(told[-1][1]["retry-after"]) >= 1
        assert (await ask(http, proxies[0], SPARE))[0] == 200, "a key's limit is its own, also where it shares a tenant"
        assert (await ask(http, proxies[1], BOB))[0] == 200
    assert len(behind.received) == 6


async def test_many_at_once_get_no_more_than_there_is(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    async with two("requests_per_minute: 10", running, behind, tmp_path) as proxies:
        told = await asyncio.gather(*(ask(http, proxies[n % 2]) for n in range(40)))
    assert sorted(status for status, _, _ in told) == [200] * 10 + [429] * 30
    assert len(behind.received) == 10


async def test_a_minutes_tokens_count_once_for_both(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    # some hundred are taken before an answer, and eleven of them used: a third request has no room beside the others
    async with two("tokens_per_minute: 140", running, behind, tmp_path) as proxies:
        told = []
        for n in range(8):
            told.append(await ask(http, proxies[n % 2]))
            if told[-1][0] == 429:
                break
        left = [int(headers["x-ratelimit-remaining-tokens"]) for _, headers, _ in told]
    assert [status for status, _, _ in told] == [200] * (len(told) - 1) + [429]
    assert left[:-1] == sorted(left[:-1], reverse=True)
    assert len(set(left[:-1])) == len(told) - 1, "each sees what the other took"


@pytest.mark.parametrize(("limits", "paid"), [("budget_per_day: 20", 2), ("tokens_per_day: 30", 3)])
async def test_a_days_budget_is_spent_once_for_both(
    limits: str, paid: int, tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    async with two(limits, running, behind, tmp_path) as proxies:
        told = []
        for n in range(paid + 4):
            told.append(await ask(http, proxies[n % 2]))
            if n < paid:  # counted behind the answer
                await _counted(running, 11.0 * (n + 1))
        assert [status for status, _, _ in told] == [200] * paid + [429] * 4
        assert {answer["error"]["code"] for status, _, answer in told if status == 429} == {"insufficient_quota"}
        assert (await ask(http, proxies[0], BOB))[0] == 200
    assert len(behind.received) == paid + 1


async def test_what_a_key_used_is_told_by_both_alike(
    tmp_path: Path, behind: Upstream, http: aiohttp.ClientSession, running: RedisProcess
) -> None:
    async with two("budget_per_day: 1000, requests_per_minute: 1000", running, behind, tmp_path) as proxies:
        for n in range(4):
            assert (await ask(http, proxies[n % 2]))[0] == 200
        for proxy in proxies:
            async with asyncio.timeout(60):  # what the other one has noted comes a moment later
                while (told := await _told(http, proxy))["used"]["requests"] < 4:
                    await asyncio.sleep(0.02)
            used = {name: told["used"][name] for name in ("requests", "input_tokens", "output_tokens", "usd")}
            assert used == {"requests": 4, "input_tokens": 36, "output_tokens": 8, "usd": 44.0}
            assert told["models"] == {"*": told["used"]}
            assert told["limits"]["budget_per_day"]["remaining"] == 1000 - 44
            assert told["limits"]["requests_per_minute"]["remaining"] < 1000 - 4
        assert (await _told(http, proxies[0], BOB))["used"]["requests"] == 0
        await asyncio.to_thread(running.stop)
        async with http.get(f"{proxies[0].base}/v1/usage", headers={"authorization": f"Bearer {ANN}"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "usage_unavailable")
            assert "retry-after" in response.headers


async def _told(http: aiohttp.ClientSession, proxy: Served, key: str = ANN) -> Any:
    async with http.get(f"{proxy.base}/v1/usage", headers={"authorization": f"Bearer {key}"}) as response:
        assert response.status == 200
        return await response.json()


async def _counted(running: RedisProcess, tokens: float) -> None:
    """Wait until the day's tokens are so many."""

    def counted() -> bool:
        with running.admin() as admin:
            keys = list(admin.scan_iter("*:count:*tokens/day*"))
            return [float(admin.get(key) or 0) for key in keys] == [tokens]

    async with asyncio.timeout(60):
        while not await asyncio.to_thread(counted):
            await asyncio.sleep(0.01)


def away(running: RedisProcess) -> Callable[[], None]:
    running.stop()
    return running.start


def asleep(running: RedisProcess) -> Callable[[], None]:
    running.signal(signal.SIGSTOP)
    return lambda: running.signal(signal.SIGCONT)


@pytest.mark.parametrize("fault", [away, asleep])
async def test_without_the_server_requests_pass_uncounted_and_then_count_again(
    tmp_path: Path,
    behind: Upstream,
    http: aiohttp.ClientSession,
    running: RedisProcess,
    fault: Callable[[RedisProcess], Callable[[], None]],
) -> None:
    async with two("requests_per_minute: 3", running, behind, tmp_path, patience=2.0) as proxies:
        for n in range(3):
            assert (await ask(http, proxies[n % 2]))[0] == 200
        assert [(await ask(http, proxy))[0] for proxy in proxies] == [429, 429]
        mend = fault(running)
        try:
            for proxy in proxies:
                assert [(await ask(http, proxy))[0] for _ in range(6)] == [200] * 6
                assert any("limits are not counted" in line for line in proxy.log)
                operator = {"authorization": "Bearer the-operator"}
                async with http.get(f"{proxy.base}/metrics", headers=operator) as response:
                    found = [line for line in (await response.text()).splitlines() if "limits_unchecked_total " in line]
                assert float(found[-1].split()[-1]) >= 6
                async with http.get(f"{proxy.base}/readyz") as response:
                    assert (response.status, (await response.json())["degraded"]) == (200, ["state: unreachable"])
        finally:
            mend()
        async with asyncio.timeout(60):
            for proxy in proxies:
                while (await ask(http, proxy))[0] != 429:
                    await asyncio.sleep(0.05)
        assert [(await ask(http, proxy, BOB))[0] for proxy in (*proxies, *proxies)] == [200, 200, 200, 429]
