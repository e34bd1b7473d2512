"""Two proxies on one Redis server count together what keys use, and do without counts where it is away."""

import asyncio
from functools import partial

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import until
from tests.redis_process import RedisProcess

ANN, BOB = "pk-ann", "pk-bob"
CONFIG = """
server: {admin_key: the-operator}
upstreams: {main: {kind: openai, base_url: "{url}", api_key: sk-own}}
models: [{match: "*", upstream: main, window: 4000, reserve: 100, prices: {input: 1000000, output: 1000000}}]
state: {kind: redis, url: "{redis}", timeout: 60}
auth:
  kind: keys
  keys:
    - {name: ann, hash: {ann}, budget_per_day: 1000, requests_per_minute: 1000}
    - {name: bob, hash: {bob}}
"""


async def test_what_a_key_used_is_told_by_both_alike(running: RedisProcess, lab: Lab) -> None:
    bases = await lab.two(CONFIG, redis=running.url, ann=hash_of(ANN), bob=hash_of(BOB))
    clients = [Client(base, lab.http, ANN) for base in bases]
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
