"""`penstock check --connect`: every server of a configuration is asked, and what is wrong is told."""

import asyncio
import logging
from pathlib import Path

import pytest

from proxy.__main__ import main
from proxy.config.load import load
from proxy.server.commands import connect
from tests.e2e.servers import Received, Upstream, send, upstream

CONFIG = """
upstreams:
  one: {{kind: openai, base_url: "{one}", api_key: sk-one}}
  two: {{kind: openai, base_url: "{one}/refused"}}
  gone: {{kind: openai, base_url: "http://127.0.0.1:9/v1"}}
  nowhere: {{kind: ollama, base_url: "http://nowhere.invalid:11434"}}
  echo: {{kind: echo}}
  far: {{kind: foreign, provider: gemini, api_key: sk-far}}
  near: {{kind: foreign, provider: mistral, api_key: sk-near, base_url: "{one}"}}
  lost: {{kind: foreign, provider: mistral, base_url: "http://127.0.0.1:9"}}
models: [{{match: "*", upstream: one}}]
state: {{kind: redis, url: "redis://127.0.0.1:9/0"}}
vectors: http://127.0.0.1:9
embedding: {{kind: openai, base_url: "{one}", model: m}}
"""


async def answering(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    if received.path.endswith("/embeddings"):
        await send(writer, 200, b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}]}')
    else:
        await send(writer, 401 if "refused" in received.path else 200, b'{"data": []}')


async def test_every_server_is_asked_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async with upstream() as behind:
        behind.respond = answering
        (tmp_path / "config.yaml").write_text(CONFIG.format(one=behind.url))
        with caplog.at_level(logging.WARNING, "penstock.http"):
            assert await connect(load(tmp_path / "config.yaml", {})) == 1
        out, err = ([line.partition(": ") for line in text.splitlines()] for text in capsys.readouterr())
        found = {name: text for name, _, text in (*out, *err)}
        asked = [(each.method, each.path, each.header("authorization")) for each in behind.received]
    assert {name: each in out for each in (*out, *err) for name in each[:1]} == {
        "upstream 'one'": True, "upstream 'two'": True, "upstream 'gone'": False, "upstream 'nowhere'": False,
        "upstream 'echo'": True, "upstream 'far'": True, "upstream 'near'": True, "upstream 'lost'": False, "state": False, "vectors": False, "embedding": True,
    }  # fmt: skip
    assert "answers with status 200" in found["upstream 'one'"]
    assert "refuses its api_key" in found["upstream 'two'"]
    assert found["upstream 'gone'"].endswith("could not be reached (127.0.0.1:9: Connection refused)")
    assert "nowhere.invalid:11434: its name is not known" in found["upstream 'nowhere'"]
    assert asked[0] == ("GET", "/v1/models", "Bearer sk-one")
    assert len(asked) == 4
    assert asked[2][2] is None, "only its provider gets the key"
    assert found["upstream 'far'"].startswith("not asked: ")
    assert "its address answers with status 200" in found["upstream 'near'"]
    assert "Connection refused" in found["upstream 'lost'"]
    told = [vars(record)["fields"] for record in caplog.records if record.name == "penstock.http"]
    causes = [(fields["server"], fields["cause"]) for fields in told]
    assert ("gone", "127.0.0.1:9: Connection refused") in causes


def test_the_exit_code_says_whether_all_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        'upstreams: {gone: {kind: openai, base_url: "http://127.0.0.1:9/v1"}}\nmodels: [{match: "*", upstream: gone}]\n'
        "embedding: {kind: none}\nvectors: none\n"
    )
    assert main(["check", "--config", str(path)]) == 0
    assert main(["check", "--config", str(path), "--connect"]) == 1
    printed = capsys.readouterr()
    assert "Connection refused" in printed.err
    path.write_text('upstreams: {echo: {kind: echo}}\nmodels: [{match: "*", upstream: echo}]\nvectors: none\n')
    assert main(["check", "--config", str(path), "--connect"]) == 0
