"""The command line, as a person uses it."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from codecs import BOM_UTF8
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from proxy.__main__ import main
from proxy.config.keys_file import hash_of
from proxy.text import figure

ROOT = Path(__file__).parent.parent
CONFIG = """
upstreams: {{echo: {{kind: echo}}, up: {{kind: openai, base_url: "http://127.0.0.1:9/v1", api_key: sk-very-secret}}}}
models: [{{match: echo, upstream: echo, window: {window}}}, {{match: "*", upstream: up}}]
chains:
  default: [consolidate_system: {{}}, window_history: {{keep_turns: 2, stride: 1, summary: false}}, reject_oversize: {{}}]
  empty: []
"""
SAID = [{"role": "user", "content": f"say {word}"} for word in ("one", "two", "three")]
REQUEST = {"model": "echo", "messages": SAID}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG.format(window=4096))
    (tmp_path / "small.yaml").write_text(CONFIG.format(window=16))
    (tmp_path / "request.json").write_text(json.dumps(REQUEST))
    return tmp_path


def run(folder: Path, *arguments: str, config: str = "config.yaml") -> int:
    return main([*arguments, "--config", str(folder / config)])


class TestCheck:
    def test_says_that_a_file_is_good(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(folder, "check") == 0
        good = r"config.yaml: good \(upstreams: 2; model entries: 2; .*; version [0-9a-f]{12}\)"
        assert re.search(good, capsys.readouterr().out)

    def test_says_what_is_wrong_in_one_line(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "config.yaml").write_text(CONFIG.format(window=4096).replace("keep_turns", "keep_turn"))
        assert run(folder, "check") == 1
        told = "chains.default.1.window_history.keep_turn: unknown key; did you mean 'keep_turns'?"
        assert capsys.readouterr().err == f"penstock: {folder}/config.yaml:5: {told}\n"

    def test_warns_of_a_guard_that_lets_requests_pass(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = CONFIG.format(window=4096)
        guard = "default: [tests.examples.redact_emails: {on_error: skip}, "
        (folder / "config.yaml").write_text(text.replace("default: [", guard))
        assert run(folder, "check") == 0
        assert "redact_emails: `on_error: skip` lets a request pass" in capsys.readouterr().err


class Explain(Protocol):
    def __call__(self, *arguments: str, config: str = ..., fails: bool = ...) -> str: ...


@pytest.fixture
def explain(folder: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Explains the request of the folder; gives what is printed, or what is said where it fails."""

    def explained(*arguments: str, config: str = "config.yaml", fails: bool = False) -> str:
        assert run(folder, "explain", str(folder / "request.json"), *arguments, config=config) == fails
        printed = capsys.readouterr()
        return printed.err if fails else printed.out

    return explained


