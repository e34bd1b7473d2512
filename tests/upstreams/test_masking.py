"""The operator's key never comes back in an answer."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.servers import Received, Upstream, begin_stream, proxy, send, send_chunk, upstream

KEY = "sk-operators-own-key"
CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}", api_key: sk-operators-own-key, headers: {{x-api-key: Zaubernuss, x-team: blue}}}}}}
models: [{{match: m, upstream: main, chain: empty}}]
chains: {{empty: []}}
state: {{kind: memory}}
embedding: {{kind: none}}
vectors: none
"""
SAID = {
    "error": {"message": f"Incorrect API key {KEY}, Zaubernuss of team blue", "type": "x", "param": None, "code": None}
}


@pytest.mark.parametrize("status", [200, 401, 503])
@pytest.mark.parametrize("path", ["chat/completions", "embeddings"])
async def test_a_whole_answer(tmp_path: Path, status: int, path: str) -> None:
    async def echo(behind: Upstream, received: Received, writer: Any) -> None:
        head = f"content-type: application/json\r\nx-debug: {received.header('authorization')}\r\n"
        await send(writer, status, json.dumps(SAID).encode(), head)

    async with (
        upstream() as behind,
        proxy(CONFIG.format(url=behind.url), tmp_path) as base,
        aiohttp.ClientSession() as http,
    ):
        behind.respond = echo
        async with http.post(
            f"{base}/v1/{path}", json={"model": "m", "messages": [{"role": "user", "content": "x"}]}
        ) as got:
            assert got.status == status
            assert got.headers["x-debug"] == "Bearer [key]"
            message = json.loads(await got.read())["error"]["message"]
            assert message == "Incorrect API key [key], [key] of team blue"


async def test_a_stream_that_breaks_the_key_in_two(tmp_path: Path) -> None:
    async def echo(behind: Upstream, received: Received, writer: Any) -> None:
        await begin_stream(writer)
        for part in (
            b"data: {}\n\n",
            b'data: {"error": "' + KEY[:7].encode(),
            KEY[7:].encode() + b' sk-"}\n\ndata: sk-',
        ):
            await send_chunk(writer, part)
        await send_chunk(writer, b"")

    async with (
        upstream() as behind,
        proxy(CONFIG.format(url=behind.url), tmp_path) as base,
        aiohttp.ClientSession() as http,
    ):
        behind.respond = echo
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]}
        async with http.post(f"{base}/v1/chat/completions", json=body) as got:
            assert await got.read() == b'data: {}\n\ndata: {"error": "[key] sk-"}\n\ndata: sk-'
