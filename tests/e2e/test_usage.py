"""`/v1/usage`: what a key used, told to that key alone, and passed on where clients have keys of an upstream."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Upstream, answering, send
from tests.e2e.test_recall import CONVERSATION, TOOLS
from tests.e2e.test_recall import model as recalling

ANN, BOB, POOR = "pk-ann", "pk-bob", "pk-poor"
UPSTREAMS = """
upstreams: {{main: {{kind: openai, base_url: "{url}"{key}}}, echo: {{kind: echo}}}}
models:
  - {{match: echo, upstream: echo}}
  - {{match: ["gpt-*", "o-*"], upstream: main, window: 4000, reserve: 100, prices: {{input: 1000000, output: 2000000}}}}
  - {{match: "*", upstream: main}}
state: {{kind: memory}}
"""
KEYS = """
auth:
  kind: keys
  keys:
    - {{name: ann, hash: {ann}, tenant: acme}}
    - {{name: bob, hash: {bob}, tenant: acme, requests_per_minute: 5000, tokens_per_minute: 5000, max_n: 2}}
    - {{name: poor, hash: {poor}, budget_per_day: 20, tokens_per_day: 1000}}
"""
NOTHING = {
    "requests": 0, "without_usage": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "usd": 0.0,
}  # fmt: skip


@dataclass
class Setup:
    base: str
    behind: Upstream
    http: aiohttp.ClientSession

    async def chat(self, key: str, model: str) -> int:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        url, headers = f"{self.base}/v1/chat/completions", {"authorization": f"Bearer {key}"}
        async with self.http.post(url, json=body, headers=headers) as response:
            await response.read()
            return response.status

    async def ask(self, key: str, method: str = "GET") -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {key}"}
        async with self.http.request(method, f"{self.base}/v1/usage", headers=headers) as response:
            return response.status, json.loads(await response.read() or b"null")

    async def until(self, key: str, holds: Callable[[Any], bool]) -> Any:
        """What the key is told, once it is so: use is counted behind the answer."""
        async with asyncio.timeout(60):
            while True:
                status, answer = await self.ask(key)
                assert status == 200
                if holds(answer):
                    return answer
                await asyncio.sleep(0.01)


@pytest.fixture
async def setup(lab: Lab) -> Setup:
    keys = KEYS.format(ann=hash_of(ANN), bob=hash_of(BOB), poor=hash_of(POOR))
    base = await lab.start(UPSTREAMS.format(url=lab.behind.url, key=", api_key: sk-own") + keys)
    return Setup(base, lab.behind, lab.http)


async def test_a_key_is_told_what_it_used_in_all_and_by_model(setup: Setup) -> None:
    assert (await setup.ask(ANN))[1] | {"day": ""} == {
        "object": "usage", "key": "ann", "day": "", "used": NOTHING, "models": {}, "limits": {},
    }  # fmt: skip
    for model in ("gpt-5", "gpt-4o", "o-3", "other"):
        assert await setup.chat(ANN, model) == 200
    told = await setup.until(ANN, lambda told: told["used"]["requests"] == 4)
    each = {**NOTHING, "requests": 1, "input_tokens": 9, "output_tokens": 2}
    assert told["models"] == {
        "gpt-*": {**NOTHING, "requests": 2, "input_tokens": 18, "output_tokens": 4, "usd": 26.0},
        "o-*": {**each, "usd": 13.0},
        "*": each,
    }
    assert told["used"] == {**NOTHING, "requests": 4, "input_tokens": 36, "output_tokens": 8, "usd": 39.0}
    assert (await setup.ask(BOB))[1]["used"] == NOTHING, "also where both are of one tenant"
    assert [received.path for received in setup.behind.received] == ["/v1/chat/completions"] * 4


async def test_what_no_upstream_answered_is_not_counted(setup: Setup) -> None:
    setup.behind.respond = answering(b'{"error":{"message":"no"}}', status=500)
    assert await setup.chat(ANN, "gpt-5") == 500
    assert await setup.chat(ANN, "") == 400
    assert await setup.chat(ANN, "echo") == 200
    told = await setup.until(ANN, lambda told: told["used"]["requests"] > 0)
    assert (told["used"]["requests"], list(told["models"])) == (1, ["echo"])


@pytest.mark.parametrize("model", ["alone", "not-alone"])
async def test_what_was_used_before_a_round_failed_is_paid_for(lab: Lab, model: str) -> None:
    async def once(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        if len(upstream.received) == 1:
            await recalling(upstream, received, writer)
        else:
            await send(writer, 429, b'{"error":{"message":"full","type":"requests","param":null,"code":null}}')

    lab.behind.respond = once
    keys = KEYS.format(ann=hash_of(ANN), bob=hash_of(BOB), poor=hash_of(POOR))
    text = UPSTREAMS.format(url=lab.behind.url, key=", api_key: sk-own") + keys
    text = text.replace("models:", "models:\n  - {match: not-alone, upstream: main, fallbacks: [alone]}", 1)
    text += "chains: {default: [{compact_tool_results: {over: 600, read_again: 0}}, {offer_recall: {}}]}\n"
    setup = Setup(await lab.start(text), lab.behind, lab.http)
    body = {"model": model, "messages": CONVERSATION, "tools": TOOLS}
    headers = {"authorization": f"Bearer {POOR}"}
    async with lab.http.post(f"{setup.base}/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status == 429
    told = await setup.until(POOR, lambda told: told["limits"]["tokens_per_day"]["remaining"] < 1000)
    assert told["limits"]["tokens_per_day"]["remaining"] == 1000 - 110


async def test_limits_are_told_with_what_is_left(setup: Setup) -> None:
    assert await setup.chat(BOB, "gpt-5") == 200
    told = await setup.until(BOB, lambda told: told["limits"]["tokens_per_minute"]["remaining"] == 4989)
    assert told["limits"]["max_n"] == {"limit": 2}
    requests = told["limits"]["requests_per_minute"]
    assert requests["limit"] == 5000
    assert 0 <= requests["remaining"] <= 4998, "to ask is a request as well"
    assert 0 < requests["resets_after"] <= 120
    assert set(told["limits"]) == {"max_n", "requests_per_minute", "tokens_per_minute"}


async def test_a_key_that_has_used_its_day_can_still_ask(setup: Setup) -> None:
    async with asyncio.timeout(60):
        while await setup.chat(POOR, "gpt-5") != 429:
            pass
    told = await setup.until(POOR, lambda told: told["limits"]["budget_per_day"]["remaining"] == 0)
    used = told["used"]["input_tokens"] + told["used"]["output_tokens"]
    assert told["limits"]["tokens_per_day"]["remaining"] == 1000 - used
    assert told["limits"]["budget_per_day"]["limit"] == 20
    assert 0 < told["limits"]["budget_per_day"]["resets_after"] <= 86400


async def test_with_keys_of_an_upstream_the_path_is_the_upstreams(lab: Lab) -> None:
    client = Setup(await lab.start(UPSTREAMS.format(url=lab.behind.url, key="")), lab.behind, lab.http)
    for method in ("GET", "POST"):
        assert (await client.ask("sk-client", method))[0] == 200
        assert (lab.behind.last.method, lab.behind.last.path) == (method, "/v1/usage")
