"""`POST /v1/explain`: what the chain would make of a client's request, in a running server that changes nothing."""

import json
import re
from typing import Any

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Lab

CONFIG = """
server: {{may_choose_chain: {may}}}
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "*", upstream: main, window: 100000, tokenizer: chars}}]
chains:
  default:
    - select_memories: {{}}
    - window_history: {{keep_turns: 2, stride: 1}}
  empty: []
"""
KEY = "admin-" + "k" * 32
LONG = "Please look at this again, for I am not sure of it. " * 30
TALK = [{"role": role, "content": f"{turn}: {LONG}"} for turn in range(5) for role in ("user", "assistant")][:-1]


async def explained(
    lab: Lab, base: str, asked: Any, headers: Any = None, *, status: int = 200, path: str = "/v1/explain"
) -> dict[str, Any]:
    async with lab.http.post(f"{base}{path}", json=asked, headers=headers) as answer:
        assert answer.status == status, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


async def test_what_is_explained_is_then_served(lab: Lab) -> None:
    config = CONFIG.format(url=lab.behind.url, may="false")
    base, http = await lab.start(config), lab.http
    headers = {"authorization": "Bearer k", "x-penstock-user": "ann"}
    memory = {"text": "The user drinks coffee without sugar in the morning.", "user": "ann"}
    async with http.post(f"{base}/v1/memories", json=memory, headers=headers) as answer:
        assert answer.status in (200, 201)
    asked = {"role": "user", "content": "How do I take my coffee in the morning?"}
    request = {"model": "m", "messages": [*TALK[:-1], asked]}
    found = await explained(lab, base, {"request": request}, headers)
    assert lab.behind.received == []
    async with http.post(f"{base}/v1/chat/completions", json=request, headers=headers) as answer:
        assert answer.status == 200
    assert found["text"]["after"] == json.loads(lab.behind.last.body)["messages"]
    assert "without sugar" in json.dumps(found["text"]["after"]), "memories are read"
    assert found["text"]["before"] == request["messages"]
    assert found["sections"]["after"]["messages"] < found["sections"]["before"]["messages"]
    assert [step["policy"] for step in found["steps"]] == ["select_memories", "window_history"]
    kinds = {change["kind"] for change in found["changes"]}
    assert {"removed", "added", "unchanged"} <= kinds
    assert {change["step"] for change in found["changes"] if change["kind"] == "removed"} == {"window_history"}


async def test_nothing_of_it_is_kept(lab: Lab) -> None:
    base = await lab.start(CONFIG.format(url=lab.behind.url, may="false"))
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    found = await explained(lab, base, {"request": {"model": "m", "messages": TALK, "tools": tools}})
    handles = re.findall(r'recall\(\\*"([a-z2-7]{20})', json.dumps(found["text"]["after"]))
    assert handles
    for handle in handles:
        async with lab.http.get(f"{base}/v1/retrieve/{handle}") as answer:
            assert answer.status == 404
    assert lab.behind.received == []


async def test_the_requests_before_it_count(lab: Lab) -> None:
    """What is read from the cache is what the request before this one had."""
    config = CONFIG.format(url=lab.behind.url, may="true")
    config = config.replace("tokenizer: chars", "tokenizer: chars, prices: {input: 1}, cache: {read: 0.1, ttl: 300}")
    base = await lab.start(config)
    request = {"model": "m", "messages": TALK[:3]}
    asked = {"request": request, "before": [{"model": "m", "messages": TALK[:1]}], "chain": "empty"}
    alone = await explained(lab, base, {"request": {"model": "m", "messages": TALK[:1]}})
    behind_one = await explained(lab, base, {**asked, "chain": "default"})
    assert alone["cached_expected"] == 0
    assert behind_one["cached_expected"] > 0
    assert (await explained(lab, base, asked))["chain"] == "empty"


WRONG: list[tuple[Any, str]] = [
    ([], "not valid JSON"),
    ({}, "request must be the body of a chat request"),
    ({"request": {"model": "m", "messages": [5]}}, "messages[0] must be an object"),
    ({"request": {"model": "m", "messages": TALK}, "before": 5}, "before must be a list"),
    ({"request": {"model": "m", "messages": TALK}, "before": [{}] * 65}, "at most 64"),
    ({"request": {"model": "m", "messages": TALK}, "chain": "empty"}, "x-penstock-chain is not allowed here"),
]


async def test_what_is_wrong_is_told(lab: Lab) -> None:
    base = await lab.start(CONFIG.format(url=lab.behind.url, may="false"))
    for asked, told in WRONG:
        found = await explained(lab, base, asked, status=400)
        assert told in found["error"]["message"]


async def test_a_key_explains_what_it_may_ask_for(lab: Lab) -> None:
    keys = f"auth: {{kind: keys, keys: [{{name: ann, hash: {hash_of('pk-1')}, models: [m]}}]}}\n"
    config = CONFIG.format(url=lab.behind.url, may="true").replace("kind: openai,", "kind: openai, keyless: true,")
    base = await lab.start(config + keys)
    request = {"model": "m", "messages": TALK}
    assert (await explained(lab, base, {"request": request}, {"authorization": "Bearer pk-1"}))["model"] == "m"
    await explained(lab, base, {"request": request}, {"authorization": "Bearer pk-2"}, status=401)
    await explained(lab, base, {"request": {**request, "model": "other"}}, {"authorization": "Bearer pk-1"}, status=404)


async def asked_as_operator(lab: Lab, base: str, asked: Any, status: int = 200) -> dict[str, Any]:
    return await explained(lab, base, asked, {"authorization": f"Bearer {KEY}"}, status=status, path="/admin/explain")


async def test_an_operator_tries_chains_on_a_request(lab: Lab) -> None:
    config = CONFIG.format(url=lab.behind.url, may="false").replace("may_choose", f"admin_key: {KEY}, may_choose")
    request = {"model": "m", "messages": TALK}
    base = await lab.start(config)
    tried = "- window_history: {keep_turns: 1, stride: 1, summary: false}\n"
    found = await asked_as_operator(lab, base, {"request": request, "chain_yaml": tried, "against": "empty"})
    assert [message["content"] for message in found["explained"]["text"]["after"]] == [TALK[-1]["content"]]
    assert found["against"]["text"]["after"] == TALK
    assert found["against"]["chain"] == "empty"
    plain = await asked_as_operator(lab, base, {"request": request, "chain": "default"})
    assert plain["explained"]["chain"] == "default"
    assert plain["against"] is None
    wrong = await asked_as_operator(lab, base, {"request": request, "chain_yaml": "- window_histry: {}"}, 400)
    assert "did you mean 'window_history'?" in wrong["error"]["message"]
    unknown = await asked_as_operator(lab, base, {"request_id": "req_none"}, 404)
    assert unknown["error"]["code"] == "unknown_request"
    async with lab.http.post(f"{base}/admin/explain", json={}) as answer:
        assert answer.status == 401
    assert lab.behind.received == []
