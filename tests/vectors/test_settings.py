"""From the sections `vectors` and `embedding` of a configuration to a policy's context."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.chat.errors import ConfigError
from proxy.config.load import load
from proxy.config.settings import EmbeddedVectors, NoVectors, QdrantVectors, Settings
from proxy.server.build import build_index
from proxy.server.explain import explain, render_table
from proxy.vectors.embedded import FILE
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, Upstream, filled, proxy, send, until_ready
from tests.vectors.made import T, points
from tests.vectors.scripted import Scripted

BASE = """
upstreams: {{echo: {{kind: echo}}}}
models: [{{match: "*", upstream: echo}}]
{rest}
"""


def settings(folder: Path, rest: str) -> Settings:
    path = folder / "config.yaml"
    path.write_text(BASE.format(rest=rest))
    return load(path, {"QDRANT": "http://here:6333", "SECRET": "s3cret"}).settings


@pytest.mark.parametrize(("rest", "made"), [
    ("", EmbeddedVectors(kind="embedded")),
    ("vectors: {kind: embedded, directory: /x}", EmbeddedVectors(kind="embedded", directory="/x")),
    ("vectors: none", NoVectors(kind="none")),
    ("vectors: http://host:6333/", QdrantVectors(kind="qdrant", url="http://host:6333")),
    ("vectors: ${QDRANT}", QdrantVectors(kind="qdrant", url="http://here:6333")),
    ("vectors: {kind: qdrant, url: 'https://q', prefix: p, timeout: 3}",
     QdrantVectors(kind="qdrant", url="https://q", prefix="p", timeout=3)),
])  # fmt: skip
def test_what_is_meant(rest: str, made: object, tmp_path: Path) -> None:
    assert settings(tmp_path, rest).vectors == made


@pytest.mark.parametrize(("rest", "place"), [
    ("vectors: ftp://host", "vectors.*url|vectors"),
    ("vectors: {kind: qdrant, url: 'http://q', prefix: 'a/b'}", "prefix"),
])  # fmt: skip
def test_what_is_refused(rest: str, place: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=place):
        settings(tmp_path, rest)


def databases(folder: Path) -> list[Path]:
    return [each.parent for each in folder.rglob(FILE)]


@pytest.mark.parametrize(("rest", "directory"), [
    ("state: {{directory: '{0}/s'}}", "s/vectors"),
    ("state: {{directory: '{0}/s'}}\nvectors: {{kind: embedded, directory: '{0}/v'}}", "v"),
    ("state: {{kind: memory}}\nvectors: {{kind: embedded, directory: '{0}/v'}}", "v"),
    ("state: {{kind: memory, directory: '{0}/s'}}", None),
])  # fmt: skip
async def test_where_the_embedded_vectors_are(rest: str, directory: str | None, tmp_path: Path) -> None:
    index = build_index(settings(tmp_path, rest.format(tmp_path)))
    assert (index is None) == (directory is None)
    if index is not None:
        await index.put(T, points(3))
        assert None not in await index.vectors(T, ["p0", "p2"])
        await index.aclose()
    assert databases(tmp_path) == ([tmp_path / directory] if directory else [])


async def test_a_key_is_not_shown_and_nothing_is_connected_before_it_is_needed(tmp_path: Path) -> None:
    made = settings(tmp_path, "vectors: {kind: qdrant, url: 'http://127.0.0.1:9', api_key: '${SECRET}'}")
    assert "s3cret" not in repr(made)
    index = build_index(made)
    assert index is not None
    assert index.degraded is None
    await index.aclose()
    assert build_index(settings(tmp_path, "vectors: none")) is None


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
async def test_a_model_is_loaded_where_a_policy_needs_it(step: str, loads: int, lab: Lab, backend: Scripted) -> None:
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
