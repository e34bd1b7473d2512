"""Suites that others wrote for servers that speak OpenAI's API: llm-comply, compatcanary and schemathesis.

The first two are run against the scripted upstream as well: what they find must not depend on Penstock.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PENSTOCK = os.environ["PENSTOCK_URL"]
UPSTREAM = os.environ["SCRIPTED_URL"]
_REASONS = "gpt-5"
"""llm-comply tries reasoning only with names that it knows."""

Result = tuple[str, str, str]
"""Verdict, name, detail."""


def llm_comply(programs: Path) -> Iterator[Result]:
    """One result per test and chain, and whether the warnings are those of the upstream itself."""

    def found(base: str, chain: str) -> dict[str, Any]:
        command = [str(programs / "llm-comply"), "--format", "openai-chat", "-u", f"{base}/v1", "-k", "sk-x", "--json"]
        report = json.loads(_output([*command, "-m", f"{chain}/{_REASONS}"]))
        return {test["id"]: test for test in report["results"]}

    for chain in ("plain", "steps"):
        direct, through = found(UPSTREAM, chain), found(PENSTOCK, chain)
        assert len(through) >= 9, through
        for name, test in through.items():
            same = _told(test) == _told(direct[name])
            good = test["status"] == "passed" and same
            yield "pass" if good else "fail", f"{name} [{chain}]", "" if good else f"{_told(test)}; direct: {same}"


def _told(test: Mapping[str, Any]) -> list[Any]:
    return [test["status"], test.get("errors"), test.get("warnings")]


def compatcanary(node: Path) -> Iterator[Result]:
    """One result per probe and chain; the profile `modern` has the Responses API in it, which is passed through."""

    def found(base: str, chain: str) -> dict[str, Any]:
        program = node / "node_modules" / "compatcanary" / "src" / "cli.js"
        options = ["--profile", "modern", "--format", "json", "--fail-on", "never", "--api-key", "sk-x"]
        command = ["node", str(program), "scan", "--base-url", f"{base}/v1", "--model", f"{chain}/chat", *options]
        return {probe["id"]: probe for probe in json.loads(_output(command))["results"]}

    for chain in ("plain", "steps"):
        direct, through = found(UPSTREAM, chain), found(PENSTOCK, chain)
        assert len(through) >= 7, through
        for name, probe in through.items():
            good = probe["status"] == direct[name]["status"] == "pass"
            yield "pass" if good else "fail", f"{name} [{chain}]", "" if good else probe["summary"]


def schemathesis(programs: Path, examples: int) -> Iterator[Result]:
    """Requests made from OpenAI's own description, right ones and wrong ones: none may be answered with a 5xx."""
    described = next(programs.parent.glob("lib/python*/site-packages/llm_comply/specs/openai_chat.json"))
    for model in ("plain/chat", "steps/chat", "asked/chat", "echo"):
        spec = Path(f"openapi-{model.replace('/', '-')}.json")
        spec.write_text(json.dumps(_only_chat(json.loads(described.read_text()), model)))
        command = [str(programs / "schemathesis"), "run", str(spec), "--url", f"{PENSTOCK}/v1"]
        command += ["--checks", "not_a_server_error", "--max-examples", str(examples), "--seed", "7", "--no-shrink"]
        command += ["--phases", "coverage,fuzzing", "--warnings", "off", "--no-color"]
        command += [
            "--header",
            "Authorization: Bearer sk-x",
            "--suppress-health-check",
            "all",
            "--request-timeout",
            "20",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        good = done.returncode == 0
        cases = re.search(r"[\d,]+ generated", done.stdout)
        detail = cases[0] if good and cases else " ".join((done.stdout + done.stderr).split()[-90:])
        yield "pass" if good else "fail", f"not_a_server_error [{model}]", detail


def _only_chat(spec: Any, model: str) -> Any:
    """The description without all other endpoints, and with one model."""
    spec["paths"] = {"/chat/completions": {"post": spec["paths"]["/chat/completions"]["post"]}}
    spec["components"]["schemas"]["ModelIdsShared"] = {"type": "string", "enum": [model]}
    return spec


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def main() -> int:
    """Run one suite, one line a result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=["llm-comply", "compatcanary", "schemathesis"])
    parser.add_argument("folder", type=Path, help="where its program is")
    parser.add_argument("--examples", type=int, default=200)
    options = parser.parse_args()
    suites: dict[str, Callable[[], Iterator[Result]]] = {
        "llm-comply": lambda: llm_comply(options.folder),
        "compatcanary": lambda: compatcanary(options.folder),
        "schemathesis": lambda: schemathesis(options.folder, options.examples),
    }
    for result in suites[options.suite]():
        print(*result, sep="\t", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
