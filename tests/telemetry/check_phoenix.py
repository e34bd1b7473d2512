"""Traces of a running proxy in Arize Phoenix, a collector and viewer of other makers. `make test-traces`.

It is no part of the tests of every day: Phoenix and what it needs have 850 MB.
"""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.servers import proxy, upstream
from tests.loopback import free_port

PHOENIX = shutil.which("phoenix") or ""
pytestmark = pytest.mark.skipif(not PHOENIX, reason="there is no Phoenix: pip install arize-phoenix")

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "*", upstream: main, window: 8192}}]
chains: {{default: [compact_tool_results: {{}}, window_history: {{keep_turns: 1, stride: 1}}]}}
telemetry: {{endpoint: "{collector}"}}
state: {{kind: memory}}
vectors: none
embedding: {{kind: none}}
"""
SECRET = "the-prompt-text"


@asynccontextmanager
async def phoenix(folder: Path) -> AsyncGenerator[str, None]:
    """A running Phoenix that keeps its data in the folder; its address."""
    port, grpc_port = free_port(), free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PHOENIX"))}
    settings = {"HOST": "127.0.0.1", "PORT": str(port), "GRPC_PORT": str(grpc_port), "WORKING_DIR": str(folder)}
    environment |= {f"PHOENIX_{name}": value for name, value in {**settings, "TELEMETRY_ENABLED": "false"}.items()}
    process = await asyncio.create_subprocess_exec(PHOENIX, "serve", env=environment, stdout=DEVNULL, stderr=DEVNULL)
    try:
        async with asyncio.timeout(120), aiohttp.ClientSession() as http:
            while True:
                try:
                    async with http.get(f"http://127.0.0.1:{port}/healthz") as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientConnectionError:
                    assert process.returncode is None, "Phoenix ended"
                await asyncio.sleep(0.3)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def spans_of(base: str, count: int) -> dict[str, dict[str, Any]]:
    """The spans that Phoenix has, by name, once there are so many."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as http:
        while True:
            async with http.get(f"{base}/v1/projects/default/spans?limit=100") as answer:
                found = (await answer.json())["data"] if answer.status == 200 else []
            if len(found) >= count:
                return {span["name"]: span for span in found}
            await asyncio.sleep(0.3)


async def test_phoenix_reads_a_request_as_one_call_of_a_model(tmp_path: Path) -> None:
    said = [{"role": role, "content": f"{SECRET} {turn}"} for turn in range(5) for role in ("user", "assistant")]
    question = {"model": "gpt-4o", "messages": [*said, {"role": "user", "content": SECRET}], "temperature": 0}
    async with phoenix(tmp_path) as collector, upstream() as provider:
        async with proxy(CONFIG.format(url=provider.url, collector=collector), tmp_path) as base:
            headers = {"x-penstock-session": "trip"}
            async with (
                aiohttp.ClientSession() as http,
                http.post(f"{base}/v1/chat/completions", json=question, headers=headers) as answer,
            ):
                assert answer.status == 200
        spans = await spans_of(collector, 4)  # all are sent when the proxy stops
    assert SECRET not in json.dumps(spans)
    server, call = spans["POST /v1/chat/completions"], spans["chat gpt-4o"]
    parents = {spans[f"policy {name}"]["parent_id"] for name in ("compact_tool_results", "window_history")}
    assert parents == {call["parent_id"]} == {server["context"]["span_id"]}
    # Phoenix's own names, which it makes of those of the conventions
    assert call["span_kind"] == "LLM"
    read = call["attributes"]
    names = ("llm.model_name", "llm.token_count.prompt", "llm.token_count.completion")
    assert [read[name] for name in names] == ["gpt-4o", 9, 2]
    assert read["session.id"] == read["gen_ai.conversation.id"]
    assert [name for name, span in spans.items() if span["span_kind"] == "LLM"] == ["chat gpt-4o"]
