"""A server refuses a prompt that fits by our count: it is shortened and sent once more before the client sees anything."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Respond, Upstream, begin_stream, plainly, send, send_chunk

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{main}"}}
models:
  - {{match: ["llama-3-*", mine], upstream: main, window: 2048, reserve: 0}}
  - {{match: "*", upstream: main}}
chains:
  default:
    - compress_history: {{}}
    - reject_oversize: {{}}
"""
LIMIT = 2048


def tokens(body: bytes) -> int:
    """One token for each sign that is no letter, as small tokenizers have it, and a word's letters as one."""
    return sum(
        len(re.findall(r"\d|\w+?(?=\d|\W|$)|[^\w\s]", str(each["content"]))) for each in json.loads(body)["messages"]
    )


def strict(**told: Any) -> Respond:
    """A server that refuses more than its window, and tells what `told` names."""

    async def respond(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        prompt = tokens(received.body)
        if prompt <= LIMIT:
            await plainly(upstream, received, writer)
            return
        known = {"n_prompt_tokens": prompt, "n_ctx": LIMIT}
        said = {"code": 400, "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error"} | {name: known[name] for name in told}  # fmt: skip
        await send(writer, 400, json.dumps({"error": said}).encode(), "content-type: application/json\r\n")

    return respond


async def refusing_in_the_stream(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """A server that begins a stream before it finds the prompt too long."""
    await begin_stream(writer)
    if tokens(received.body) > LIMIT:
        said = f"Trying to keep the first {tokens(received.body)} tokens when context the overflows. However, the model is "
        said += f"loaded with context length of only {LIMIT} tokens, which is not enough."
        await send_chunk(writer, b"event: error\ndata: " + json.dumps({"error": {"message": said}}).encode() + b"\n\n")
    else:
        await send_chunk(writer, b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
    await send_chunk(writer, b"")


def talk(turns: int) -> list[dict[str, str]]:
    """A conversation of readings: mostly digits."""
    said = []
    for n in range(turns):
        numbers = " ".join(str(10**8 + 7919 * (100 * n + k)) for k in range(8))
        said += [
            {"role": "user", "content": f"The meter {n} says {numbers}."},
            {"role": "assistant", "content": "Noted."},
        ]
    return [*said, {"role": "user", "content": "Which meter was the last?"}]


@pytest.fixture
async def base(lab: Lab) -> str:
    return await lab.start(CONFIG.format(main=lab.behind.url))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        pytest.param("llama-3-mine", {"n_prompt_tokens": 1, "n_ctx": 1}, id="all is told"),
        pytest.param("llama-3-mine", {}, id="nothing is told"),
        pytest.param("gpt-4o", {"n_prompt_tokens": 1, "n_ctx": 1}, id="a window smaller than known"),
    ],
)
async def test_it_is_shortened_and_sent_once_more(lab: Lab, base: str, model: str, told: dict[str, int]) -> None:
    lab.behind.respond = strict(**told)

    async def ask(turns: int) -> int:
        before = len(lab.behind.received)
        status, _, answer = await lab.chat(base, {"model": model, "messages": talk(turns)})
        assert status == 200, answer
        return len(lab.behind.received) - before

    assert await ask(30) == 2
    first, second = (tokens(each.body) for each in lab.behind.received)
    assert first > LIMIT >= second
    assert "The meter 29 says" in lab.behind.last.body.decode()
    assert [await ask(turns) for turns in (31, 32, 33)] == [1, 1, 1], "it has learned"


async def test_a_refusal_inside_a_stream_counts_as_well(lab: Lab, base: str) -> None:
    lab.behind.respond = refusing_in_the_stream
    body = {"model": "llama-3-mine", "messages": talk(30), "stream": True}
    async with lab.http.post(f"{base}/v1/chat/completions", json=body) as answer:
        assert (answer.status, await answer.read()) == (200, b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
    assert len(lab.behind.received) == 2
    body["messages"] = [{"role": "user", "content": "5" * 6000}]
    status, _, told = await lab.chat(base, body)
    assert (status, told["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("model", "messages", "tells"),
    [
        pytest.param("gpt-4o", talk(30), {}, id="one that tells nothing of a short prompt teaches nothing"),
        pytest.param(
            "llama-3-mine", [{"role": "user", "content": "5" * 3000}], {"n_prompt_tokens": 1}, id="nothing can be cut"
        ),
    ],
)
async def test_what_cannot_be_shortened_is_refused_as_the_server_said(
    lab: Lab, base: str, model: str, messages: Any, tells: dict[str, int]
) -> None:
    lab.behind.respond = strict(**tells)
    status, _, told = await lab.chat(base, {"model": model, "messages": messages})
    assert (status, told["error"]["code"]) == (400, "context_length_exceeded")
    assert len(lab.behind.received) == 1
