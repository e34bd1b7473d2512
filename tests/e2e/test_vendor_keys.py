"""A client's key goes to no other vendor, on any path. `tests/upstreams/test_credentials.py` has the forms of keys."""

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
