"""Two proxies on one Redis server count together what keys use, and do without counts where it is away."""

import asyncio
from typing import Any

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Lab
from tests.e2e.servers import Upstream
from tests.redis_process import RedisProcess

ANN, SPARE, BOB = "pk-ann", "pk-spare", "pk-bob"
CONFIG = """
server: {{admin_key: the-operator}}
upstreams: {{main: {{kind: openai, base_url: "{url}", api_key: sk-own}}}}
models: [{{match: "*", upstream: main, window: 4000, reserve: 100, prices: {{input: 1000000, output: 1000000}}}}]
state: {{kind: redis, url: "{redis}", timeout: {timeout}}}
auth:
  kind: keys
  keys:
    - {{name: ann, hash: {ann}, {limits}}}
    - {{name: spare, hash: {spare}, tenant: ann, {limits}}}
    - {{name: bob, hash: {bob}, {limits}}}
"""
TALK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def config(limits: str, running: RedisProcess, behind: Upstream, timeout: float = 60.0) -> str:
    """Proxies that wait so many seconds for the server."""
    keys = {name: hash_of(key) for name, key in (("ann", ANN), ("spare", SPARE), ("bob", BOB))}
    return CONFIG.format(url=behind.url, redis=running.url, limits=limits, timeout=timeout, **keys)


async def ask(lab: Lab, base: str, key: str = ANN) -> tuple[int, Any, Any]:
    return await lab.chat(base, TALK, {"authorization": f"Bearer {key}"})


async def test_a_minutes_requests_count_once_for_both(running: RedisProcess, lab: Lab) -> None:
    bases = await lab.two(config("requests_per_minute: 4", running, lab.behind))
    told = [await ask(lab, bases[n % 2]) for n in range(7)]
    assert [status for status, _, _ in told] == [200] * 4 + [429] * 3
    assert int(told[-1][1]["retry-after"]) >= 1
    assert (await ask(lab, bases[0], SPARE))[0] == 200, "a key's limit is its own, also where it shares a tenant"
    assert (await ask(lab, bases[1], BOB))[0] == 200
    assert len(lab.behind.received) == 6


async def test_what_a_key_used_is_told_by_both_alike(running: RedisProcess, lab: Lab) -> None:
    bases = await lab.two(config("budget_per_day: 1000, requests_per_minute: 1000", running, lab.behind))
    for n in range(4):
        assert (await ask(lab, bases[n % 2]))[0] == 200
    for base in bases:
        async with asyncio.timeout(60):  # what the other one has noted comes a moment later
            while (told := await _told(lab, base))["used"]["requests"] < 4:
                await asyncio.sleep(0.02)
        used = {name: told["used"][name] for name in ("requests", "input_tokens", "output_tokens", "usd")}
        assert used == {"requests": 4, "input_tokens": 36, "output_tokens": 8, "usd": 44.0}
        assert told["models"] == {"*": told["used"]}
        assert told["limits"]["budget_per_day"]["remaining"] == 1000 - 44
        assert told["limits"]["requests_per_minute"]["remaining"] < 1000 - 4
    assert (await _told(lab, bases[0], BOB))["used"]["requests"] == 0
    await asyncio.to_thread(running.stop)
    async with lab.http.get(f"{bases[0]}/v1/usage", headers={"authorization": f"Bearer {ANN}"}) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (503, "usage_unavailable")
        assert "retry-after" in response.headers


async def _told(lab: Lab, base: str, key: str = ANN) -> Any:
    status, told = await lab.get(f"{base}/v1/usage", {"authorization": f"Bearer {key}"})
    assert status == 200
    return told
