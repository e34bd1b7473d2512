"""`/v1/usage`: what a key used, told to that key alone, and passed on where clients have keys of an upstream."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, Upstream, answering, send, until
from tests.e2e.test_recall import CONVERSATION, TOOLS
from tests.e2e.test_recall import model as recalling

ANN, BOB, POOR = "pk-ann", "pk-bob", "pk-poor"
UPSTREAMS = """
upstreams: {main: {kind: openai, base_url: "{url}"}, echo: {kind: echo}}
models:
  - {match: echo, upstream: echo}
  - {match: ["gpt-*", "o-*"], upstream: main, window: 4000, reserve: 100, prices: {input: 1000000, output: 2000000}}
  - {match: "*", upstream: main}
"""
CONFIG = (
    UPSTREAMS.replace('"{url}"', '"{url}", api_key: sk-own')
    + f"""
auth:
  kind: keys
  keys:
    - {{name: ann, hash: {hash_of(ANN)}, tenant: acme}}
    - {{name: bob, hash: {hash_of(BOB)}, tenant: acme, requests_per_minute: 5000, tokens_per_minute: 5000, max_n: 2}}
    - {{name: poor, hash: {hash_of(POOR)}, budget_per_day: 20, tokens_per_day: 1000}}
"""
)
NOTHING = {
    "requests": 0, "without_usage": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "usd": 0.0,
}  # fmt: skip


async def used(client: Client, key: str, holds: Callable[[Any], bool] = bool) -> Any:
    """Return what the key is told, once it is so: use is counted behind the answer."""
    return (await until(lambda: client.get("/v1/usage", key=key), lambda got: holds(got.json))).json


async def test_a_key_is_told_what_it_used_in_all_and_by_model(client: Client, behind: Upstream) -> None:
    assert await used(client, ANN) | {"day": ""} == {
        "object": "usage", "key": "ann", "day": "", "used": NOTHING, "models": {}, "limits": {},
    }  # fmt: skip
    for model in ("gpt-5", "gpt-4o", "o-3", "other"):
        assert (await client.chat(model=model, key=ANN)).status == 200
    told = await used(client, ANN, lambda told: told["used"]["requests"] == 4)
    each = {**NOTHING, "requests": 1, "input_tokens": 9, "output_tokens": 2}
    assert told["models"] == {
        "gpt-*": {**NOTHING, "requests": 2, "input_tokens": 18, "output_tokens": 4, "usd": 26.0},
        "o-*": {**each, "usd": 13.0},
        "*": each,
    }
    assert told["used"] == {**NOTHING, "requests": 4, "input_tokens": 36, "output_tokens": 8, "usd": 39.0}
    assert (await used(client, BOB))["used"] == NOTHING, "also where both are of one tenant"
    assert [received.path for received in behind.received] == ["/v1/chat/completions"] * 4


async def test_what_no_upstream_answered_is_not_counted(client: Client, behind: Upstream) -> None:
    behind.respond = answering(b'{"error":{"message":"no"}}', status=500)
    assert (await client.chat(model="gpt-5", key=ANN)).status == 500
    assert (await client.chat(model="", key=ANN)).status == 400
    assert (await client.chat(model="echo", key=ANN)).status == 200
    told = await used(client, ANN, lambda told: told["used"]["requests"] > 0)
    assert (told["used"]["requests"], list(told["models"])) == (1, ["echo"])


@pytest.mark.parametrize("model", ["alone", "not-alone"])
async def test_what_was_used_before_a_round_failed_is_paid_for(lab: Lab, model: str) -> None:
    async def once(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        if len(upstream.received) == 1:
            await recalling(upstream, received, writer)
        else:
            await send(writer, 429, b'{"error":{"message":"full","type":"requests","param":null,"code":null}}')

    lab.behind.respond = once
    text = CONFIG.replace("models:", "models:\n  - {match: not-alone, upstream: main, fallbacks: [alone]}", 1)
    text += "chains: {default: [{compact_tool_results: {over: 600, read_again: 0}}, {offer_recall: {}}]}\n"
    client = await lab.client(text)
    assert (await client.chat(model=model, messages=CONVERSATION, tools=TOOLS, key=POOR)).status == 429
    told = await used(client, POOR, lambda told: told["limits"]["tokens_per_day"]["remaining"] < 1000)
    assert told["limits"]["tokens_per_day"]["remaining"] == 1000 - 110


async def test_limits_are_told_with_what_is_left(client: Client) -> None:
    assert (await client.chat(model="gpt-5", key=BOB)).status == 200
    told = await used(client, BOB, lambda told: told["limits"]["tokens_per_minute"]["remaining"] == 4989)
    assert told["limits"]["max_n"] == {"limit": 2}
    requests = told["limits"]["requests_per_minute"]
    assert requests["limit"] == 5000
    assert 0 <= requests["remaining"] <= 4998, "to ask is a request as well"
    assert 0 < requests["resets_after"] <= 120
    assert set(told["limits"]) == {"max_n", "requests_per_minute", "tokens_per_minute"}


async def test_a_key_that_has_used_its_day_can_still_ask(client: Client) -> None:
    await until(lambda: client.chat(model="gpt-5", key=POOR), lambda got: got.status == 429)
    told = await used(client, POOR, lambda told: told["limits"]["budget_per_day"]["remaining"] == 0)
    tokens = told["used"]["input_tokens"] + told["used"]["output_tokens"]
    assert told["limits"]["tokens_per_day"]["remaining"] == 1000 - tokens
    assert told["limits"]["budget_per_day"]["limit"] == 20
    assert 0 < told["limits"]["budget_per_day"]["resets_after"] <= 86400


async def test_with_keys_of_an_upstream_the_path_is_the_upstreams(lab: Lab) -> None:
    client = await lab.client(UPSTREAMS, "sk-client")
    for method in ("GET", "POST"):
        assert (await client.send(method, "/v1/usage")).status == 200
        assert (lab.behind.last.method, lab.behind.last.path) == (method, "/v1/usage")
