"""Real clients against a running Penstock: `python -m tests.clients.run [SUITE ...]`.

Makes the clients' environments once, starts the scripted upstream and Penstock on free ports, runs every suite and
stops what it started. Writes only below `PENSTOCK_CLIENTS_DIR` (default `.cache/clients`). Needs Node for the suites in
JavaScript; the network is only used to install packages.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients import workshop
from tests.clients.workshop import HERE, SCRATCH

CONFIG = """
version: 1
server: {{host: 127.0.0.1, port: 0, drain: 3}}
upstreams:
  scripted: {{kind: openai, base_url: {upstream}/v1}}
  asking: {{kind: openai, base_url: {upstream}/v1, ask_usage: true}}
  echo: {{kind: echo}}
models:
  - {{match: "plain/*", upstream: scripted, chain: none}}
  - {{match: "steps/*", upstream: scripted, chain: default, window: 128000}}
  - {{match: "small/*", upstream: scripted, chain: default, window: 300, reserve: 100}}
  - {{match: "many/*", upstream: scripted, chain: many, window: 128000}}
  - {{match: "asked/*", upstream: asking, chain: default, window: 128000}}
  - {{match: renamed, upstream: scripted, chain: none, model: plain/chat}}
  - {{match: echo, upstream: echo, chain: default, window: 8192}}
chains:
  none: []
  default:
    - consolidate_system: {{}}
    - window_history: {{keep_turns: 6, stride: 2, summary: false}}
    - reject_oversize: {{share: 0.95}}
  many:
    - filter_tools: {{strategy: defer}}
embedding: {{kind: none}}
telemetry: {{log_level: warning, log_format: text}}
"""

_PATIENCE = 60
"""Seconds for a server to start or stop; the machine may be busy."""


@dataclass
class Tally:
    """What has been found so far."""

    passed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def take(self, client: str, verdict: str, name: str, detail: str) -> None:
        """Count a result and print it."""
        self.passed += verdict == "pass"
        self.skipped += verdict == "skip"
        if verdict == "fail":
            self.failures.append(f"{client}: {name}: {detail}")
        print(f"{verdict:4}  {client:34}  {name}{'  ' + detail if detail else ''}", flush=True)


@dataclass(frozen=True)
class Suite:
    """One client: how it is named, made and run, and how many seconds it may take."""

    client: str
    command: Callable[[], list[str]]
    seconds: int = 300


def _python(environment: str, package: str, script: str) -> Suite:
    def command() -> list[str]:
        return [str(workshop.python_environment(environment) / "python"), str(HERE / "suites" / script)]

    pins = dict(_pins(environment))
    library = "" if package == "openai" else f", openai {pins['openai'].partition('.')[0]}"
    return Suite(f"{package} {pins[package]} (Python{library})", command)


def _pins(environment: str) -> Iterator[tuple[str, str]]:
    for line in (HERE / f"requirements-{environment}.txt").read_text().splitlines():
        if found := re.match(r"([\w-]+)(?:\[\w+\])?==(\S+)", line):
            yield found[1], found[2]


def _node(package: str, script: str) -> Suite:
    pinned = json.loads((HERE / "package.json").read_text())["dependencies"][package].rpartition("@")[2]
    shown = package.partition("-")[0] if package.startswith("openai") else package
    return Suite(f"{shown} {pinned} (Node)", lambda: ["node", str(workshop.node_environment() / script), package])


def _by_others(name: str, folder: Callable[[], Path], version: str) -> Suite:
    command = [sys.executable, "-m", "tests.clients.conformance", name]
    return Suite(f"{name} {version}", lambda: [*command, str(folder())], 900)


def suites() -> dict[str, Suite]:
    """All suites by name."""
    three, node = dict(_pins("openai3")), json.loads((HERE / "package.json").read_text())["dependencies"]
    return {
        "openai2": _python("openai2", "openai", "with_openai.py"),
        "openai3": _python("openai3", "openai", "with_openai.py"),
        "openai-node6": _node("openai", "with_openai.mjs"),
        "openai-node7": _node("openai-7", "with_openai.mjs"),
        "langchain2": _python("openai2", "langchain-openai", "with_langchain.py"),
        "langchain3": _python("openai3", "langchain-openai", "with_langchain.py"),
        "pydantic-ai2": _python("openai2", "pydantic-ai-slim", "with_pydantic_ai.py"),
        "pydantic-ai3": _python("openai3", "pydantic-ai-slim", "with_pydantic_ai.py"),
        "instructor": _python("openai2", "instructor", "with_instructor.py"),
        "ai-sdk": _node("ai", "with_ai_sdk.mjs"),
        "llm-comply": _by_others("llm-comply", lambda: workshop.python_environment("openai3"), three["llm-comply"]),
        "compatcanary": _by_others("compatcanary", workshop.node_environment, node["compatcanary"]),
        "schemathesis": _by_others(
            "schemathesis", lambda: workshop.python_environment("openai3"), three["schemathesis"]
        ),
    }


def environment(penstock: str, scripted: str) -> dict[str, str]:
    """The environment of a suite: nothing of the caller's but the path, and no way to anything but this machine."""
    nowhere = {f"{scheme}_PROXY": "http://127.0.0.1:9" for scheme in ("HTTP", "HTTPS", "ALL")}
    return {
        **nowhere,
        **{name.lower(): value for name, value in nowhere.items()},
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "PATH": os.environ["PATH"],
        "HOME": str(SCRATCH / "home"),
        "PYTHONPATH": str(HERE.parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PENSTOCK_URL": penstock,
        "SCRIPTED_URL": scripted,
    }


@contextmanager
def serving(command: list[str], log: Path) -> Iterator[tuple[str, list[int]]]:
    """A server that prints its address in its first line: the address, and after the end its exit code."""
    code: list[int] = []
    with log.open("w") as errors:
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=HERE.parents[1], start_new_session=True
        )
        try:
            assert server.stdout is not None
            found = re.search(r"http://[\d.]+:\d+", server.stdout.readline())
            if found is None:
                raise SystemExit(f"it did not start: {' '.join(command)}\n{log.read_text()}")
            yield found[0], code
        finally:
            server.terminate()
            try:
                code.append(server.wait(_PATIENCE))
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                code.append(server.wait())


