"""A server refuses a prompt that fits by our count: it is shortened and sent once more before the client sees anything."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.servers import Received, Respond, Upstream, begin_stream, plainly, proxy, send, send_chunk, upstream

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
state: {{directory: "{state}"}}
telemetry: {{log_level: warning}}
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


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[tuple[Upstream, str, aiohttp.ClientSession], None]:
    """An upstream, a proxy in front of it, and a client."""
    async with AsyncExitStack() as stack:
        main = await stack.enter_async_context(upstream())
        base = await stack.enter_async_context(proxy(CONFIG.format(main=main.url, state=folder / "state"), folder))
        yield main, base, await stack.enter_async_context(aiohttp.ClientSession())


@pytest.mark.parametrize(
    ("model", "told"),
    [
        pytest.param("llama-3-mine", {"n_prompt_tokens": 1, "n_ctx": 1}, id="all is told"),
        pytest.param("llama-3-mine", {}, id="nothing is told"),
        pytest.param("gpt-4o", {"n_prompt_tokens": 1, "n_ctx": 1}, id="a window smaller than known"),
    ],
)
async def test_it_is_shortened_and_sent_once_more(tmp_path: Path, model: str, told: dict[str, int]) -> None:
    async with world(tmp_path) as (main, base, session):
        main.respond = strict(**told)

        async def ask(turns: int) -> int:
            before = len(main.received)
            body = {"model": model, "messages": talk(turns)}
            async with session.post(f"{base}/v1/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
            return len(main.received) - before

        assert await ask(30) == 2
        first, second = (tokens(each.body) for each in main.received)
        assert first > LIMIT >= second
        assert "The meter 29 says" in main.last.body.decode()
        assert [await ask(turns) for turns in (31, 32, 33)] == [1, 1, 1], "it has learned"


async def test_a_refusal_inside_a_stream_counts_as_well(tmp_path: Path) -> None:
    async with world(tmp_path) as (main, base, session):
        main.respond = refusing_in_the_stream
        body = {"model": "llama-3-mine", "messages": talk(30), "stream": True}
        async with session.post(f"{base}/v1/chat/completions", json=body) as answer:
            assert (answer.status, await answer.read()) == (200, b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
        assert len(main.received) == 2
        body["messages"] = [{"role": "user", "content": "5" * 6000}]
        async with session.post(f"{base}/v1/chat/completions", json=body) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, "context_length_exceeded")


async def test_a_refusal_that_tells_nothing_of_a_short_prompt_teaches_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as (main, base, session):
        main.respond = strict()
        body = {"model": "gpt-4o", "messages": talk(30)}
        async with session.post(f"{base}/v1/chat/completions", json=body) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, "context_length_exceeded")
        assert len(main.received) == 1


async def test_digits_of_an_unknown_model_are_counted_from_the_start(tmp_path: Path) -> None:
    async with world(tmp_path) as (main, base, session):
        main.respond = strict()
        for turns in (20, 30, 40):
            async with session.post(
                f"{base}/v1/chat/completions", json={"model": "mine", "messages": talk(turns)}
            ) as answer:
                assert answer.status == 200
        assert len(main.received) == 3


async def test_what_cannot_be_shortened_is_refused_as_the_server_said(tmp_path: Path) -> None:
    async with world(tmp_path) as (main, base, session):
        main.respond = strict(n_prompt_tokens=1)
        body = {"model": "llama-3-mine", "messages": [{"role": "user", "content": "5" * 3000}]}
        async with session.post(f"{base}/v1/chat/completions", json=body) as answer:
            told = await answer.json()
        assert (answer.status, told["error"]["code"]) == (400, "context_length_exceeded")
        assert len(main.received) == 1
