"""`penstock try` records a real session through no chain, and prices it with the chain of the configuration."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from proxy.__main__ import main
from proxy.config.load import load
from proxy.server.replay.trial import empty_chains

ROOT = Path(__file__).parents[2]
CONFIG = """
upstreams: {e: {kind: echo}}
models:
  - {match: "*", upstream: e, window: 8192, prices: {input: 100, output: 1}, cache: {read: 1, minimum: 1024, ttl: 300}}
chains:
  default: [{redact_secrets: {}}, {consolidate_system: {}}, {compact_tool_results: {}}]
embedding: {kind: none}
state: {kind: memory}
"""
ASK = f"""
import os, urllib.request
url, body = os.environ["OPENAI_BASE_URL"] + "/chat/completions", open({str(ROOT / "docs/request.json")!r}, "rb").read()
urllib.request.urlopen(urllib.request.Request(url, body, dict([("content-type", "application/json")]))).read()
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_a_session_is_priced_with_and_without(config: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    saved = config.with_name("session.jsonl")
    arguments = ["try", "--config", str(config), "--port", str(port), "--save", str(saved)]
    assert main([*arguments, "--", sys.executable, "-c", ASK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 conversation, 1 request; chain default"
    chained, plain = (float(line.split()[1]) for line in lines if line.startswith("usd"))
    assert 0 < chained < plain / 2
    row = json.loads(saved.read_text())
    asked = json.loads((ROOT / "docs/request.json").read_text())
    roles = [message["role"] for message in asked["messages"]]
    for body in (row["request"], row.get("sent", row["request"])):  # no step has merged the two system messages
        assert [message["role"] for message in body["messages"]] == roles
    assert sorted(path.name for path in config.parent.iterdir()) == ["config.yaml", "session.jsonl"]


def test_guards_alone_stay_in_the_chains_of_a_recording(config: Path) -> None:
    data = yaml.safe_load(CONFIG)
    empty_chains(load(config), data)
    assert data["chains"] == {"default": [{"redact_secrets": {}}]}


def test_try_fails_if_nothing_was_recorded(config: Path, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", "--config", str(config), "--port", str(port), "--", "true"]) == 1
    assert "nothing was recorded" in capsys.readouterr().err


def test_try_starts_no_session_if_another_server_has_the_port(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert main(["try", "--config", str(config), "--port", str(other.getsockname()[1]), "--", "true"]) == 1
    assert "Address already in use" in capsys.readouterr().err


def test_ctrl_c_ends_the_recording_and_prints_the_figures(config: Path, port: int) -> None:
    command = [sys.executable, "-m", "proxy", "try", "--config", str(config), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert f"127.0.0.1:{port}/v1" in process.stdout.readline()
        names = {**os.environ, "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
        subprocess.run([sys.executable, "-c", ASK], env=names, check=True)
        process.send_signal(signal.SIGINT)
        assert "1 conversation, 1 request;" in process.stdout.read()
    assert process.returncode == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_the_shipped_configuration_serves_in_a_folder_without_one(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("proxy.vectors.sentence_transformers.built_in_model", lambda: None)  # seconds of loading
    assert main(["try", "--port", str(port), "--save", "session.jsonl", "--", sys.executable, "-c", ASK]) == 0
    out = capsys.readouterr().out
    assert "no config.yaml is here; the one that comes with Penstock is used" in out
    assert "1 conversation, 1 request;" in out
    assert main(["check"]) == 1
