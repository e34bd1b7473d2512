"""The operator's key never comes back in an answer."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.servers import Received, Upstream, proxy, send, upstream

KEY = "sk-operators-own-key"
CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}", api_key: sk-operators-own-key, headers: {{x-api-key: Zaubernuss, x-team: blue}}}}}}
models: [{{match: m, upstream: main, chain: empty}}]
chains: {{empty: []}}
state: {{kind: memory}}
embedding: {{kind: none}}
vectors: none
"""
SAID = {"error": {"message": f"Incorrect API key {KEY}, Zaubernuss of team blue", "type": "x"}}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


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
        async with http.post(f"{base}/v1/{path}", json=ASKED) as got:
            assert got.status == status
            assert got.headers["x-debug"] == "Bearer [key]"
            message = json.loads(await got.read())["error"]["message"]
            assert message == "Incorrect API key [key], [key] of team blue"
