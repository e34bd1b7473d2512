"""The Ollama upstream against a fake server: what reaches the server, and what comes back."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.chat import ChatRequest
from proxy.context import ModelProfile, TokenCount
from proxy.errors import BadRequest, PenstockError, UpstreamFailed, UpstreamTimeout
from proxy.settings import OllamaUpstream
from proxy.testing import chat, profile, tool
from proxy.upstream import Call, Reply
from proxy.upstreams import ollama as ollama_module
from proxy.upstreams.ollama import Ollama
from tests.upstreams.fake_ollama import FakeOllama, fake_ollama, say, size_of

KEY = "sk-client-key"
MODEL = "llama3.2"


@pytest.fixture
async def fake() -> AsyncIterator[FakeOllama]:
    async with fake_ollama() as server:
        yield server


@pytest.fixture
async def upstream(fake: FakeOllama) -> AsyncIterator[Ollama]:
    made = ollama(fake.url)
    yield made
    await made.aclose()


def ollama(url: str, num_ctx: int | None = None, **settings: Any) -> Ollama:
    return Ollama("local", OllamaUpstream(kind="ollama", base_url=url, **settings), lambda model: num_ctx)


def call(request: ChatRequest | None = None, **fields: Any) -> Call:
    headers = {"authorization": f"Bearer {KEY}", "x-api-key": KEY, "cookie": "c=1", "traceparent": "00-1-2-01"}
    request = request or ask()
    return Call("/chat/completions", request.model, b"", headers, request=request, **fields)


def ask(conversation: str = "u1", **rest: Any) -> ChatRequest:
    return chat(conversation, model=MODEL, **rest)


def streamed(**rest: Any) -> ChatRequest:
    return ask(stream=True, **rest)


def counted(tokens: int, *, exact: bool = False) -> TokenCount:
    return TokenCount(system=0, tools=0, messages=tokens, exact=exact)


async def read(reply: Reply) -> bytes:
    assert reply.chunks is not None
    return b"".join([chunk async for chunk in reply.chunks])


async def events(reply: Reply) -> list[Any]:
    text = (await read(reply)).decode()
    assert text.endswith("\n\n")
    data = [event.removeprefix("data: ") for event in text.split("\n\n")[:-1]]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


def deltas(chunks: list[Any]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks if chunk != "[DONE]" and chunk["choices"]]


def body(reply: Reply) -> dict[str, Any]:
    assert reply.body is not None
    answer: dict[str, Any] = json.loads(reply.body)
    return answer


# --- whole answers ----------------------------------------------------------------------------------------------------


async def test_a_whole_answer(fake: FakeOllama, upstream: Ollama) -> None:
    reply = await upstream.send(call(ask("system u1")))

    answer = body(reply)
    assert reply.status == 200
    assert reply.headers == [(b"content-type", b"application/json")]
    assert answer["object"] == "chat.completion"
    assert answer["model"] == MODEL
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (2, 7)
    assert reply.facts == {"prompt_tokens": 2, "completion_tokens": 7, "load_ms": 1.5}
    assert fake.paths == ["/api/chat"]
    assert fake.bodies[0]["stream"] is False


async def test_thoughts_and_tool_calls(fake: FakeOllama, upstream: Ollama) -> None:
    fake.said = [
        {"role": "assistant", "content": "", "thinking": "hm"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_a", "function": {"name": "look_up", "arguments": {"key": "ä"}}}],
        },
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look_up", "arguments": {}}}]},
    ]
    choice = body(await upstream.send(call(ask(tools=(tool(),)))))["choices"][0]

    first, second = choice["message"].pop("tool_calls")
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None, "reasoning_content": "hm"}
    assert first == {"id": "call_a", "type": "function", "function": {"name": "look_up", "arguments": '{"key":"ä"}'}}
    assert second["id"].startswith("call_")
    assert second["function"]["arguments"] == "{}"
    assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(("stream", "reason"), [(False, "length"), (True, "length")])
async def test_an_answer_that_was_cut_off(fake: FakeOllama, upstream: Ollama, stream: bool, reason: str) -> None:
    fake.last["done_reason"] = "length"
    reply = await upstream.send(call(ask(stream=stream)))

    choice = (await events(reply))[-2]["choices"][0] if stream else body(reply)["choices"][0]
    assert choice["finish_reason"] == reason


async def test_our_count_stands_in_for_a_missing_one_but_is_no_fact(fake: FakeOllama, upstream: Ollama) -> None:
    fake.figures = False
    reply = await upstream.send(call(counted=counted(123)))

    assert body(reply)["usage"]["prompt_tokens"] == 123
    assert "prompt_tokens" not in reply.facts
    assert body(await upstream.send(call()))["usage"]["prompt_tokens"] == 0


async def test_probabilities(fake: FakeOllama, upstream: Ollama) -> None:
    other = {"token": "Hey", "logprob": -2.0}
    fake.logprobs = [{"token": "Hel", "logprob": -0.5, "bytes": [72], "top_logprobs": [other]}]
    scores = {
        "content": [{"token": "Hel", "logprob": -0.5, "bytes": [72], "top_logprobs": [{**other, "bytes": None}]}],
        "refusal": None,
    }

    whole = body(await upstream.send(call(ask(logprobs=True, top_logprobs=1))))
    chunks = await events(await upstream.send(call(streamed(logprobs=True))))

    assert whole["choices"][0]["logprobs"] == scores
    assert [chunk["choices"][0]["logprobs"] for chunk in chunks[:-1]] == [None, scores, scores, None]


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [0, 1, 7, 100_000])
async def test_a_stream_is_clean_however_the_network_cuts_it(fake: FakeOllama, upstream: Ollama, piece: int) -> None:
    fake.said, fake.piece = say("Grü", "", "ße 🦙\n", "!"), piece

    reply = await upstream.send(call(streamed()))
    chunks = await events(reply)

    assert reply.headers == [(b"content-type", b"text/event-stream; charset=utf-8")]
    assert deltas(chunks) == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Grü"},
        {"content": "ße 🦙\n"},
        {"content": "!"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 4 + ["stop"]
    assert chunks[-1] == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks[:-1]}) == 1
    assert all("usage" not in chunk for chunk in chunks[:-1])
    assert fake.bodies[0]["stream"] is True


async def test_usage_is_told_where_it_is_asked_for_and_always_a_fact(fake: FakeOllama, upstream: Ollama) -> None:
    reply = await upstream.send(call(ask("user" * 20, stream=True, stream_options={"include_usage": True})))
    chunks = await events(reply)

    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"]["completion_tokens"] == 7
    silent = await upstream.send(call(ask("user" * 20, stream=True)))
    assert "completion_tokens" not in silent.facts
    await read(silent)
    assert silent.facts == {"prompt_tokens": 20, "completion_tokens": 7, "load_ms": 1.5}
    assert silent.facts["prompt_tokens"] == chunks[-2]["usage"]["prompt_tokens"]


async def test_thoughts_and_parallel_calls_in_a_stream(fake: FakeOllama, upstream: Ollama) -> None:
    def calling(name: str) -> dict[str, Any]:
        return {"id": "", "function": {"index": 0, "name": name, "arguments": {"key": name}}}

    fake.said = [
        {"role": "assistant", "content": "", "thinking": "let me"},
        {"role": "assistant", "content": "ok", "thinking": " see"},
        {"role": "assistant", "content": "", "tool_calls": [calling("a"), calling("b")]},
        {"role": "assistant", "content": "", "tool_calls": [calling("c")]},
    ]
    chunks = await events(await upstream.send(call(streamed(tools=(tool("a"), tool("b"), tool("c"))))))

    said = deltas(chunks)
    assert said[1:4] == [{"reasoning_content": "let me"}, {"reasoning_content": " see"}, {"content": "ok"}]
    calls = [made for delta in said for made in delta.get("tool_calls", [])]
    assert [made["index"] for made in calls] == [0, 1, 2]
    assert [made["function"] for made in calls] == [{"name": n, "arguments": f'{{"key":"{n}"}}'} for n in "abc"]
    assert len({made["id"] for made in calls}) == 3
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_calls_in_the_last_line(fake: FakeOllama, upstream: Ollama) -> None:
    fake.said = []
    fake.last["message"] = {"role": "assistant", "content": "", "tool_calls": [{"id": "x", "function": {"name": "a"}}]}

    chunks = await events(await upstream.send(call(streamed(tools=(tool("a"),)))))

    assert [list(delta) for delta in deltas(chunks)] == [["role", "content", "refusal"], ["tool_calls"], []]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_an_answer_without_a_word_is_still_a_stream(fake: FakeOllama, upstream: Ollama) -> None:
    fake.said = []
    chunks = await events(await upstream.send(call(streamed())))

    assert deltas(chunks) == [{"role": "assistant", "content": "", "refusal": None}, {}]


async def test_a_connection_is_used_again(fake: FakeOllama, upstream: Ollama) -> None:
    for _ in range(3):
        await read(await upstream.send(call(streamed())))
        await upstream.send(call())

    assert len(fake.ports) == 1


# --- errors -----------------------------------------------------------------------------------------------------------


async def fails(upstream: Ollama, request: ChatRequest | None = None, **fields: Any) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        await upstream.send(call(request, **fields))
    assert upstream.address not in caught.value.message
    assert upstream.address.removeprefix("http://") not in caught.value.message
    return caught.value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (404, "model 'llama3.2' not found", (404, "invalid_request_error", "model_not_found", None)),
        (
            400,
            "the prompt is longer than the context length currently available to the model; shorten the prompt",
            (400, "invalid_request_error", "context_length_exceeded", "messages"),
        ),
        (
            500,
            "input length (5000 tokens) exceeds the model's maximum context length (4096 tokens)",
            (400, "invalid_request_error", "context_length_exceeded", "messages"),
        ),
        (400, "llama3.2 does not support tools", (400, "invalid_request_error", "unsupported_parameter", "tools")),
        (
            400,
            '"llama3.2" does not support thinking',
            (400, "invalid_request_error", "unsupported_parameter", "reasoning_effort"),
        ),
        (503, "server busy, please try again", (503, "service_unavailable_error", "server_is_overloaded", None)),
        (500, "model failed to load", (500, "server_error", None, None)),
        (403, "no", (403, "invalid_request_error", None, None)),
    ],
)
async def test_refusals(
    fake: FakeOllama, upstream: Ollama, stream: bool, status: int, text: str, expected: tuple[Any, ...]
) -> None:
    fake.status, fake.error = status, text

    error = await fails(upstream, ask(stream=stream))

    assert (error.status, error.type, error.code, error.param) == expected
    assert text in error.message


async def test_an_overflow_has_the_words_that_clients_look_for(fake: FakeOllama, upstream: Ollama) -> None:
    fake.status, fake.error = 400, "the prompt is longer than the context length"

    error = await fails(upstream, profile=profile(4096), counted=counted(5000))

    assert error.message.startswith(
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens. "
        "Please reduce the length of the messages."
    )
    assert error.message.endswith("(context_length_exceeded)")


async def test_the_asked_way_to_think_is_named(fake: FakeOllama, upstream: Ollama) -> None:
    fake.status, fake.error = 400, '"m" does not support thinking'

    assert (await fails(upstream, ask(think=True))).param == "think"


async def test_addresses_are_not_told(fake: FakeOllama, upstream: Ollama) -> None:
    fake.status, fake.error = 500, 'Post "http://127.0.0.1:41234/completion": dial tcp 10.0.0.7:8080: EOF'

    assert (await fails(upstream)).message == 'Post "***": dial tcp ***: EOF'


@pytest.mark.parametrize(("status", "raw"), [(404, b"404 page not found"), (502, b"<html>"), (400, b'{"error":5}')])
async def test_errors_of_something_in_front(fake: FakeOllama, upstream: Ollama, status: int, raw: bytes) -> None:
    fake.status, fake.raw = status, raw

    error = await fails(upstream)

    assert (error.status, error.code) == (status, None)


@pytest.mark.parametrize(("status", "raw"), [(200, b"hello"), (200, b"[]"), (200, b"{}"), (302, b"")])
@pytest.mark.parametrize("stream", [False, True])
async def test_no_answer_at_all(fake: FakeOllama, upstream: Ollama, status: int, raw: bytes, stream: bool) -> None:
    fake.status, fake.raw = status, raw

    assert isinstance(await fails(upstream, ask(stream=stream)), UpstreamFailed)


async def test_an_error_in_the_first_line_is_a_status(fake: FakeOllama, upstream: Ollama) -> None:
    fake.said, fake.error = say("", ""), "an error was encountered while running the model"

    error = await fails(upstream, streamed())

    assert (error.status, error.type) == (500, "server_error")


async def test_an_error_in_mid_stream_is_an_event_and_the_end(fake: FakeOllama, upstream: Ollama) -> None:
    fake.error = "CUDA error"
    reply = await upstream.send(call(streamed()))

    assert (await events(reply))[-1] == {
        "error": {"message": "CUDA error", "type": "server_error", "param": None, "code": None}
    }
    assert reply.facts["error"] == "server_error"


@pytest.mark.parametrize("ending", ["short", "cut"])
async def test_a_stream_without_its_end_is_no_success(fake: FakeOllama, upstream: Ollama, ending: str) -> None:
    fake.ending = ending
    reply = await upstream.send(call(streamed()))

    said = await events(reply)

    assert said[-1]["error"]["code"] == "upstream_broke_off"
    assert fake.url.removeprefix("http://") not in said[-1]["error"]["message"]
    assert reply.facts["error"] == "upstream_broke_off"


async def test_a_server_that_is_down() -> None:
    upstream = ollama("http://127.0.0.1:1")

    error = await fails(upstream)

    assert (error.status, error.code) == (502, "upstream_unreachable")
    assert "'local'" in error.message
    assert await upstream.models({}) == []
    assert (await upstream.profile(profile(128_000))).window == 4096
    await upstream.aclose()


async def test_a_server_that_says_nothing(fake: FakeOllama) -> None:
    fake.delay = 5
    upstream = ollama(fake.url, idle_timeout=0.05)

    assert isinstance(await fails(upstream), UpstreamTimeout)
    await upstream.aclose()


async def test_a_request_that_cannot_be_translated_is_never_sent(fake: FakeOllama, upstream: Ollama) -> None:
    assert isinstance(await fails(upstream, ask(temperature="hot")), BadRequest)
    assert fake.paths == []


async def test_a_body_of_great_depth_is_refused(upstream: Ollama) -> None:
    deep: Any = {}
    for _ in range(50_000):
        deep = {"a": deep}
    request = ask(response_format={"type": "json_schema", "json_schema": {"schema": deep}})

    assert (await fails(upstream, request)).code == "invalid_json"


# --- leaving ----------------------------------------------------------------------------------------------------------


async def test_closing_a_stream_stops_the_server(fake: FakeOllama, upstream: Ollama) -> None:
    fake.ending = "never"
    reply = await upstream.send(call(streamed()))
    assert reply.chunks is not None
    await anext(aiter(reply.chunks))

    await reply.chunks.aclose()

    await asyncio.wait_for(fake.dropped.wait(), 1)


async def test_a_stream_that_nobody_reads_can_be_closed_too(fake: FakeOllama, upstream: Ollama) -> None:
    fake.ending = "never"
    reply = await upstream.send(call(streamed()))
    assert reply.chunks is not None

    await reply.chunks.aclose()

    await asyncio.wait_for(fake.dropped.wait(), 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_before_the_answer_stops_the_server(
    fake: FakeOllama, upstream: Ollama, stream: bool
) -> None:
    fake.delay = 5
    sending = asyncio.create_task(upstream.send(call(ask(stream=stream))))
    await fake.asked.wait()

    sending.cancel()

    await asyncio.wait_for(fake.dropped.wait(), 1)
    with pytest.raises(asyncio.CancelledError):
        await sending


# --- what goes along --------------------------------------------------------------------------------------------------


async def test_the_clients_key_stays_here(fake: FakeOllama, upstream: Ollama) -> None:
    await upstream.send(call())
    await upstream.models({"authorization": f"Bearer {KEY}"})

    assert KEY not in str(fake.headers)
    assert "cookie" not in fake.headers[0]
    assert fake.headers[0]["content-type"] == "application/json"
    assert fake.headers[0]["traceparent"] == "00-1-2-01"


async def test_the_operators_settings_go_along(fake: FakeOllama) -> None:
    upstream = ollama(fake.url, 8192, api_key=SecretStr("sk-own"), keep_alive="-1")

    reply = await upstream.send(call(ask(n=2, num_ctx=5)))

    assert fake.headers[0]["authorization"] == "Bearer sk-own"
    assert fake.bodies[0]["options"] == {"num_ctx": 8192}
    assert fake.bodies[0]["keep_alive"] == -1
    assert reply.facts["ignored"] == "n,num_ctx"
    await upstream.aclose()


async def test_other_paths_pass_through(fake: FakeOllama, upstream: Ollama) -> None:
    raw = b'{"model": "m",  "input": "x"}'
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}

    reply = await upstream.send(Call("/embeddings", "m", raw, headers, query="a=b%20c"))
    stream = await upstream.send(Call("/completions", "m", b'{"stream":true}', headers))

    assert body(reply) == {"path": "/v1/embeddings?a=b%20c"}
    assert await read(stream) == b'data: {"choices":[]}\n\ndata: [DONE]\n\n'
    assert fake.paths == ["/v1/embeddings?a=b%20c", "/v1/completions"]
    assert KEY not in str(fake.headers)


# --- truncation -------------------------------------------------------------------------------------------------------


LONG = " ".join(f"u{'x' * 400}" for _ in range(40))
"""About 4000 of the fake's tokens."""


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_prompt_is_noticed(
    fake: FakeOllama, upstream: Ollama, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fake.window = 2048
    with caplog.at_level(logging.WARNING, "penstock.ollama"):
        reply = await upstream.send(call(ask(LONG, stream=stream), counted=counted(4000), profile=profile(2048)))
        if stream:
            assert "truncated" not in reply.facts
            await read(reply)

    assert reply.facts["truncated"] is True
    (record,) = caplog.records
    assert record.getMessage() == "prompt was truncated by the server"
    evaluated = reply.facts["prompt_tokens"]
    assert vars(record)["fields"] == {"model": MODEL, "counted": 4000, "evaluated": evaluated, "window": 2048}
    assert "xxxx" not in caplog.text


@pytest.mark.parametrize(
    ("count", "fields"),
    [
        pytest.param(counted(4000), {}, id="as many tokens as we counted"),
        pytest.param(counted(5500), {}, id="an estimate may be off"),
        pytest.param(counted(9000), {"profile": profile(32768, source="ollama")}, id="far from filling the window"),
        pytest.param(None, {}, id="nothing counted"),
    ],
)
async def test_no_false_alarm(fake: FakeOllama, upstream: Ollama, count: TokenCount | None, fields: Any) -> None:
    assert "truncated" not in (await upstream.send(call(ask(LONG), counted=count, **fields))).facts


async def test_an_exact_count_is_taken_at_its_word(fake: FakeOllama, upstream: Ollama) -> None:
    reply = await upstream.send(call(ask(LONG), counted=counted(5500, exact=True)))

    assert reply.facts["truncated"] is True


async def test_an_unknown_count_and_images_prove_nothing(fake: FakeOllama, upstream: Ollama) -> None:
    fake.window = 2048
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    request = ask(LONG)
    seen = request.with_messages([request.messages[0].with_changes(content=[image]), *request.messages[1:]])
    assert "truncated" not in (await upstream.send(call(seen, counted=counted(4000)))).facts

    fake.figures = False
    assert "truncated" not in (await upstream.send(call(request, counted=counted(4000)))).facts


@pytest.mark.parametrize("limited", [False, True])
async def test_a_window_filled_to_the_last_token(fake: FakeOllama, limited: bool) -> None:
    upstream = ollama(fake.url, 4096)
    prompt = size_of([{"content": word} for word in LONG.split()])
    fake.last["eval_count"] = 4096 - prompt
    fields = {"max_tokens": 4096 - prompt} if limited else {}

    reply = await upstream.send(call(ask(LONG, **fields)))

    assert reply.facts.get("truncated", False) is not limited
    await upstream.aclose()


# --- what is known of the models --------------------------------------------------------------------------------------


def shown(trained: int = 131072, parameters: str = "") -> dict[str, Any]:
    about = {"general.architecture": "llama", "llama.context_length": trained, "llama.vision.context_length": 1}
    return {"model_info": about, "parameters": parameters}


async def test_the_window_is_the_one_that_the_model_runs_with(fake: FakeOllama, upstream: Ollama) -> None:
    fake.running, fake.shown = {"llama3.2:latest": 8192}, shown()
    known = replace(profile(4096), name=MODEL, max_output=4096, reserve=1024)

    found = await upstream.profile(known)

    assert (found.window, found.source) == (8192, "ollama")
    assert found.usable(ask()) < 8192
    await upstream.profile(known)
    assert sorted(fake.paths) == ["/api/ps", "/api/show"]
    assert fake.bodies[fake.paths.index("/api/show")] == {"model": MODEL}


@pytest.mark.parametrize(
    ("num_ctx", "trained", "source", "expected"),
    [
        pytest.param(16384, 131072, "config", (16384, "ollama"), id="num_ctx"),
        pytest.param(16384, 2048, "config", (2048, "ollama"), id="capped by the trained length"),
        pytest.param(None, 131072, "config", (32768, "config"), id="the configured window, on trust"),
        pytest.param(None, 131072, "table", (4096, "table"), id="a table knows nothing of this server"),
        pytest.param(None, 2048, "table", (2048, "ollama"), id="a small model"),
    ],
)
async def test_the_window_of_a_model_that_does_not_run(
    fake: FakeOllama, num_ctx: int | None, trained: int, source: str, expected: tuple[int, str]
) -> None:
    fake.shown = shown(trained)
    upstream = ollama(fake.url, num_ctx)
    known = ModelProfile(MODEL, 32768, 32768, 4096, source=source)

    found = await upstream.profile(known)

    assert (found.window, found.source) == expected
    assert found.max_output <= found.window
    assert found.reserve < found.window
    await upstream.aclose()


async def test_the_first_answer_shows_what_the_model_runs_with(fake: FakeOllama, upstream: Ollama) -> None:
    fake.shown = shown()
    assert (await upstream.profile(profile(name=MODEL))).window == 4096

    fake.running = {"llama3.2:latest": 32768}
    await upstream.send(call())

    assert (await upstream.profile(profile(name=MODEL))).window == 32768


async def test_a_slow_list_of_models_is_not_waited_for(
    fake: FakeOllama, upstream: Ollama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ollama_module, "LISTING", 0.05)
    fake.delay = 5

    assert await upstream.models({}) == []


async def test_models(fake: FakeOllama, upstream: Ollama) -> None:
    fake.running = {"b:latest": 8192}
    fake.tags = [
        {"name": "a:latest", "modified_at": "2025-05-04T17:37:44.706015396-07:00", "details": {"context_length": 4096}},
        {"model": "b:latest", "modified_at": "yesterday", "details": None},
        {"name": 5},
        "nonsense",
    ]

    assert await upstream.models({}) == [
        {"id": "a:latest", "object": "model", "created": 1746405464, "owned_by": "ollama"},
        {"id": "b:latest", "object": "model", "created": 0, "owned_by": "ollama", "context_length": 8192},
    ]
    configured = ollama(fake.url, 16384)
    assert [model["context_length"] for model in await configured.models({})] == [4096, 16384]
    await configured.aclose()
