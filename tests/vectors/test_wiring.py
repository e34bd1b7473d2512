"""From the section `embedding` of a configuration to a policy's context."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.server.explain import explain, render_table
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, Upstream, filled, proxy, send, until_ready
from tests.vectors.scripted import Scripted

CONFIG = """
upstreams: {echo: {kind: echo}}
models: [{match: "*", upstream: echo, window: 10000}]
chains: {default: [{step}: {timeout: 30}]}
state: {kind: memory}
embedding: {embedding}
"""
STEP = "tests.vectors.nearest"
SAID = (("user", "apples"), ("assistant", "boats"), ("user", "bananas"))
REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": role, "content": text} for role, text in SAID]}


async def steps(client: Client, key: str = "sk-1") -> Any:
    answer = await client.chat(**REQUEST, key=key)
    assert answer.status == 200
    return answer.headers["server-timing"]


async def by_first_letter(server: Upstream, received: Received, writer: Any) -> None:
    firsts = [text[0] for text in json.loads(received.body)["input"]]
    data = [{"index": n, "embedding": [each == "a", each == "b", each not in "ab"]} for n, each in enumerate(firsts)]
    await send(writer, 200, json.dumps({"data": data}).encode())


async def test_a_policy_gets_the_embedder_of_the_configuration(lab: Lab, behind: Upstream) -> None:
    behind.respond = by_first_letter
    client = await lab.client(CONFIG, step=STEP, embedding=f'{{kind: openai, model: nomic, base_url: "{behind.url}"}}')
    assert "message 1 by nomic" in await steps(client)
    asked = len(behind.received)
    assert "message 1 by nomic" in await steps(client)
    assert len(behind.received) == asked
    await steps(client, key="sk-2")
    assert len(behind.received) > asked
    assert {received.path for received in behind.received} == {"/v1/embeddings"}
    assert {received.header("authorization") for received in behind.received} == {None}


async def test_without_embedding_there_is_none(lab: Lab) -> None:
    assert "by words" in await steps(await lab.client(CONFIG, step=STEP, embedding="{kind: none}"))


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """The backend of every proxy."""
    made = Scripted()
    monkeypatch.setattr("proxy.server.build.build_backend", lambda settings: made)
    return made


@pytest.mark.parametrize(("step", "loads"), [(STEP, 1), ("consolidate_system", 0)])
async def test_the_model_is_loaded_at_start_only_where_a_policy_needs_it(
    step: str, loads: int, lab: Lab, backend: Scripted
) -> None:
    async with proxy(filled(CONFIG, step=step, embedding="{kind: sentence-transformers}"), lab.folder) as url:
        await until_ready(url)
        assert backend.loads == loads
    assert backend.closed


@pytest.mark.parametrize(("waits", "unasked"), [(True, {}), (False, {"vectors": 3})])
async def test_explain_loads_the_model_only_where_it_may_wait(
    waits: bool, unasked: dict[str, int], tmp_path: Path, backend: Scripted
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(filled(CONFIG, step=STEP, embedding="{kind: sentence-transformers}"))
    explained = await explain(load(path, {}), json.dumps(REQUEST).encode(), waits=waits)
    assert (backend.loads > 0, explained.unasked) == (waits, unasked)
    assert ("not_compared_by_meaning" in render_table(explained)) is not waits
    assert backend.closed
