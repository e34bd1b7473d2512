"""Two proxies on one Redis server count together what keys use, and do without counts where it is away."""

import asyncio
from functools import partial

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import until
from tests.redis_process import RedisProcess

ANN, SPARE, BOB = "pk-ann", "pk-spare", "pk-bob"
CONFIG = """
server: {admin_key: the-operator}
upstreams: {main: {kind: openai, base_url: "{url}", api_key: sk-own}}
models: [{match: "*", upstream: main, window: 4000, reserve: 100, prices: {input: 1000000, output: 1000000}}]
state: {kind: redis, url: "{redis}", timeout: 60}
auth:
  kind: keys
  keys:
    - {name: ann, hash: {ann}, {limits}}
    - {name: spare, hash: {spare}, tenant: ann, {limits}}
    - {name: bob, hash: {bob}, {limits}}
"""


async def two(limits: str, running: RedisProcess, lab: Lab) -> list[Client]:
    keys = {name: hash_of(key) for name, key in (("ann", ANN), ("spare", SPARE), ("bob", BOB))}
    bases = await lab.two(CONFIG, redis=running.url, limits=limits, **keys)
    return [Client(base, lab.http, ANN) for base in bases]


async def test_a_minutes_requests_count_once_for_both(running: RedisProcess, lab: Lab) -> None:
    clients = await two("requests_per_minute: 4", running, lab)
    told = [await clients[n % 2].chat() for n in range(7)]
    assert [each.status for each in told] == [200] * 4 + [429] * 3
    assert int(told[-1].headers["retry-after"]) >= 1
    assert (await clients[0].chat(key=SPARE)).status == 200, "a key's limit is its own, also where it shares a tenant"
    assert (await clients[1].chat(key=BOB)).status == 200
    assert len(lab.behind.received) == 6


async def test_what_a_key_used_is_told_by_both_alike(running: RedisProcess, lab: Lab) -> None:
    clients = await two("budget_per_day: 1000, requests_per_minute: 1000", running, lab)
    for n in range(4):
        assert (await clients[n % 2].chat()).status == 200
    for client in clients:
        # what the other one has noted comes a moment later
        answer = await until(partial(client.get, "/v1/usage"), lambda got: got.json["used"]["requests"] >= 4)
        told = answer.json
        used = {name: told["used"][name] for name in ("requests", "input_tokens", "output_tokens", "usd")}
        assert used == {"requests": 4, "input_tokens": 36, "output_tokens": 8, "usd": 44.0}
        assert told["models"] == {"*": told["used"]}
        assert told["limits"]["budget_per_day"]["remaining"] == 1000 - 44
        assert told["limits"]["requests_per_minute"]["remaining"] < 1000 - 4
    assert (await clients[0].get("/v1/usage", key=BOB)).json["used"]["requests"] == 0
    await asyncio.to_thread(running.stop)
    refused = await clients[0].get("/v1/usage")
    assert refused.refusal == (503, "usage_unavailable")
    assert "retry-after" in refused.headers
