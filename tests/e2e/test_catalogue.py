"""`GET /v1/models` asks several servers: which of them get the client's key."""

import json

import openai
import pytest

from tests.e2e.conftest import Lab
from tests.e2e.servers import answering

CONFIG = """
upstreams:
  first: {kind: openai, base_url: "{first}"}
  again: {kind: openai, base_url: "{first}", idle_timeout: 5}
  other: {kind: openai, base_url: "{other}"}
  keyed: {kind: openai, base_url: "{other}", api_key: sk-own}
  keyless: {kind: openai, base_url: "{first}", keyless: true}
models:
  - {match: "other-*", upstream: other}
  - {match: "*", upstream: first}
default_upstream: {default}
"""
CLIENTS = {
    "authorization": "Bearer sk-clients",
    "openai-organization": "org-clients",
    "openai-project": "proj-clients",
    **dict.fromkeys(("x-api-key", "api-key", "x-goog-api-key"), "sk-clients"),
}
MODELS = [{"id": f"{name}-1", "object": "model"} for name in ("first", "other")]


@pytest.mark.parametrize("default", ["first", "other"])
async def test_the_clients_key_goes_only_to_the_server_that_it_is_meant_for(lab: Lab, default: str) -> None:
    behind, elsewhere = lab.behind, await lab.upstream()
    # without a key, as few servers do
    behind.respond = elsewhere.respond = answering(json.dumps({"object": "list", "data": MODELS}).encode())
    client = await lab.client(CONFIG, first=behind.url, other=elsewhere.url, default=default)
    answer = await client.get("/v1/models", CLIENTS, params={"key": "sk-clients"})
    meant, stranger = (behind, elsewhere) if default == "first" else (elsewhere, behind)
    assert {model["id"] for model in answer.json["data"]} == {"first-1", "other-1"}, "those who ask for no key"
    assert [each.path for each in stranger.received], "it was asked"
    assert "clients" not in repr(stranger.received)
    with_key = [each.header("authorization") for each in meant.received]
    # `again` is the same server as `first`; `keyed` has a key of its own; `keyless` gets none
    assert with_key.count("Bearer sk-clients") == (2 if default == "first" else 1)
    sent = {each.header("authorization") for each in elsewhere.received}
    assert sent - {None, "Bearer sk-clients"} == {"Bearer sk-own"}

    behind.reset()
    elsewhere.received.clear()
    # who names a model means its server, as with a chat
    assert (await client.get("/v1/models/other-1", CLIENTS)).status == 200
    assert not behind.received
    assert [each.header("authorization") for each in elsewhere.received] == ["Bearer sk-clients"]


ORDERED = """
upstreams:
  main: {kind: openai, base_url: "{url}"}
  echo: {kind: echo}
models:
  - {match: named, upstream: main, prices: {input: 1, output: 1}}
  - {match: ["gpt-*", "other-*"], upstream: main}
  - {match: sized, upstream: main, window: 5000}
  - {match: [echo, "echo-*"], upstream: echo, window: 8192}
"""


async def test_models_stand_in_the_order_of_their_entries_without_invented_limits(lab: Lab) -> None:
    models = [{"id": name, "object": "model"} for name in ("gpt-5", "other-1", "sized", "unserved")]
    lab.behind.respond = answering(json.dumps({"object": "list", "data": models}).encode())
    base = await lab.start(ORDERED)
    async with openai.AsyncOpenAI(base_url=base, api_key="any", max_retries=0) as client:  # without /v1
        asked = await client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "hi"}])
        assert (asked.choices[0].message.content or "").startswith("1 message (1 user), 0 tools")
        listed = [model async for model in client.models.list()]
        one = await client.models.retrieve("other-1")
    assert [model.id for model in listed] == ["named", "gpt-5", "other-1", "sized", "echo"]
    limits = {model.id: (model.model_extra or {}).get("context_length") for model in listed}
    assert limits == {"named": None, "gpt-5": 400_000, "other-1": None, "sized": 5000, "echo": 8192}
    assert "context_length" not in one.model_dump()
