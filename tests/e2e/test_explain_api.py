"""`POST /v1/explain`: what the chain would make of a client's request, in a running server that changes nothing."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.config.keys import hash_of
from tests.e2e.servers import Upstream, proxy, upstream

CONFIG = """
server: {{may_choose_chain: {may}}}
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "*", upstream: main, window: 100000, tokenizer: chars}}]
chains:
  default:
    - select_memories: {{}}
    - window_history: {{keep_turns: 2, stride: 1}}
  empty: []
state: {{directory: "{folder}/state"}}
embedding: {{kind: none}}
telemetry: {{log_level: error}}
"""
KEY = "admin-" + "k" * 32
LONG = "Please look at this again, for I am not sure of it. " * 30
TALK = [{"role": role, "content": f"{turn}: {LONG}"} for turn in range(5) for role in ("user", "assistant")][:-1]


@pytest.fixture
async def behind() -> AsyncGenerator[Upstream, None]:
    async with upstream() as made:
        yield made


async def explained(
    base: str, asked: Any, headers: Mapping[str, str] | None = None, *, status: int = 200
) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.post(f"{base}/v1/explain", json=asked, headers=headers) as answer:
        assert answer.status == status, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


async def test_what_is_explained_is_then_served(behind: Upstream, tmp_path: Path) -> None:
    config = CONFIG.format(url=behind.url, folder=tmp_path, may="false")
    async with proxy(config, tmp_path) as base, aiohttp.ClientSession() as http:
        headers = {"authorization": "Bearer k", "x-penstock-user": "ann"}
        memory = {"text": "The user drinks coffee without sugar in the morning.", "user": "ann"}
        async with http.post(f"{base}/v1/memories", json=memory, headers=headers) as answer:
            assert answer.status in (200, 201)
        asked = {"role": "user", "content": "How do I take my coffee in the morning?"}
        request = {"model": "m", "messages": [*TALK[:-1], asked]}
        found = await explained(base, {"request": request}, headers)
        assert behind.received == []
        async with http.post(f"{base}/v1/chat/completions", json=request, headers=headers) as answer:
            assert answer.status == 200
        assert found["text"]["after"] == json.loads(behind.last.body)["messages"]
        assert "without sugar" in json.dumps(found["text"]["after"]), "memories are read"
    assert found["text"]["before"] == request["messages"]
    assert found["sections"]["after"]["messages"] < found["sections"]["before"]["messages"]
    assert [step["policy"] for step in found["steps"]] == ["select_memories", "window_history"]
    kinds = {change["kind"] for change in found["changes"]}
    assert {"removed", "added", "unchanged"} <= kinds
    assert {change["step"] for change in found["changes"] if change["kind"] == "removed"} == {"window_history"}


async def test_nothing_of_it_is_kept(behind: Upstream, tmp_path: Path) -> None:
    async with proxy(CONFIG.format(url=behind.url, folder=tmp_path, may="false"), tmp_path) as base:
        found = await explained(base, {"request": {"model": "m", "messages": TALK}})
        handles = re.findall(r'recall\(\\*"([a-z2-7]{20})', json.dumps(found["text"]["after"]))
        assert handles
        for handle in handles:
            async with aiohttp.ClientSession() as http, http.get(f"{base}/v1/retrieve/{handle}") as answer:
                assert answer.status == 404
    assert behind.received == []


async def test_the_requests_before_it_count(behind: Upstream, tmp_path: Path) -> None:
    """What is read from the cache is what the request before this one had."""
    config = CONFIG.format(url=behind.url, folder=tmp_path, may="true")
    config = config.replace("tokenizer: chars", "tokenizer: chars, prices: {input: 1}, cache: {read: 0.1, ttl: 300}")
    async with proxy(config, tmp_path) as base:
        request = {"model": "m", "messages": TALK[:3]}
        asked = {"request": request, "before": [{"model": "m", "messages": TALK[:1]}], "chain": "empty"}
        alone = await explained(base, {"request": {"model": "m", "messages": TALK[:1]}})
        behind_one = await explained(base, {**asked, "chain": "default"})
        assert alone["cached_expected"] == 0
        assert behind_one["cached_expected"] > 0
        assert (await explained(base, asked))["chain"] == "empty"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([], "not valid JSON"),
        ({}, "request must be the body of a chat request"),
        ({"request": {"model": "m", "messages": [5]}}, "messages[0] must be an object"),
        ({"request": {"model": "m", "messages": TALK}, "before": 5}, "before must be a list"),
        ({"request": {"model": "m", "messages": TALK}, "before": [{}] * 65}, "at most 64"),
        ({"request": {"model": "m", "messages": TALK}, "chain": "empty"}, "x-penstock-chain is not allowed here"),
    ],
)
async def test_what_is_wrong_is_told(behind: Upstream, tmp_path: Path, asked: Any, told: str) -> None:
    async with proxy(CONFIG.format(url=behind.url, folder=tmp_path, may="false"), tmp_path) as base:
        found = await explained(base, asked, status=400)
        assert told in found["error"]["message"]


async def test_a_key_explains_what_it_may_ask_for(behind: Upstream, tmp_path: Path) -> None:
    keys = f"auth: {{kind: keys, keys: [{{name: ann, hash: {hash_of('pk-1')}, models: [m]}}]}}\n"
    config = CONFIG.format(url=behind.url, folder=tmp_path, may="true").replace(
        "kind: openai,", "kind: openai, keyless: true,"
    )
    async with proxy(config + keys, tmp_path) as base:
        request = {"model": "m", "messages": TALK}
        assert (await explained(base, {"request": request}, {"authorization": "Bearer pk-1"}))["model"] == "m"
        await explained(base, {"request": request}, {"authorization": "Bearer pk-2"}, status=401)
        await explained(base, {"request": {**request, "model": "other"}}, {"authorization": "Bearer pk-1"}, status=404)


async def asked_as_operator(base: str, asked: Any, status: int = 200) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(headers=headers) as http, http.post(f"{base}/admin/explain", json=asked) as answer:
        assert answer.status == status, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


async def test_an_operator_tries_chains_on_a_request(behind: Upstream, tmp_path: Path) -> None:
    config = CONFIG.format(url=behind.url, folder=tmp_path, may="false").replace(
        "may_choose", f"admin_key: {KEY}, may_choose"
    )
    request = {"model": "m", "messages": TALK}
    async with proxy(config, tmp_path) as base:
        tried = "- window_history: {keep_turns: 1, stride: 1, summary: false}\n"
        found = await asked_as_operator(base, {"request": request, "chain_yaml": tried, "against": "empty"})
        assert [message["content"] for message in found["explained"]["text"]["after"]] == [TALK[-1]["content"]]
        assert found["against"]["text"]["after"] == TALK
        assert found["against"]["chain"] == "empty"
        plain = await asked_as_operator(base, {"request": request, "chain": "default"})
        assert plain["explained"]["chain"] == "default"
        assert plain["against"] is None
        wrong = await asked_as_operator(base, {"request": request, "chain_yaml": "- window_histry: {}"}, 400)
        assert "did you mean 'window_history'?" in wrong["error"]["message"]
        unknown = await asked_as_operator(base, {"request_id": "req_none"}, 404)
        assert unknown["error"]["code"] == "unknown_request"
        async with aiohttp.ClientSession() as http, http.post(f"{base}/admin/explain", json={}) as answer:
            assert answer.status == 401
    assert behind.received == []
