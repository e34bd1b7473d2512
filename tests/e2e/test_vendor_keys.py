"""Which server gets the client's key, also where `GET /v1/models` asks several."""

import json
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import DEFAULT_ANSWER, Received, Upstream, answering

ANTHROPICS, OPENAIS = "sk-ant-api03-secret", "sk-proj-secret"
ALONE = """
upstreams: {openai: {kind: openai, base_url: "{url}"}}
models: [{match: "*", upstream: openai}]
"""
BOTH = ALONE.replace('"}}', '"}, claude: {kind: anthropic, base_url: "{anthropic}"}}').replace(
    "models: [", 'models: [{match: "claude-*", upstream: claude}, '
)
EMPTY = {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 2}, **EMPTY,
}  # fmt: skip
TURN: list[Any] = [{"role": "user", "content": "hi"}]
NAMELESS: list[Any] = [
    ("GET", "messages/batches", None),
    ("POST", "messages/batches", {"requests": []}),
    ("GET", "files", None),
]
NAMED: list[Any] = [
    ("GET", "models/gpt-5", None),
    *(
        ("POST", path, {"model": "gpt-5", "messages": TURN, "input": "x", "max_tokens": 9, "stream": stream})
        for path in ("chat/completions", "embeddings", "responses", "messages")
        for stream in (False, True)
    ),
]


def says(value: Any, status: int = 200) -> Any:
    return answering(json.dumps(value).encode(), status=status)


async def begin(lab: Lab, config: str = BOTH) -> tuple[Client, Upstream]:
    """Start a proxy before a stand-in for each vendor; OpenAI's is `lab.behind`."""
    claude = await lab.upstream()
    claude.respond, lab.behind.respond = says(MESSAGE), says({**json.loads(DEFAULT_ANSWER), **EMPTY})
    return await lab.client(config, anthropic=claude.url.removesuffix("/v1")), claude


def key_in(received: Received) -> str:
    """Return the key of a request; SDKs send it in one of two headers."""
    return received.header("x-api-key") or (received.header("authorization") or "").removeprefix("Bearer ")


async def refusal(client: Client, asked: tuple[str, str, Any], headers: dict[str, str]) -> tuple[int, Any]:
    method, path, body = asked
    answer = await client.send(method, f"/v1/{path}", headers, json=body)
    error = answer.json["error"]
    assert ("'gpt-5'" in error["message"]) is ((method, path, body) in NAMED), "it names the entry that is missing"
    return answer.status, error["details"]["error_code"] if "details" in error else error["code"]


async def test_the_sdks_reach_the_vendor_of_their_key_and_model(lab: Lab) -> None:
    client, claude = await begin(lab)
    async with anthropic.AsyncAnthropic(base_url=client.base, api_key=ANTHROPICS) as sdk:
        await sdk.messages.batches.list()
        await sdk.beta.files.list()
        assert (await sdk.messages.create(model="claude-x", max_tokens=9, messages=TURN)).id == "msg_1"
        with pytest.raises(anthropic.BadRequestError, match="is for anthropic, but the model .gpt-5. goes to"):
            await sdk.messages.create(model="gpt-5", max_tokens=9, messages=TURN)
    other = {"x-api-key": ANTHROPICS, "x-goog-api-key": "AIza-secret"}
    async with openai.AsyncOpenAI(base_url=f"{client.base}/v1", api_key=OPENAIS, default_headers=other) as several:
        await several.chat.completions.create(model="claude-x", messages=TURN)
        await several.files.list()
        await several.chat.completions.create(model="gpt-5", messages=TURN)
        await several.models.list()
    assert [key_in(each) for each in claude.received] == [ANTHROPICS] * 4
    assert {each.header("authorization") for each in lab.behind.received} == {f"Bearer {OPENAIS}"}
    assert len(lab.behind.received) == 3
    assert "sk-proj" not in repr(claude.received)
    assert not any(key in repr(lab.behind.received) for key in other.values())


async def test_a_key_of_another_vendor_is_refused_on_each_path_and_reaches_nobody(lab: Lab) -> None:
    client, _ = await begin(lab, ALONE)
    for key in ({"x-api-key": "any"}, {"authorization": f"Bearer {ANTHROPICS}"}):
        for asked in (*NAMELESS, *NAMED, ("GET", "models", None)):
            assert await refusal(client, asked, key) == (400, "foreign_key"), asked
        counted = await client.post("/v1/messages/count_tokens", {"model": "claude-x", "messages": TURN}, key)
        assert counted.json["input_tokens"] > 0, "it is counted here"
    assert lab.behind.received == []
    client, claude = await begin(lab)
    for method, path, body in NAMELESS:
        assert (await client.send(method, f"/v1/{path}", {"x-api-key": ANTHROPICS}, json=body)).status == 200
        assert (claude.last.path, key_in(claude.last)) == (f"/v1/{path}", ANTHROPICS)
    for asked in NAMED:
        assert await refusal(client, asked, {"x-api-key": ANTHROPICS}) == (400, "foreign_key"), asked
    assert lab.behind.received == []


@pytest.mark.parametrize(
    ("own", "key"), [("keyless: true", ""), ("api_key: sk-own", "sk-own"), ("provider: anthropic", ANTHROPICS)]
)
async def test_an_upstream_may_need_no_key_or_name_the_vendor_of_its_keys(lab: Lab, own: str, key: str) -> None:
    client, _ = await begin(lab, ALONE.replace('"{url}"', f'"{{url}}", {own}'))
    for method, path, body in (*NAMED, ("GET", "models", None)):
        answer = await client.send(method, f"/v1/{path}", {"authorization": f"Bearer {ANTHROPICS}"}, json=body)
        assert (answer.status, key_in(lab.behind.last)) == (200, key), path
    assert len(lab.behind.received) == len(NAMED) + 1


REFUSALS: dict[str, Any] = {
    "Incorrect API key provided.": {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}},
    "invalid x-api-key": {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}},
    "": "of something in front",
}


async def test_the_list_of_models_tells_of_a_wrong_key_of_the_clients_alone(lab: Lab) -> None:
    client, claude = await begin(lab)
    claude.respond = says({**EMPTY, "data": [{"id": "claude-x", "type": "model"}]})
    listed = await client.get("/v1/models", {"x-api-key": ANTHROPICS})
    assert [each["id"] for each in listed.json["data"]] == ["claude-x"]
    assert [key_in(each) for each in (*claude.received, *lab.behind.received)] == [ANTHROPICS, ""]
    claude.respond = says(REFUSALS["invalid x-api-key"], 401)
    refused = await client.get("/v1/models", {"x-api-key": ANTHROPICS})
    assert (refused.status, "invalid x-api-key" in refused.json["error"]["message"]) == (401, True)
    assert (await client.get("/v1/models", key=OPENAIS)).status == 200, "it says nothing of another vendor's key"
    for told, body in REFUSALS.items():
        for status in (401, 403):
            lab.behind.respond = says(body, status)
            for path in ("/v1/models", "/v1/models/gpt-5"):
                answer = await client.get(path, key=OPENAIS)
                assert (answer.status, told in answer.json["error"]["message"]) == (status, True)
    client, _ = await begin(lab, ALONE.replace('"{url}"', '"{url}", api_key: sk-own').replace('"*"', '[a, "*"]'))
    lab.behind.respond = says(REFUSALS["Incorrect API key provided."], 401)
    assert [each["id"] for each in (await client.get("/v1/models", key=OPENAIS)).json["data"]] == ["a"]


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
