"""The section `vectors`: its short forms, what is refused, and what is built of it."""

from pathlib import Path

import pytest

from proxy.chat.errors import ConfigError
from proxy.config.load import load
from proxy.config.settings import EmbeddedVectors, NoVectors, QdrantVectors, Settings
from proxy.server.build import build_index
from proxy.vectors.embedded import FILE
from tests.vectors.made import T, points

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
