"""Paths of Anthropic's own, which pass as they are, and the keys that go out."""

import json

import pytest

from tests.upstreams.anthropic.conftest import MODEL, Client, Start
from tests.upstreams.anthropic.stand_in import KEY, StandIn

MESSAGES = {"model": MODEL, "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
VERSION = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages?beta=true"])
async def test_messages_pass_untouched(client: Client, anthropic: StandIn, path: str) -> None:
    headers = {"x-api-key": KEY, **VERSION, "anthropic-beta": "some-beta"}
    answered = await client.post(path, MESSAGES, headers)

    assert answered.status == 200
    assert ("input_tokens" in answered.body) or answered.body["type"] == "message"
    assert anthropic.paths == [path]
    assert anthropic.bodies == [MESSAGES]
    assert anthropic.headers[0]["anthropic-beta"] == "some-beta"


async def test_a_native_stream_passes_untouched(client: Client) -> None:
    answered = await client.post("/v1/messages", {**MESSAGES, "stream": True}, {"x-api-key": KEY, **VERSION})

    assert answered.text.startswith("event: message_start\ndata: ")
    assert json.loads(answered.text.split("data: ")[-1]) == {"type": "message_stop"}


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"])
async def test_the_operators_key_goes_out_in_place_of_the_clients(start: Start, anthropic: StandIn, path: str) -> None:
    given = {"authorization": "Bearer sk-clients", "x-api-key": "sk-clients", **VERSION}
    async with start(upstream=f", api_key: {KEY}") as client:
        assert (await client.post(path, MESSAGES, given)).status == 200

    assert anthropic.headers[0]["x-api-key"] == KEY
    assert "sk-clients" not in str(anthropic.headers)


@pytest.mark.parametrize("headers", [{"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}])
async def test_a_clients_key_is_found_in_either_header(
    client: Client, anthropic: StandIn, headers: dict[str, str]
) -> None:
    assert (await client.chat(headers=headers)).status == 200
    assert anthropic.headers[0]["x-api-key"] == KEY


async def test_without_any_key_nothing_is_sent(client: Client, anthropic: StandIn) -> None:
    answered = await client.chat(headers={})

    assert answered.status == 401
    assert answered.error["code"] == "invalid_api_key"
    assert anthropic.paths == []


async def test_headers_of_a_translated_request(client: Client, anthropic: StandIn) -> None:
    headers = {"authorization": f"Bearer {KEY}", "anthropic-beta": "a,b", "x-secret": "s", "openai-organization": "o"}
    await client.chat(headers=headers)

    assert anthropic.headers[0]["anthropic-beta"] == "a,b"
    assert not {"x-secret", "openai-organization"} & anthropic.headers[0].keys()


async def test_its_models_are_listed(start: Start) -> None:
    async with start(upstream=f", api_key: {KEY}") as client:
        listed = (await client.get("/v1/models")).body["data"]

    assert [(model["id"], model["context_length"], model["owned_by"]) for model in listed] == [
        ("claude-opus-5", 10, "anthropic")
    ]