def run_suite(suite: Suite, env: dict[str, str], tally: Tally) -> None:
    """Run a suite to its end or to its deadline, and take its lines as they come."""
    command = suite.command()
    if reason := _unfit(command):
        tally.take(suite.client, "skip", "all scenarios", reason)
        return
    with (SCRATCH / "suite.log").open("w+") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=env,
            cwd=SCRATCH / "run",
            start_new_session=True,
        )
        watch = threading.Timer(suite.seconds, _kill, [process])
        watch.start()
        try:
            seen = _take_lines(suite, process, tally)
            code = process.wait()
        finally:
            watch.cancel()
            _kill(process)
        if code != 0 or seen == 0:
            errors.seek(0)
            told = " ".join(errors.read().split()[-80:])
            tally.take(suite.client, "fail", "the suite itself", f"exit code {code} after {seen} scenarios: {told}")


def _take_lines(suite: Suite, process: "subprocess.Popen[str]", tally: Tally) -> int:
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        verdict, _, rest = line.rstrip("\n").partition("\t")
        if verdict in ("pass", "fail", "skip"):
            name, _, detail = rest.partition("\t")
            tally.take(suite.client, verdict, name, detail)
            seen += 1
    return seen


def _kill(process: "subprocess.Popen[str]") -> None:
    """End a suite and whatever it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _unfit(command: list[str]) -> str | None:
    """Why this machine cannot run a suite: Node is absent or too old for the package."""
    if command[0] != "node" or command[-1] != "openai-7":
        return None
    package = json.loads((workshop.NODE / "node_modules" / command[-1] / "package.json").read_text())
    wanted = package.get("engines", {}).get("node", "")
    least = re.match(r">=(\d+)", wanted)
    has = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=30).stdout.strip()
    if least and int(has.lstrip("v").partition(".")[0]) < int(least[1]):
        return f"it needs Node {wanted}, this is {has}"
    return None


def main() -> int:
    """Run the suites that are named, or all. Returns 0 if none failed."""
    known = suites()
    parser = argparse.ArgumentParser(
        prog="python -m tests.clients.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", nargs="*", help=f"one or more of: {', '.join(known)} (default: all)")
    chosen = parser.parse_args().suite or list(known)
    if unknown := sorted(set(chosen) - set(known)):
        parser.error(f"no such suite: {', '.join(unknown)}; known: {', '.join(known)}")
    for folder in ("home", "run"):
        (SCRATCH / folder).mkdir(parents=True, exist_ok=True)
    tally, log, started = Tally(), SCRATCH / "penstock.log", time.monotonic()
    upstream = [sys.executable, "-m", "tests.clients.scripted_upstream"]
    try:
        with serving(upstream, SCRATCH / "upstream.log") as (scripted, _):
            config = SCRATCH / "config.yaml"
            config.write_text(CONFIG.format(upstream=scripted))
            penstock = [sys.executable, "-m", "proxy", "serve", "--config", str(config), "--port", "0"]
            with serving(penstock, log) as (address, code):
                for name in chosen:
                    run_suite(known[name], environment(address, scripted), tally)
                _check_policies(address, tally)
        tally.take("penstock", "pass" if code == [0] else "fail", "stops on SIGTERM", f"exit code {code}")
        _check_log(log, tally)
    finally:
        shutil.rmtree(SCRATCH / "run", ignore_errors=True)
    for failure in tally.failures:
        print(f"FAILED {failure}")
    print(f"{time.monotonic() - started:.0f} seconds, {tally.skipped} skipped")
    print(f"{tally.passed} passed, {len(tally.failures)} failed")
    return 1 if tally.failures else 0


def _check_policies(address: str, tally: Tally) -> None:
    """No policy may have had a fault: the runner would have skipped it, and the client not noticed."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=_PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    verdicts = [line for line in lines if line.startswith("penstock_policy_verdicts_total")]
    faults = [line for line in verdicts if 'verdict="fail"' in line and not line.endswith(" 0.0")]
    tally.take("penstock", "fail" if faults else "pass", "no policy had a fault", " ".join(faults or verdicts)[:600])


def _check_log(log: Path, tally: Tally) -> None:
    """Nothing that clients did may have met a fault of Penstock itself."""
    faults = [line for line in log.read_text().splitlines() if re.search(r"unexpected error|Traceback|Error", line)]
    tally.take("penstock", "fail" if faults else "pass", "its log has no fault", " ".join(faults)[:600])


if __name__ == "__main__":
    sys.exit(main())