class TestExplain:
    def test_shows_a_table_and_what_changed(self, explain: Explain) -> None:
        lines = explain().splitlines()
        figures = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
        known = {"model": "echo", "upstream": "echo", "chain": "default", "wire": "chat", "window": "4,096"}
        assert figures.items() >= known.items()
        steps = lines[lines.index("") + 1 :]
        assert steps[0].split() == ["step", "verdict", "before", "after", "ms", "why"]
        verdicts = ["consolidate_system keep", "window_history rewrite", "reject_oversize keep"]
        assert [" ".join(line.split()[:2]) for line in steps[1:4]] == verdicts
        assert "dropped 1 of 3 turns" in steps[2]
        assert "- [0] user: say one (38 bytes)\n  2 messages unchanged" in explain("--diff")

    def test_speaks_json(self, explain: Explain) -> None:
        data = json.loads(explain("--json"))
        assert [step["verdict"] for step in data["steps"]] == ["keep", "rewrite", "keep"]
        assert data["tokens_after"] < data["tokens_before"]
        assert data["steps"][1]["facts"] == {"dropped_turns": 1, "dropped_messages": 1}

    def test_prints_the_body_that_would_be_sent(self, folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        assert run(folder, "explain", str(folder / "request.json"), "--body") == 0
        sent = json.loads(capfdbinary.readouterr().out)
        assert [message["content"] for message in sent["messages"]] == ["say two", "say three"]
        assert run(folder, "explain", str(folder / "request.json"), "--body", config="small.yaml") == 1
        assert capfdbinary.readouterr().out == b""

    def test_takes_headers_as_a_client_sends_them(self, folder: Path, explain: Explain) -> None:
        auth = f"auth: {{kind: keys, keys: [{{name: ann, hash: {hash_of('pk-1')}, models: [echo]}}]}}\n"
        (folder / "config.yaml").write_text(CONFIG.format(window=4096) + auth)
        sent = ("--header", "Authorization: Bearer pk-1", "--header", "x-penstock-bypass: true")
        assert re.search(r"unchanged +yes", explain(*sent))
        assert "Incorrect API key" in explain("--header", "authorization: Bearer pk-2", fails=True)
        with pytest.raises(SystemExit):
            explain("--header", "nothing")

    def test_leaves_no_state_behind(self, folder: Path, explain: Explain) -> None:
        state = folder / "state"
        (folder / "config.yaml").write_text(CONFIG.format(window=4096) + f'state: {{directory: "{state}"}}\n')
        explain()
        assert not state.exists()

    def test_prices_the_prompt_where_prices_are_known(self, folder: Path, explain: Explain) -> None:
        assert "usd" not in explain()
        text = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(text.replace("window: 4096", "window: 4096, prices: {input: 1000}"))
        data = json.loads(explain("--json"))
        for when in ("before", "after"):
            assert data[f"prompt_usd_{when}"] == pytest.approx(data[f"tokens_{when}"] / 1000)
        assert data["usd_estimated"] == pytest.approx(data["tokens_after"] / 1000, rel=0.2)  # no reply's framing
        assert data["usd_saved"] == pytest.approx(data["usd_unchanged"] - data["usd_estimated"])
        assert re.search(rf"prompt_usd_after +{figure(data['prompt_usd_after'])}\n", explain())

    def test_estimates_what_a_turn_costs_in_a_running_conversation(self, folder: Path, explain: Explain) -> None:
        """A window that moves with each turn has the rest written anew: more is paid for fewer tokens."""
        cached = "window: 99000, prices: {input: 1000}, cache: {read: 0.1, write: 1.25, minimum: 100, ttl: 300}"
        text = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(text.replace("window: 4096", cached))
        talk = [{"role": ("user", "assistant")[n % 2], "content": f"{n} " + "word " * 200} for n in range(9)]
        request = json.dumps({**json.loads((folder / "request.json").read_bytes()), "messages": talk})
        (folder / "request.json").write_text(request)
        data = json.loads(explain("--json"))
        assert data["tokens_after"] < data["tokens_before"]
        assert data["prompt_usd_after"] < data["prompt_usd_before"]
        assert data["usd_estimated"] > data["usd_unchanged"]
        assert data["usd_saved"] < 0
        assert re.search(rf"usd_saved +{figure(data['usd_saved'])}\n", explain())

    def test_says_where_a_judge_would_have_been_asked(self, folder: Path, explain: Explain) -> None:
        facts = "facts: [Ada Lovelace was an English mathematician.], judge: 0.5"
        chain = f"facts: [consolidate_system: {{}}, check_facts: {{{facts}}}, reject_oversize: {{}}]"
        text = (folder / "config.yaml").read_text().replace("empty: []", chain)
        (folder / "config.yaml").write_text(text + "judge: {model: echo}\n")
        said = "Ada Lovelace wrote the first cookbook of Norwick."
        for content, asked in [(said, 1), ("The weather is fine.", 0)]:
            messages = [{"role": "assistant", "content": content}, {"role": "user", "content": "Hm."}]
            (folder / "request.json").write_text(json.dumps({"model": "echo", "messages": messages}))
            assert json.loads(explain("--chain", "facts", "--json"))["judge_not_asked"] == asked
            shown = explain("--chain", "facts")
            assert bool(re.search(r"judge_not_asked +1\n", shown)) is bool(asked)
            assert ("judge" in shown) is bool(asked)

    def test_says_what_the_upstream_has_nothing_for(self, folder: Path, explain: Explain) -> None:
        config = "upstreams: {main: {kind: ollama}}\nmodels: [{match: m, upstream: main}]\nchains: {default: []}\n"
        (folder / "config.yaml").write_text(config)
        request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2, "seed": 1, "stop": "."}
        (folder / "request.json").write_text(json.dumps(request))
        assert json.loads(explain("--json"))["ignored"] == ["n"]
        assert re.search(r"ignored +n\n", explain())

    def test_of_another_chain_with_the_guards_of_its_own(self, folder: Path, explain: Explain) -> None:
        assert re.search(r"unchanged +yes", explain("--chain", "empty"))
        text = CONFIG.format(window=4096).replace("default: [", "default: [tests.examples.redact_emails: {}, ")
        (folder / "config.yaml").write_text(text)
        messages = [{"role": "user", "content": "ana@example.com"}]
        (folder / "request.json").write_text(json.dumps({"model": "echo", "messages": messages}))
        assert "took out what it guards" in explain("--chain", "empty")

    def test_of_a_request_that_is_rejected(self, explain: Explain) -> None:
        told = explain(config="small.yaml")
        assert "\nrejected with 400 context_length_exceeded: nothing would be sent\n" in told
        assert "\nunchanged" not in told

    def test_of_a_broken_request_or_none(
        self, folder: Path, explain: Explain, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (folder / "request.json").write_text('{"model": "echo", "messages": [5]}')
        assert explain(fails=True) == f"penstock: {folder / 'request.json'}: messages[0] must be an object\n"
        (folder / "request.json").write_bytes(BOM_UTF8 + b'{"model": "echo", "messages": [{"role": "user"}]}')
        (folder / "before.jsonl").write_text('{"model": "echo", "messages": [{"role": "user"}]}\n\n{"model": "echo"}')
        assert "\nsteps" not in explain()
        told = explain("--before", str(folder / "before.jsonl"), fails=True)
        assert told == f"penstock: {folder / 'before.jsonl'}:3: messages must be a list of messages\n"
        assert run(folder, "explain", str(folder / "none.json")) == 1
        assert "none.json: No such file or directory" in capsys.readouterr().err


def test_models_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "models") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["echo", "echo", "default", "4096", "409"]


