"""A server refuses a prompt that fits by our count: it is shortened and sent once more before the client sees anything."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.e2e.conftest import Client
from tests.e2e.servers import Received, Respond, Upstream, begin_stream, plainly, send, send_chunk

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}"}
models:
  - {match: ["llama-3-*", mine], upstream: main, window: 2048, reserve: 0}
  - {match: "*", upstream: main}
chains:
  default:
    - compress_history: {}
    - reject_oversize: {}
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


ALL = {"n_prompt_tokens": 1, "n_ctx": 1}
SHORTENED: dict[str, tuple[str, dict[str, int]]] = {
    "all is told": ("llama-3-mine", ALL),
    "nothing is told": ("llama-3-mine", {}),
    "a window smaller than known": ("gpt-4o", ALL),
}


@pytest.mark.parametrize(("model", "told"), SHORTENED.values(), ids=SHORTENED)
async def test_it_is_shortened_and_sent_once_more(
    client: Client, behind: Upstream, model: str, told: dict[str, int]
) -> None:
    behind.respond = strict(**told)
    requests = []
    for turns in (30, 31, 32, 33):
        assert (await client.chat(model=model, messages=talk(turns))).status == 200
        requests.append(len(behind.received))
    assert requests == [2, 3, 4, 5], "it has learned"
    first, second = (tokens(each.body) for each in behind.received[:2])
    assert first > LIMIT >= second
    assert "The meter 29 says" in behind.received[1].body.decode()


async def test_a_refusal_inside_a_stream_counts_as_well(client: Client, behind: Upstream) -> None:
    behind.respond = refusing_in_the_stream
    answer = await client.chat(model="llama-3-mine", messages=talk(30), stream=True)
    assert (answer.status, answer.body) == (200, b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
    assert len(behind.received) == 2
    assert (await client.chat("5" * 6000, "llama-3-mine", stream=True)).refusal == (400, "context_length_exceeded")


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
    client: Client, behind: Upstream, model: str, messages: Any, tells: dict[str, int]
) -> None:
    behind.respond = strict(**tells)
    assert (await client.chat(model=model, messages=messages)).refusal == (400, "context_length_exceeded")
    assert len(behind.received) == 1
