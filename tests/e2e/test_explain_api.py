"""`POST /v1/explain`: what the chain would make of a client's request, in a running server that changes nothing."""

import json
import re
from typing import Any

from proxy.config.keys_file import hash_of
from tests.e2e.conftest import Client, Lab

CONFIG = """
server: {may_choose_chain: {may}}
models: [{match: "*", upstream: main, window: 100000, tokenizer: chars}]
chains:
  default:
    - select_memories: {}
    - window_history: {keep_turns: 2, stride: 1}
  empty: []
"""
KEY = "admin-" + "k" * 32
LONG = "Please look at this again, for I am not sure of it. " * 30
TALK = [{"role": role, "content": f"{turn}: {LONG}"} for turn in range(5) for role in ("user", "assistant")][:-1]


async def explained(client: Client, **asked: Any) -> Any:
    answer = await client.post("/v1/explain", asked)
    assert answer.status == 200, answer
    return answer.json


async def test_what_is_explained_is_then_served(lab: Lab) -> None:
    client, headers = await lab.client(CONFIG, "k", may="false"), {"x-penstock-user": "ann"}
    memory = {"text": "The user drinks coffee without sugar in the morning.", "user": "ann"}
    assert (await client.post("/v1/memories", memory, headers)).status in (200, 201)
    asked = {"role": "user", "content": "How do I take my coffee in the morning?"}
    request = {"model": "m", "messages": [*TALK[:-1], asked]}
    found = (await client.post("/v1/explain", {"request": request}, headers)).json
    assert lab.behind.received == []
    not_allowed = await client.post("/v1/explain", {"request": request, "chain": "empty"})
    assert not_allowed.refusal == (400, "chain_not_allowed")
    assert (await client.post("/v1/chat/completions", request, headers)).status == 200
    assert found["text"]["after"] == json.loads(lab.behind.last.body)["messages"]
    assert "without sugar" in json.dumps(found["text"]["after"]), "memories are read"
    assert found["text"]["before"] == request["messages"]
    assert found["sections"]["after"]["messages"] < found["sections"]["before"]["messages"]
    assert [step["policy"] for step in found["steps"]] == ["select_memories", "window_history"]
    assert {"removed", "added", "unchanged"} <= {change["kind"] for change in found["changes"]}
    assert {change["step"] for change in found["changes"] if change["kind"] == "removed"} == {"window_history"}


async def test_nothing_of_it_is_kept(lab: Lab) -> None:
    client = await lab.client(CONFIG, "k", may="false")
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    found = await explained(client, request={"model": "m", "messages": TALK, "tools": tools})
    handles = re.findall(r'recall\(\\*"([a-z2-7]{20})', json.dumps(found["text"]["after"]))
    assert handles
    assert {(await client.get(f"/v1/retrieve/{handle}")).status for handle in handles} == {404}
    assert lab.behind.received == []


async def test_the_requests_before_it_count(lab: Lab) -> None:
    """What is read from the cache is what the request before this one had."""
    prices = "tokenizer: chars, prices: {input: 1}, cache: {read: 0.1, ttl: 300}"
    client = await lab.client(CONFIG.replace("tokenizer: chars", prices), "k", may="true")
    first, second = ({"model": "m", "messages": TALK[:turns]} for turns in (1, 3))
    asked = {"request": second, "before": [first]}
    assert (await explained(client, request=first))["cached_expected"] == 0
    assert (await explained(client, **asked, chain="default"))["cached_expected"] > 0
    assert (await explained(client, **asked, chain="empty"))["chain"] == "empty"


async def test_a_key_explains_what_it_may_ask_for(lab: Lab) -> None:
    keys = f"auth: {{kind: keys, keys: [{{name: ann, hash: {hash_of('pk-1')}, models: [m]}}]}}\n"
    keys += 'upstreams: {main: {kind: openai, base_url: "{url}", keyless: true}}\n'
    client = await lab.client(CONFIG + keys, "pk-1", may="true")
    for key, model, status in (("pk-1", "m", 200), ("pk-2", "m", 401), ("pk-1", "other", 404)):
        asked = {"request": {"model": model, "messages": TALK}}
        assert (await client.post("/v1/explain", asked, key=key)).status == status


async def test_an_operator_tries_chains_on_a_request(lab: Lab) -> None:
    request = {"model": "m", "messages": TALK}
    operator = await lab.client(CONFIG, KEY, may=f"false, admin_key: {KEY}")
    tried = "- window_history: {keep_turns: 1, stride: 1, summary: false}\n"
    found = (await operator.post("/admin/explain", {"request": request, "chain_yaml": tried, "against": "empty"})).json
    assert [message["content"] for message in found["explained"]["text"]["after"]] == [TALK[-1]["content"]]
    assert (found["against"]["text"]["after"], found["against"]["chain"]) == (TALK, "empty")
    plain = (await operator.post("/admin/explain", {"request": request, "chain": "default"})).json
    assert (plain["explained"]["chain"], plain["against"]) == ("default", None)
    wrong = await operator.post("/admin/explain", {"request": request, "chain_yaml": "- window_histry: {}"})
    assert (wrong.status, b"did you mean 'window_history'?" in wrong.body) == (400, True)
    assert (await operator.post("/admin/explain", {}, key="")).status == 401
    assert lab.behind.received == []