@pytest.mark.parametrize("command", ["serve", "check", "explain", "models", "schema"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "--config FILE" in capsys.readouterr().out


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2


def test_a_taken_port_is_said_in_one_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(folder / "config.yaml"), "--port", port]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 1
    assert ran.stderr == f"penstock: 127.0.0.1:{port}: cannot listen there: Address already in use\n"


def test_starting_loads_no_heavy_library(folder: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from proxy.config.load import load; from proxy.server.app import App\n"
        f"App(load(Path({str(folder / 'config.yaml')!r})))\n"
        "print([name for name in ('litellm', 'transformers', 'tokenizers', 'tiktoken', 'torch', 'opentelemetry', 'grpc')"
        " if name in sys.modules])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
    assert result.stdout.strip() == "[]", result.stderr


def test_a_new_key_is_shown_once_with_the_lines_that_let_it_in(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("", "a b", "-a", "a" * 65, "a:b", "a\n"):
        with pytest.raises(SystemExit):
            main(["keys", "new", "--", name])
    assert "a letter or digit first" in capsys.readouterr().err
    assert main(["keys", "new", "ann", "--tenant", "acme"]) == 0
    lines = capsys.readouterr().out.splitlines()
    entry = "\n".join(lines[3:])
    assert entry == f'- name: "ann"\n  hash: {hash_of(lines[1])}\n  tenant: "acme"'


class TestNewPolicy:
    def test_makes_a_policy_whose_test_passes(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        assert main(["new-policy", "acme.policies.cut_lines"]) == 0
        chains = "chains: {default: [acme.policies.cut_lines: {lines: 2}], empty: []}"
        (folder / "own.yaml").write_text(CONFIG.format(window=4096).partition("chains:")[0] + chains)
        environment = {**os.environ, "PYTHONPATH": os.getcwd() + os.pathsep + str(ROOT)}
        made = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "acme/policies/test_cut_lines.py"]
        tested = subprocess.run(made, env=environment, capture_output=True, text=True, check=False)
        assert tested.returncode == 0, tested.stdout + tested.stderr
        assert "2 passed" in tested.stdout
        checked = [sys.executable, "-m", "proxy", "check", "--config", "own.yaml"]
        subprocess.run(checked, env=environment, capture_output=True, check=True)

    def test_a_reader_that_has_enough_is_no_error(self, folder: Path) -> None:
        command = f"{sys.executable} -m proxy schema | head -c 1"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], env=environment, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"{", b"")

    def test_a_package_passes_its_own_checks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["new-policy", "acme.cut_lines", "--package"]) == 0
        project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
        assert project["entry-points"]["penstock.policies"] == {"acme.cut_lines": "acme.cut_lines:CutLines"}
        jobs = yaml.safe_load(Path(".github/workflows/checks.yml").read_text())["jobs"]
        commands = [shlex.split(step["run"]) for step in jobs["checks"]["steps"] if "run" in step]
        assert [command[0] for command in commands] == ["pip", "python", "penstock", "penstock"]
        environment = {**os.environ, "PYTHONPATH": os.getcwd() + os.pathsep + str(ROOT), "PYTEST_ADDOPTS": "-W ignore"}
        for command in commands[1:]:
            start = [sys.executable, *([] if command[0] == "python" else ["-m", "proxy"]), *command[1:]]
            done = subprocess.run(start, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"^acme\.cut_lines .* 1$", done.stdout, re.MULTILINE), "the policy acts in the conversation"

    def test_in_a_checkout_it_stands_beside_the_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "tests" / "policies").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        assert main(["new-policy", "cut_lines"]) == 0
        assert "class CutLines(Policy):" in (tmp_path / "policies" / "cut_lines.py").read_text()
        test = (tmp_path / "tests" / "policies" / "test_cut_lines.py").read_text()
        assert "from policies.cut_lines import CutLines" in test

    @pytest.mark.parametrize(
        "name", ["cut_lines", "Acme.cut", "acme/cut", "acme..cut", "acme.class-less", "../x.y", "a.class"]
    )
    def test_refuses_a_name_that_is_none(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["new-policy", name]) == 1
        assert "is not a valid policy name; write it like my_company.redact_names" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    def test_overwrites_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "acme").mkdir()
        (tmp_path / "acme" / "test_cut.py").write_text("mine")
        assert main(["new-policy", "acme.cut"]) == 1
        assert "acme/test_cut.py exists already" in capsys.readouterr().err
        assert not (tmp_path / "acme" / "cut.py").exists()


