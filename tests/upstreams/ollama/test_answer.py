"""Ollama's answers, refusals and lists of models, and whose key and settings reach it."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.chat import ChatRequest
from proxy.chat.errors import PenstockError
from proxy.context import ModelProfile
from proxy.http.client import redirected
from proxy.testing import profile, tool
from proxy.upstreams import ollama as ollama_module
from proxy.upstreams.base import Call
from proxy.upstreams.ollama import Ollama
from tests.scripted import read
from tests.upstreams.ollama.conftest import KEY, MODEL, ask, body, call, counted, deltas, ollama, streamed
from tests.upstreams.ollama.fake_ollama import FakeOllama, say
from tests.upstreams.streams import events


async def test_an_answer_that_was_cut_off_and_one_without_a_count(fake: FakeOllama, upstream: Ollama) -> None:
    fake.last["done_reason"] = "length"

    assert body(await upstream.send(call()))["choices"][0]["finish_reason"] == "length"
    fake.figures = False
    reply = await upstream.send(call(counted=counted(123)))

    assert body(reply)["usage"]["prompt_tokens"] == 123
    assert "prompt_tokens" not in reply.facts
    assert body(await upstream.send(call()))["usage"]["prompt_tokens"] == 0


async def test_probabilities(fake: FakeOllama, upstream: Ollama) -> None:
    other = {"token": "Hey", "logprob": -2.0}
    fake.logprobs = [{"token": "Hel", "logprob": -0.5, "bytes": [72], "top_logprobs": [other]}]
    scores = {"content": [{**fake.logprobs[0], "top_logprobs": [{**other, "bytes": None}]}], "refusal": None}

    whole = body(await upstream.send(call(ask(logprobs=True, top_logprobs=1))))
    chunks = await events(await upstream.send(call(streamed(logprobs=True))))

    assert whole["choices"][0]["logprobs"] == scores
    assert [chunk["choices"][0]["logprobs"] for chunk in chunks[:-1]] == [None, scores, scores, None]


async def test_a_stream_says_the_same_wherever_the_network_cuts_it(fake: FakeOllama, upstream: Ollama) -> None:
    fake.said, fake.piece = say("Grü", "", "ße 🦙\n"), 1
    chunks = await events(await upstream.send(call(streamed())))

    assert [delta.get("content") for delta in deltas(chunks)] == ["", "Grü", "ße 🦙\n", None]


async def test_calls_in_the_last_line(fake: FakeOllama, upstream: Ollama) -> None:
    fake.said = []
    fake.last["message"] = {"role": "assistant", "content": "", "tool_calls": [{"id": "x", "function": {"name": "a"}}]}

    chunks = await events(await upstream.send(call(streamed(tools=(tool("a"),)))))

    assert [list(delta) for delta in deltas(chunks)] == [["role", "content", "refusal"], ["tool_calls"], []]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_connection_is_used_again(fake: FakeOllama, upstream: Ollama) -> None:
    for _ in range(3):
        await read(await upstream.send(call(streamed())))
        await upstream.send(call())

    assert len(fake.ports) == 1


async def fails(upstream: Ollama, request: ChatRequest | None = None, **fields: Any) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        await upstream.send(call(request, **fields))
    assert upstream.address not in caught.value.message
    assert upstream.address.removeprefix("http://") not in caught.value.message
    return caught.value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("text", "asked", "param"), [
    ("llama3.2 does not support tools", {}, "tools"),
    ('"llama3.2" does not support thinking', {}, "reasoning_effort"),
    ('"llama3.2" does not support thinking', {"think": True}, "think"),
])  # fmt: skip
async def test_a_refusal_names_what_is_not_supported_as_it_was_asked_for(
    fake: FakeOllama, upstream: Ollama, stream: bool, text: str, asked: Any, param: str
) -> None:
    fake.status, fake.error = 400, text

    error = await fails(upstream, ask(stream=stream, **asked))

    assert (error.status, error.type, error.code) == (400, "invalid_request_error", "unsupported_parameter")
    assert error.param == param
    assert text in error.message


async def test_an_overflow_has_the_words_that_clients_look_for(fake: FakeOllama, upstream: Ollama) -> None:
    fake.status, fake.error = 400, "the prompt is longer than the context length"

    error = await fails(upstream, profile=profile(4096), counted=counted(5000))

    counts = "4096 tokens. However, your messages resulted in 5000 tokens. Please reduce the length of the messages."
    assert error.message.startswith(f"This model's maximum context length is {counts}")
    assert error.message.endswith("(context_length_exceeded)")


@pytest.mark.parametrize(("status", "said", "expected"), [
    pytest.param(500, 'Post "http://127.0.0.1:41234/completion": dial tcp 10.0.0.7:8080: EOF',
                 (500, None, 'Post "***": dial tcp ***: EOF'), id="addresses are masked"),
    pytest.param(404, "q does not support tools", (400, "unsupported_parameter", "q does not support tools"),
                 id="a missing ability, whatever the status"),
    pytest.param(404, b"404 page not found", (404, None, None), id="something in front"),
    pytest.param(502, b"<html>", (502, None, None), id="a page"),
    pytest.param(400, b'{"error":5}', (400, None, None), id="an error that is a number"),
    pytest.param(302, b"", (502, "upstream_unreachable", str(redirected("local"))), id="a redirect is not followed"),
])  # fmt: skip
async def test_other_errors(fake: FakeOllama, upstream: Ollama, status: int, said: str | bytes, expected: Any) -> None:
    fake.status = status
    fake.error, fake.raw = (said, None) if isinstance(said, str) else ("", said)

    error = await fails(upstream)

    assert (error.status, error.code) == expected[:2]
    assert expected[2] in (None, error.message)
    assert str(error) == error.message


async def test_a_server_that_is_down() -> None:
    upstream = ollama("http://127.0.0.1:1")

    assert await upstream.models({}) == []
    assert (await upstream.profile(profile(128_000))).window == 4096
    await upstream.aclose()


async def test_a_body_of_great_depth_is_refused(upstream: Ollama) -> None:
    deep: Any = {}
    for _ in range(50_000):
        deep = {"a": deep}
    request = ask(response_format={"type": "json_schema", "json_schema": {"schema": deep}})

    assert (await fails(upstream, request)).code == "invalid_json"


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


@pytest.mark.parametrize(("num_ctx", "trained", "source", "expected"), [
    pytest.param(16384, 131072, "config", (16384, "ollama"), id="num_ctx"),
    pytest.param(16384, 2048, "config", (2048, "ollama"), id="capped by the trained length"),
    pytest.param(None, 131072, "config", (32768, "config"), id="the configured window, on trust"),
    pytest.param(None, 131072, "table", (4096, "table"), id="a table knows nothing of this server"),
    pytest.param(None, 2048, "table", (2048, "ollama"), id="a small model"),
])  # fmt: skip
async def test_the_window_of_a_model_that_does_not_run(
    fake: FakeOllama, num_ctx: int | None, trained: int, source: str, expected: tuple[int, str]
) -> None:
    fake.shown = shown(trained)
    upstream = ollama(fake.url, num_ctx)
    known = ModelProfile(MODEL, 32768, 32768, 4096, source=source)

    found = await upstream.profile(known)

    assert (found.window, found.source) == expected
    assert found.max_output <= found.window > found.reserve
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
