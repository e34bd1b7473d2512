"""The real litellm against a fake Anthropic server: what reaches the provider, and what comes back."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.chat import ChatRequest, JsonObject, Message, Tool
from proxy.errors import NotFound, UpstreamFailed, UpstreamTimeout
from proxy.settings import ForeignUpstream
from proxy.testing import chat, tool
from proxy.upstream import Call, Reply
from proxy.upstreams.foreign import Foreign
from proxy.upstreams.foreign import library as foreign_library
from proxy.upstreams.foreign.answer import Chunks
from tests.upstreams.fake_anthropic import FakeAnthropic, fake_anthropic

KEY = "sk-ant-client-key"
MODEL = "claude-sonnet-4-5"


@pytest.fixture
async def fake() -> AsyncIterator[FakeAnthropic]:
    async with fake_anthropic() as server:
        yield server


@pytest.fixture
async def upstream(fake: FakeAnthropic) -> AsyncIterator[Foreign]:
    foreign = Foreign("claude", ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url))
    yield foreign
    await foreign.aclose()


def call(request: ChatRequest, key: str | None = KEY) -> Call:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return Call("/chat/completions", request.model, b"", headers, request=request)


def ask(conversation: str = "u1", **rest: Any) -> ChatRequest:
    return chat(conversation, model=rest.pop("model", MODEL), **rest)


async def events(reply: Reply) -> list[Any]:
    assert reply.chunks is not None
    text = b"".join([chunk async for chunk in reply.chunks]).decode()
    assert text.endswith("\n\n")
    data = [event.removeprefix("data: ") for event in text.split("\n\n")[:-1]]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


def error(reply: Reply) -> dict[str, Any]:
    assert reply.body is not None
    body = json.loads(reply.body)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return dict(body["error"])


# --- what reaches the provider ----------------------------------------------------------------------------------------


async def test_a_conversation_reaches_the_provider_whole(fake: FakeAnthropic, upstream: Foreign) -> None:
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
        JsonObject({"max_completion_tokens": 77, "temperature": 0.5, "stop": ["END"], "user": "u-1"}),
    )
    before = request.encode()

    reply = await upstream.send(call(request))

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
    assert set(body) == {
        "model", "messages", "system", "tools", "max_tokens", "temperature", "stop_sequences", "metadata"
    }  # fmt: skip


async def test_a_client_orders_litellm_nothing(fake: FakeAnthropic, upstream: Foreign) -> None:
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

        reply = await upstream.send(call(ask(**orders, temperature=0.1)))

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
async def test_a_model_name_never_chooses_the_provider(fake: FakeAnthropic, upstream: Foreign, model: str) -> None:
    reply = await upstream.send(call(ask(model=model)))

    assert reply.status == 200
    assert (fake.paths, fake.bodies[-1]["model"]) == (["/v1/messages"], model)


@pytest.mark.parametrize(
    "model", ["ollama/http://evil", "a/../b", "", "*", "a b", "a?b", "-x", "x\n", "http://evil/v1"]
)
async def test_a_name_that_can_be_no_models_is_not_found(fake: FakeAnthropic, upstream: Foreign, model: str) -> None:
    with pytest.raises(NotFound) as raised:
        await upstream.send(call(ask(model=model)))

    assert (raised.value.code, fake.paths) == ("model_not_found", [])


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o",
        "replicate/x",
        "ft:gpt-3.5-turbo:x",
        "a/togethercomputer",
        "responses/gpt-4o",
        "petals-team/StableBeluga2",
    ],
)
async def test_a_name_that_litellm_would_send_elsewhere_is_not_found(
    fake: FakeAnthropic, upstream: Foreign, model: str
) -> None:
    """litellm sends `gpt-4o` to OpenAI with the key of the provider that it was told to use."""
    with pytest.raises(NotFound) as raised:
        await upstream.send(call(ask(model=model)))

    assert (raised.value.code, fake.paths) == ("model_not_found", [])


@pytest.mark.parametrize(("provider", "model", "elsewhere"), [
    ("azure", "gpt-4o", False), ("azure", "command-r-plus", True), ("groq", "gpt-4o", False),
    ("replicate", "replicate/x", False), ("bedrock", "gpt-4o", True), ("gemini", "gemini-2.5-pro", False),
])  # fmt: skip
async def test_openais_names_are_for_those_who_serve_them(
    upstream: Foreign, provider: str, model: str, elsewhere: bool
) -> None:
    assert foreign_library.misroutes(await upstream._loaded(), provider, model) is elsewhere


async def test_a_provider_that_litellm_lacks_is_named(fake: FakeAnthropic) -> None:
    upstream = Foreign("claude", ForeignUpstream(kind="foreign", provider="antropic", base_url=fake.url))

    with pytest.raises(UpstreamFailed, match=r"^Upstream 'claude': litellm has no provider 'antropic'\.$"):
        await upstream.send(call(ask(model="gpt-4o")))
    await upstream.aclose()


async def test_parameters_that_the_provider_lacks_are_left_out(fake: FakeAnthropic, upstream: Foreign) -> None:
    reply = await upstream.send(call(ask(seed=1, logit_bias={"1": 2}, n=1, frequency_penalty=0.5, top_p=None)))

    assert reply.status == 200
    assert not {"seed", "logit_bias", "n", "frequency_penalty"} & set(fake.bodies[-1])


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "URL/image.png"}},
    {"type": "file", "file": {"file_data": "URL/file.pdf"}},
])  # fmt: skip
async def test_addresses_in_messages_are_not_fetched(fake: FakeAnthropic, upstream: Foreign, part: Any) -> None:
    part = json.loads(json.dumps(part).replace("URL", fake.url))
    reply = await upstream.send(call(ChatRequest(MODEL, (Message({"role": "user", "content": [part]}),))))

    assert (reply.status, fake.paths) == (400, [])
    assert "download is disabled" in error(reply)["message"]
    assert "Received Messages" not in error(reply)["message"]


async def test_thinking_is_left_out_where_the_open_call_has_lost_its_thoughts(
    fake: FakeAnthropic, upstream: Foreign
) -> None:
    reply = await upstream.send(call(ask("u1 a1! t1", reasoning_effort="low", max_tokens=4000)))
    assert "thinking" not in fake.bodies[-1]
    assert reply.facts["ignored"] == "reasoning_effort"

    await upstream.send(call(ask("u1 a1! t1 a2 u2", reasoning_effort="low", max_tokens=4000)))
    assert "thinking" in fake.bodies[-1]


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_the_configured_key_replaces_the_clients(fake: FakeAnthropic) -> None:
    settings = ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url, api_key=SecretStr("sk-ours"))
    upstream = Foreign("claude", settings)

    await upstream.send(call(ask()))

    assert fake.headers[-1]["x-api-key"] == "sk-ours"
    assert KEY not in str(fake.headers)
    assert "sk-ours" not in repr(upstream) + repr(vars(upstream))
    await upstream.aclose()


async def test_without_any_key_none_is_taken_from_the_environment(
    fake: FakeAnthropic, upstream: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-from-the-environment")
    fake.status, fake.error = 401, "invalid x-api-key"

    reply = await upstream.send(call(ask(), key=None))

    assert "sk-from-the-environment" not in str(fake.headers)
    assert reply.status == 401
    told = error(reply)
    assert told["code"] == "invalid_api_key"
    assert told["message"] == "No API key was given. Upstream 'claude' needs one as a bearer token."


async def test_a_key_is_not_a_reference(fake: FakeAnthropic, upstream: Foreign) -> None:
    await upstream.send(call(ask(), key="os.environ/HOME"))

    assert fake.headers[-1]["x-api-key"] == "os.environ/HOME"


@pytest.mark.parametrize(("provider", "options"), [("bedrock", {}), ("azure", {"azure_ad_token": "token-of-ours"})])
def test_a_clients_key_stays_away_from_the_operators_credentials(provider: str, options: dict[str, str]) -> None:
    secret = {key: SecretStr(value) for key, value in options.items()}
    upstream = Foreign("cloud", ForeignUpstream(kind="foreign", provider=provider, options=secret))

    orders = upstream._orders({"authorization": f"Bearer {KEY}"})

    assert "api_key" not in orders
    assert options.items() <= orders.items()


@pytest.mark.parametrize(("provider", "name"), [
    ("anthropic", "anthropic"), ("bedrock", "aws.bedrock"), ("gemini", "gcp.gemini"), ("vertex_ai", "gcp.vertex_ai"),
    ("mistral", "mistral_ai"), ("cohere", "cohere"), ("groq", "groq"), ("deepseek", "deepseek"),
])  # fmt: skip
def test_the_provider_has_its_name_in_telemetry(provider: str, name: str) -> None:
    assert Foreign("x", ForeignUpstream(kind="foreign", provider=provider)).provider == name


# --- answers ----------------------------------------------------------------------------------------------------------

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "signed"}
CALLS = [
    {"type": "tool_use", "id": "tu_1", "name": "look_up", "input": {"key": "a"}},
    {"type": "tool_use", "id": "tu_2", "name": "look_up", "input": {"key": "b"}},
]


async def test_an_answer_has_openais_form_exactly(fake: FakeAnthropic, upstream: Foreign) -> None:
    fake.content, fake.stop_reason = [THOUGHT, {"type": "text", "text": "hello"}, CALLS[0]], "tool_use"

    reply = await upstream.send(call(ask(tools=(tool(),))))

    assert reply.headers == [(b"content-type", b"application/json")]
    assert reply.body is not None
    body = json.loads(reply.body)
    assert isinstance(body.pop("created"), int)
    assert body.pop("id").startswith("chatcmpl-")
    (made,) = body["choices"][0]["message"].pop("tool_calls")
    assert (made["id"], made["type"], made["function"]["name"]) == ("tu_1", "function", "look_up")
    assert json.loads(made["function"]["arguments"]) == {"key": "a"}
    assert set(made) == {"id", "type", "function"}
    body["usage"]["completion_tokens_details"].pop("reasoning_tokens")
    assert body == {
        "object": "chat.completion",
        "model": "claude-test-20990101",
        "choices": [{
            "index": 0,
            "message": {
                "role": "assistant", "content": "hello", "refusal": None,
                "reasoning_content": "hm", "thinking_blocks": [THOUGHT],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }],
        "usage": {
            "prompt_tokens": 17, "completion_tokens": 7, "total_tokens": 24,
            "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
            "completion_tokens_details": {},
        },
    }  # fmt: skip
    assert reply.facts == {"prompt_tokens": 17, "completion_tokens": 7, "cached_tokens": 5}


async def test_a_stream_says_everything_once(fake: FakeAnthropic, upstream: Foreign) -> None:
    fake.content, fake.stop_reason = [THOUGHT, {"type": "text", "text": "hello"}, *CALLS], "tool_use"

    reply = await upstream.send(call(ask(tools=(tool(),), stream=True)))
    *chunks, done = await events(reply)

    assert reply.headers == [(b"content-type", b"text/event-stream; charset=utf-8")]
    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert not any("usage" in chunk for chunk in chunks)
    assert not any(set(chunk["choices"][0]) - {"index", "delta", "logprobs", "finish_reason"} for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None, "reasoning_content": "hm"}
    assert deltas[-1] == {}
    assert all(set(delta) in ({"content"}, {"tool_calls"}) for delta in deltas[1:-1])
    assert "".join(delta.get("content", "") for delta in deltas) == "hello"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]
    for index, id_ in enumerate(("tu_1", "tu_2")):
        first, *more = [part for part in parts if part["index"] == index]
        assert first == {
            "index": index, "id": id_, "type": "function", "function": {"name": "look_up", "arguments": ""}
        }  # fmt: skip
        assert all(set(part) == {"index", "function"} and set(part["function"]) == {"arguments"} for part in more)
        assert json.loads("".join(part["function"]["arguments"] for part in more)) == CALLS[index]["input"]
    assert (reply.facts["prompt_tokens"], reply.facts["completion_tokens"], reply.facts["cached_tokens"]) == (17, 7, 5)


async def test_usage_is_streamed_to_those_who_ask(fake: FakeAnthropic, upstream: Foreign) -> None:
    reply = await upstream.send(call(ask(stream=True, stream_options={"include_usage": True})))
    *chunks, last, done = await events(reply)

    assert done == "[DONE]"
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert last["choices"] == []
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (17, 7)
    assert last["id"] == chunks[0]["id"]


async def test_a_model_may_repeat_itself(fake: FakeAnthropic, upstream: Foreign) -> None:
    fake.content = [{"type": "text", "text": "........"}] * 100

    *chunks, done = await events(await upstream.send(call(ask(stream=True))))

    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "." * 800


def test_calls_that_share_an_index_are_told_apart_by_id() -> None:
    chunks = Chunks(show_usage=False)
    head = {"id": "x", "created": 1, "model": "m"}

    def said(*calls: dict[str, Any]) -> list[Any]:
        choice = {"index": 0, "delta": {"tool_calls": list(calls)}}
        (event,) = chunks.events({**head, "choices": [choice]})
        return list(json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["tool_calls"])

    def piece(**fields: Any) -> dict[str, Any]:
        return {"index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}

    assert [part["index"] for part in said(piece(id="a"), piece(id="b"))] == [0, 1]
    assert said(piece(id="b")) == [{"index": 1, "function": {"arguments": "{}"}}]
    assert said(piece(id="c"))[0]["index"] == 2
    assert said(piece(id=None, index=5))[0]["id"].startswith("call_")


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "answered", "kind", "code"), [
    (400, 400, "invalid_request_error", None),
    (401, 401, "invalid_request_error", "invalid_api_key"),
    (403, 403, "invalid_request_error", "permission_denied"),
    (404, 404, "invalid_request_error", "model_not_found"),
    (413, 413, "invalid_request_error", None),
    (429, 429, "rate_limit_error", "rate_limit_exceeded"),
    (500, 500, "server_error", None),
    (503, 503, "service_unavailable_error", "server_is_overloaded"),
    (529, 503, "service_unavailable_error", "server_is_overloaded"),
])  # fmt: skip
async def test_a_providers_error_keeps_its_status_and_words(
    fake: FakeAnthropic, upstream: Foreign, stream: bool, status: int, answered: int, kind: str, code: str | None
) -> None:
    fake.status, fake.error = status, f"No, said the provider to {KEY}."
    fake.error_headers = {"retry-after": "7"}

    reply = await upstream.send(call(ask(stream=stream)))

    assert (reply.status, len(fake.bodies)) == (answered, 1)
    assert error(reply) == {
        "message": "No, said the provider to ***.", "type": kind, "param": None, "code": code
    }  # fmt: skip
    assert (b"retry-after", b"7") in reply.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_context_is_said_in_the_words_that_clients_know(
    fake: FakeAnthropic, upstream: Foreign, stream: bool
) -> None:
    fake.status, fake.error = 400, "prompt is too long: 200001 tokens > 200000 maximum"

    reply = await upstream.send(call(ask(stream=stream)))

    told = error(reply)
    assert (reply.status, told["type"], told["code"]) == (400, "invalid_request_error", "context_length_exceeded")
    assert told["message"] == (
        "This model's maximum context length is 200000 tokens. However, your messages resulted in 200001 tokens. "
        "Please reduce the length of the messages. prompt is too long: 200001 tokens > 200000 maximum "
        "(context_length_exceeded)"
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unreachable_provider_is_a_failed_upstream(fake: FakeAnthropic, stream: bool) -> None:
    settings = ForeignUpstream(kind="foreign", provider="anthropic", base_url="http://127.0.0.1:9")
    upstream = Foreign("claude", settings)

    with pytest.raises(UpstreamFailed, match=r"^Upstream 'claude' could not be reached\.$"):
        await upstream.send(call(ask(stream=stream)))
    await upstream.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_slow_provider_is_a_timeout(fake: FakeAnthropic, stream: bool) -> None:
    fake.delay, fake.ending = 30, "never"
    settings = ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url, timeout=0.4)
    upstream = Foreign("claude", settings)
    await upstream._loaded()

    if stream:
        reply = await upstream.send(call(ask(stream=True)))
        last = (await events(reply))[-1]
        assert last["error"]["code"] == "upstream_timeout"
    else:
        with pytest.raises(UpstreamTimeout):
            await upstream.send(call(ask()))
    await asyncio.wait_for(fake.dropped.wait(), 1)
    await upstream.aclose()


async def test_a_request_that_litellm_cannot_translate_is_not_tried_again(
    fake: FakeAnthropic, upstream: Foreign
) -> None:
    broken = Message({"role": "user", "content": [{"type": "image_url", "image_url": {"url": 5}}]})
    reply = await upstream.send(call(ChatRequest(MODEL, (broken,))))

    assert 400 <= reply.status <= 500
    assert fake.paths == []
    assert not {"Traceback", "litellm", ".py"} & set(error(reply)["message"].split())


@pytest.mark.parametrize(("ending", "code"), [("error", None), ("cut", "upstream_broke_off")])
async def test_a_stream_that_breaks_ends_with_an_error(
    fake: FakeAnthropic, upstream: Foreign, ending: str, code: str | None
) -> None:
    fake.ending = ending

    reply = await upstream.send(call(ask(stream=True)))
    *chunks, last = await events(reply)

    assert chunks
    assert not any(choice["finish_reason"] for chunk in chunks for choice in chunk["choices"])
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert (last["error"]["type"], last["error"]["code"]) == ("server_error", code)
    if ending == "error":
        assert last["error"]["message"] == "Overloaded"


async def test_a_stream_that_breaks_before_its_first_chunk_keeps_its_status(
    fake: FakeAnthropic, upstream: Foreign
) -> None:
    fake.ending = "empty"

    with pytest.raises(UpstreamFailed):
        await upstream.send(call(ask(stream=True)))


# --- leaving early ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [0, 2])
async def test_closing_a_stream_drops_the_providers_work(fake: FakeAnthropic, upstream: Foreign, read: int) -> None:
    fake.ending = "never"
    reply = await upstream.send(call(ask(stream=True)))
    assert reply.chunks is not None
    for _ in range(read):
        await anext(aiter(reply.chunks))

    await reply.chunks.aclose()

    await asyncio.wait_for(fake.dropped.wait(), 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_a_request_drops_the_providers_work(
    fake: FakeAnthropic, upstream: Foreign, stream: bool
) -> None:
    fake.delay, fake.ending = 30, "never"

    async def read() -> None:
        reply = await upstream.send(call(ask(stream=stream)))
        assert reply.chunks is not None
        async for _ in reply.chunks:
            pass

    task = asyncio.create_task(read())
    await asyncio.wait_for(fake.asked.wait(), 5)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await asyncio.wait_for(fake.dropped.wait(), 1)


async def test_closing_one_upstream_leaves_the_others_connections(fake: FakeAnthropic, upstream: Foreign) -> None:
    await upstream.send(call(ask()))
    other = Foreign("other", ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url))
    await other.send(call(ask()))

    await other.aclose()

    assert (await upstream.send(call(ask()))).status == 200
    await upstream.aclose()
    assert (await upstream.send(call(ask()))).status == 200


# --- the library ------------------------------------------------------------------------------------------------------


async def test_a_missing_litellm_is_named(upstream: Foreign, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("proxy.upstreams.foreign.library.importlib.import_module", missing)

    with pytest.raises(UpstreamFailed, match=r"^Upstream 'claude' needs litellm: pip install 'penstock\[foreign\]'$"):
        await upstream.send(call(ask()))


async def test_the_first_requests_share_one_import_that_leaves_the_loop_free(
    upstream: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[float] = []
    real = foreign_library.load

    def slow() -> Any:
        loads.append(time.monotonic())
        time.sleep(0.2)
        return real()

    monkeypatch.setattr("proxy.upstreams.foreign.load", slow)
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(heart())
    replies = await asyncio.gather(*(upstream.send(call(ask())) for _ in range(5)))
    beating.cancel()

    assert [reply.status for reply in replies] == [200] * 5
    assert len(loads) == 1
    assert beats >= 10


async def test_importing_litellm_leaves_tiktokens_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/somewhere/else")
    sys.modules.pop("litellm.litellm_core_utils.default_encoding", None)

    foreign_library.load()

    assert os.environ["TIKTOKEN_CACHE_DIR"] == "/somewhere/else"


async def test_nothing_is_logged_or_printed(
    fake: FakeAnthropic, upstream: Foreign, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "a-prompt-that-nobody-may-log"
    request = ChatRequest(MODEL, (Message({"role": "user", "content": secret}),))
    with caplog.at_level(logging.DEBUG):
        await upstream.send(call(request))
        await events(await upstream.send(call(request.with_field("stream", True))))
        fake.status = 500
        await upstream.send(call(request))
        await asyncio.sleep(0.1)

    printed = capfd.readouterr()
    assert secret not in caplog.text + printed.out + printed.err
    assert KEY not in caplog.text + printed.out + printed.err


async def test_only_chat_completions_are_served(upstream: Foreign) -> None:
    with pytest.raises(NotFound):
        await upstream.send(Call("/embeddings", "x", b"{}", {}))
    assert await upstream.models({}) == []


def test_litellm_is_not_imported_before_it_is_needed() -> None:
    program = "import sys, proxy.upstreams.foreign; sys.exit('litellm' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
