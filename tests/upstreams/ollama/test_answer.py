"""What comes back from Ollama: whole answers and streams in OpenAI's form."""

from typing import Any

import pytest

from proxy.testing import tool
from proxy.upstreams.ollama import Ollama
from tests.scripted import read
from tests.upstreams.ollama.calls import ask, body, call, counted, deltas, streamed
from tests.upstreams.ollama.fake_ollama import FakeOllama, say
from tests.upstreams.streams import events

# --- whole answers ----------------------------------------------------------------------------------------------------


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


async def test_a_connection_is_used_again(fake: FakeOllama, upstream: Ollama) -> None:
    for _ in range(3):
        await read(await upstream.send(call(streamed())))
        await upstream.send(call())

    assert len(fake.ports) == 1
