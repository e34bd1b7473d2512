"""What reaches a foreign provider: the conversation, no orders to litellm, and the right key."""

import json
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.chat import ChatRequest, Fields, Message, Tool
from proxy.chat.errors import NotFound, UpstreamFailed
from proxy.config.settings import ForeignUpstream
from proxy.testing import tool
from proxy.upstreams.foreign import library as foreign_library
from proxy.upstreams.foreign.worker import Provider
from tests.upstreams.foreign.conftest import KEY, MODEL, ask, error, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic, fake_anthropic


async def test_a_conversation_reaches_the_provider_whole(fake: FakeAnthropic, upstream: Provider) -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    offered = Tool({**tool(), "function": {**tool()["function"]}, **cached})
    made = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"key":"a"}'}}
    request = ChatRequest(
        MODEL,
        (
            Message({"role": "system", "content": [{"type": "text", "text": "Be brief.", **cached}]}),
            Message({"role": "user", "content": [{"type": "text", "text": "Look it up.", **cached}]}),
            Message({"role": "assistant", "content": None, "tool_calls": [made]}),
            Message({"role": "tool", "tool_call_id": "c1", "content": "found"}),
        ),
        (offered,),
        Fields({"max_completion_tokens": 77, "temperature": 0.5, "stop": ["END"], "user": "u-1"}),
    )
    before = request.encode()

    reply = await send(upstream, request)

    assert (reply.status, request.encode()) == (200, before)
    body, headers = fake.bodies[-1], fake.headers[-1]
    assert headers["x-api-key"] == KEY
    assert "authorization" not in headers
    assert fake.paths == ["/v1/messages"]
    assert body["model"] == MODEL
    assert (body["max_tokens"], body["temperature"], body["stop_sequences"]) == (77, 0.5, ["END"])
    assert body["system"] == [{"type": "text", "text": "Be brief.", **cached}]
    user, assistant, result = body["messages"]
    assert user == {"role": "user", "content": [{"type": "text", "text": "Look it up.", **cached}]}
    assert assistant["content"] == [{"type": "tool_use", "id": "c1", "name": "look_up", "input": {"key": "a"}}]
    assert result["role"] == "user"
    assert result["content"][0]["tool_use_id"] == "c1"
    assert "found" in json.dumps(result["content"][0]["content"])
    (sent,) = body["tools"]
    assert (sent["name"], sent["cache_control"]) == ("look_up", cached["cache_control"])
    assert sent["input_schema"]["required"] == ["key"]
    known = "model messages system tools max_tokens temperature stop_sequences metadata"
    assert set(body) == set(known.split())


async def test_a_client_orders_litellm_nothing(fake: FakeAnthropic, upstream: Provider) -> None:
    async with fake_anthropic() as evil:
        orders: dict[str, Any] = {
            "api_base": evil.url, "base_url": evil.url, "api_key": "sk-other", "custom_llm_provider": "openai",
            "extra_headers": {"x-evil": "1"}, "headers": {"x-evil": "1"}, "extra_body": {"evil": 1},
            "extra_query": {"evil": 1}, "fallbacks": [{"model": "openai/x", "api_base": evil.url}],
            "model_list": [{"model_name": "x", "litellm_params": {"model": "openai/x", "api_base": evil.url}}],
            "mock_response": "mocked", "mock_tool_calls": [{}], "user_config": {}, "metadata": {"a": "b"},
            "callbacks": ["langfuse"], "success_callback": ["langfuse"], "langfuse_host": evil.url,
            "input_cost_per_token": 1, "output_cost_per_token": 1, "aws_region_name": "x", "vertex_project": "x",
            "proxy_server_request": {}, "shared_session": 1, "client": 1, "organization": "o", "num_retries": 9,
            "max_retries": 9, "timeout": 0.001, "drop_params": False, "acompletion": False, "deployment_id": "d",
            "azure": True, "litellm_params": {}, "litellm_system_prompt": "obey", "thinking": {"type": "evil"},
        }  # fmt: skip

        reply = await send(upstream, ask(**orders, temperature=0.1))

        assert (reply.status, evil.bodies) == (200, [])
    assert fake.paths == ["/v1/messages"]
    assert fake.headers[-1]["x-api-key"] == KEY
    assert "x-evil" not in fake.headers[-1]
    assert set(fake.bodies[-1]) == {"model", "messages", "max_tokens", "temperature"}
    assert "obey" not in json.dumps(fake.bodies[-1])
    dropped = str(reply.facts["ignored"])
    assert dropped.startswith("acompletion,api_base,api_key,aws_region_name,azure,base_url,")
    assert "temperature" not in dropped
    assert len(dropped) <= 200


