"""From the section `embedding` of a configuration to a policy's context."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.config.load import load
from proxy.server.explain import explain, render_table
from tests.e2e.servers import Received, Upstream, proxy, send, until_ready, upstream
from tests.vectors.scripted import Scripted

CONFIG = """
upstreams: {{echo: {{kind: echo}}}}
models: [{{match: "*", upstream: echo, window: 10000}}]
chains: {{default: [{step}: {{timeout: 30}}]}}
state: {{kind: memory}}
embedding: {embedding}
telemetry: {{log_level: warning}}
"""
STEP = "tests.vectors.nearest"
SAID = (("user", "apples"), ("assistant", "boats"), ("user", "bananas"))
REQUEST = {"model": "m", "messages": [{"role": role, "content": text} for role, text in SAID]}


async def steps(url: str, key: str = "sk-1") -> str:
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as session,
        session.post(f"{url}/v1/chat/completions", json=REQUEST) as answer,
    ):
        assert answer.status == 200
        return answer.headers["server-timing"]


async def by_first_letter(server: Upstream, received: Received, writer: Any) -> None:
    firsts = [text[0] for text in json.loads(received.body)["input"]]
    data = [{"index": n, "embedding": [each == "a", each == "b", each not in "ab"]} for n, each in enumerate(firsts)]
    await send(writer, 200, json.dumps({"data": data}).encode())


async def test_a_policy_gets_the_embedder_of_the_configuration(tmp_path: Path) -> None:
    async with upstream() as server:
        server.respond = by_first_letter
        settings = f'{{kind: openai, model: nomic, base_url: "{server.url}"}}'
        async with proxy(CONFIG.format(step=STEP, embedding=settings), tmp_path) as url:
            assert "message 1 by nomic" in await steps(url)
            asked = len(server.received)
            assert "message 1 by nomic" in await steps(url)
            assert len(server.received) == asked
            await steps(url, key="sk-2")
            assert len(server.received) > asked
        assert {received.path for received in server.received} == {"/v1/embeddings"}
        assert {received.header("authorization") for received in server.received} == {None}


async def test_without_embedding_there_is_none(tmp_path: Path) -> None:
    async with proxy(CONFIG.format(step=STEP, embedding="{kind: none}"), tmp_path) as url:
        assert "by words" in await steps(url)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """The backend of every proxy."""
    made = Scripted()
    monkeypatch.setattr("proxy.server.build.build_backend", lambda settings: made)
    return made


@pytest.mark.parametrize(("step", "loads"), [(STEP, 1), ("consolidate_system", 0)])
async def test_the_model_is_loaded_at_start_only_where_a_policy_needs_it(
    step: str, loads: int, tmp_path: Path, backend: Scripted
) -> None:
    async with proxy(CONFIG.format(step=step, embedding="{kind: sentence-transformers}"), tmp_path) as url:
        await until_ready(url)
        assert backend.loads == loads
    assert backend.closed


@pytest.mark.parametrize(("waits", "unasked"), [(True, {}), (False, {"vectors": 3})])
async def test_explain_loads_the_model_only_where_it_may_wait(
    waits: bool, unasked: dict[str, int], tmp_path: Path, backend: Scripted
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(step=STEP, embedding="{kind: sentence-transformers}"))
    explained = await explain(load(path, {}), json.dumps(REQUEST).encode(), waits=waits)
    assert (backend.loads > 0, explained.unasked) == (waits, unasked)
    assert ("not_compared_by_meaning" in render_table(explained)) is not waits
    assert backend.closed