@pytest.mark.parametrize("wrong", [
    "serve --port 99999", "serve --port=-1", "serve --workers 0", "serve --workers=-1",
    "ext-proc --listen 127.0.0.1:99999", "ext-proc --listen localhost", "ext-proc --listen :1",
    "ext-proc --to bad", "ext-proc --to http://", "ext-proc --timeout=-1", "ext-proc --timeout nan", "ext-proc --max-mib 0",
    "referee --most 0", "referee --at-once 0",
])  # fmt: skip
def test_an_argument_out_of_range_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(wrong.split())
    assert f"argument {wrong.split()[1].partition('=')[0]}: " in capsys.readouterr().err


def test_a_key_has_one_name_and_a_tenant_too(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["ann", "--name", "bob"], ["ann", "--tenant", ""]):
        with pytest.raises(SystemExit):
            main(["keys", "new", *wrong])
    assert "a tenant has a name" in capsys.readouterr().err


@pytest.mark.parametrize("command", [
    "try --chain none -- true", "replay {file} --chain none", "replay {file} --against none",
    "referee {file} --model echo --chain none --against http://127.0.0.1:1/v1", "referee {file} --model echo --against none",
])  # fmt: skip
def test_an_unknown_chain_is_told_before_anything_is_played(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = command.format(file=folder / "request.json").split()
    assert main([name, "--config", str(folder / "config.yaml"), *rest]) == 1
    assert capsys.readouterr().err.startswith("penstock: there is no chain 'none'; known: ")


def test_a_pattern_to_remove_needs_a_file_to_save(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--redact", "sk-.*"]) != 0
    assert "--save" in capsys.readouterr().err