@pytest.mark.parametrize("model", ["openai/gpt-4o", "anthropic/x", "azure/command-r", "ft:gpt-4:x", "cohere/a"])
async def test_a_model_name_never_chooses_the_provider(fake: FakeAnthropic, upstream: Provider, model: str) -> None:
    reply = await send(upstream, ask(model=model))

    assert reply.status == 200
    assert (fake.paths, fake.bodies[-1]["model"]) == (["/v1/messages"], model)


@pytest.mark.parametrize("model", [
    "ollama/http://evil", "a/../b", "", "*", "a b", "a?b", "-x", "x\n", "http://evil/v1",
    # litellm sends `gpt-4o` to OpenAI with the key of the provider that it was told to use
    "gpt-4o", "replicate/x", "ft:gpt-3.5-turbo:x", "a/togethercomputer", "responses/gpt-4o", "petals-team/StableBeluga2",
])  # fmt: skip
async def test_an_unknown_or_foreign_model_is_not_found(fake: FakeAnthropic, upstream: Provider, model: str) -> None:
    with pytest.raises(NotFound) as raised:
        await send(upstream, ask(model=model))

    assert (raised.value.code, fake.paths) == ("model_not_found", [])


@pytest.mark.parametrize(("provider", "model", "elsewhere"), [
    ("azure", "gpt-4o", False), ("azure", "command-r-plus", True), ("groq", "gpt-4o", False),
    ("replicate", "replicate/x", False), ("bedrock", "gpt-4o", True), ("gemini", "gemini-2.5-pro", False),
])  # fmt: skip
async def test_openais_names_are_openais(upstream: Provider, provider: str, model: str, elsewhere: bool) -> None:
    assert foreign_library.misroutes(await upstream._loaded(), provider, model) is elsewhere


async def test_a_provider_that_litellm_lacks_is_named(fake: FakeAnthropic) -> None:
    upstream = Provider("claude", ForeignUpstream(kind="foreign", provider="antropic", base_url=fake.url))

    with pytest.raises(UpstreamFailed, match=r"^upstream 'claude': litellm has no provider 'antropic'$"):
        await send(upstream, ask(model="gpt-4o"))


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "URL/image.png"}},
    {"type": "file", "file": {"file_data": "URL/file.pdf"}},
])  # fmt: skip
async def test_addresses_in_messages_are_not_fetched(fake: FakeAnthropic, upstream: Provider, part: Any) -> None:
    part = json.loads(json.dumps(part).replace("URL", fake.url))
    reply = await send(upstream, ChatRequest(MODEL, (Message({"role": "user", "content": [part]}),)))

    assert (reply.status, fake.paths) == (400, [])
    told = "This provider takes images as data only: send them as data: URLs, or set fetch_images_from."
    assert error(reply)["message"] == told


async def test_thinking_leaves_where_an_open_call_has_lost_its_own(fake: FakeAnthropic, upstream: Provider) -> None:
    reply = await send(upstream, ask("u1 a1! t1", reasoning_effort="low", max_tokens=4000))
    assert "thinking" not in fake.bodies[-1]
    assert reply.facts["ignored"] == "reasoning_effort"

    await send(upstream, ask("u1 a1! t1 a2 u2", reasoning_effort="low", max_tokens=4000))
    assert "thinking" in fake.bodies[-1]


async def test_the_configured_key_replaces_the_clients(fake: FakeAnthropic) -> None:
    settings = ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url, api_key=SecretStr("sk-ours"))
    upstream = Provider("claude", settings)

    await send(upstream, ask())

    assert fake.headers[-1]["x-api-key"] == "sk-ours"
    assert KEY not in str(fake.headers)
    assert "sk-ours" not in repr(upstream) + repr(vars(upstream))


async def test_without_any_key_none_is_taken_from_the_environment(
    fake: FakeAnthropic, upstream: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-from-the-environment")
    fake.status, fake.error = 401, "invalid x-api-key"

    reply = await send(upstream, ask(), key=None)

    assert "sk-from-the-environment" not in str(fake.headers)
    assert reply.status == 401
    told = "no API key was given; upstream 'claude' needs one as a bearer token"
    assert error(reply).items() >= {"code": "invalid_api_key", "message": told}.items()


async def test_a_key_is_not_a_reference(fake: FakeAnthropic, upstream: Provider) -> None:
    await send(upstream, ask(), key="os.environ/HOME")
    assert fake.headers[-1]["x-api-key"] == "os.environ/HOME"


@pytest.mark.parametrize(("provider", "options"), [("bedrock", {}), ("azure", {"azure_ad_token": "token-of-ours"})])
def test_a_clients_key_stays_away_from_the_operators_credentials(provider: str, options: dict[str, str]) -> None:
    secret = {key: SecretStr(value) for key, value in options.items()}
    upstream = Provider("cloud", ForeignUpstream(kind="foreign", provider=provider, options=secret))

    orders = upstream._orders(f"Bearer {KEY}")

    assert "api_key" not in orders
    assert options.items() <= orders.items()
