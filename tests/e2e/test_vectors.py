"""Vectors of a running proxy where what keeps them cannot be had: requests go on without it."""

import pytest

from tests.e2e.conftest import Lab

CONFIG = """
upstreams: {echo: {kind: echo}}
models: [{match: "*", upstream: echo, window: 10000}]
chains: {default: [tests.vectors.nearest: {timeout: 30}]}
vectors: {vectors}
embedding: {kind: openai, model: nomic, base_url: "{url}"}
"""


@pytest.mark.parametrize(
    "vectors", ['{kind: embedded, directory: "{folder}/file"}', '{kind: qdrant, url: "http://127.0.0.1:1"}']
)
async def test_a_missing_index_is_done_without(vectors: str, lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    (lab.folder / "file").write_text("no directory")
    client = await lab.client(CONFIG, vectors=vectors, folder=lab.folder)
    messages = [{"role": "user", "content": f"text {place}"} for place in range(6)]
    for _ in range(2):
        assert (await client.chat(messages=messages)).status == 200
    assert caplog.messages.count("the vector index does not work; going on without it") == 1
    assert str(lab.folder) not in "".join(str(vars(record)) for record in caplog.records)
    assert "penstock_index_degraded 1.0" in await client.metrics()
