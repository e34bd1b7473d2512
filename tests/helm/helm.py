"""Real Helm, in a process of its own: its library is Go's, whose threads and signals do not belong into the tests'.

Run as a program, it reads one job a line from standard input and writes one outcome a line.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.helm.kube_api import kube_api

ROOT = Path(__file__).parent.parent.parent
CHART = ROOT / "helm/penstock"
RELEASE, NAMESPACE = "rel", "ns1"


@dataclass(frozen=True)
class Rendered:
    """What Helm made of some values: manifests and notes, or an error."""

    manifests: list[dict[str, Any]]
    notes: str
    error: str

    def one(self, kind: str, suffix: str = "") -> dict[str, Any]:
        """The manifest of this kind whose name ends so."""
        (found,) = self.all(kind, suffix)
        return found

    def all(self, kind: str, suffix: str = "") -> list[dict[str, Any]]:
        """The manifests of this kind whose names end so."""
        return [m for m in self.manifests if m["kind"] == kind and m["metadata"]["name"].endswith(suffix)]

    @property
    def config(self) -> str:
        """The text of config.yaml."""
        return str(self.one("ConfigMap", "-config")["data"]["config.yaml"])


class Helm:
    """Helm, ready to render the chart."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._rendered: dict[str, Rendered] = {}

    def render(self, values: dict[str, Any] | None = None, *, minor: str = "36") -> Rendered:
        """Install the chart with these values into nothing, and see what would be there."""
        job = {"action": "render", "values": values or {}, "minor": minor}
        if (known := self._rendered.get(json.dumps(job))) is not None:
            return known
        outcome = self._ask(job)
        text = outcome.get("manifest", "") + "".join("\n---\n" + hook for hook in outcome.get("hooks", ()))
        manifests = [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
        made = Rendered(manifests, outcome.get("notes", ""), outcome.get("error", ""))
        return self._rendered.setdefault(json.dumps(job), made)

    def lint(self) -> dict[str, Any]:
        """What `helm lint` says of the chart."""
        return self._ask({"action": "lint"})

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "Helm's process ended"
        outcome: dict[str, Any] = json.loads(line)
        return outcome


@contextmanager
def helm(home: Path) -> Iterator[Helm]:
    """Start Helm; `home` takes what it writes."""
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.helm.helm"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    with process:
        yield Helm(process)
        assert process.stdin is not None
        process.stdin.close()


async def _main() -> None:
    # Go's own prints must not stand between the answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    async with AsyncExitStack() as stack:
        apis: dict[str, Path] = {}
        while line := await asyncio.to_thread(sys.stdin.readline):
            job = json.loads(line)
            minor = job.get("minor", "36")
            if minor not in apis:
                apis[minor] = await stack.enter_async_context(kube_api(minor, Path.home()))
            try:
                outcome = await _run(job, apis[minor])
            except Exception as error:
                outcome = {"error": str(error)}
            answers.write(json.dumps(outcome) + "\n")
            answers.flush()


async def _run(job: dict[str, Any], kubeconfig: Path) -> dict[str, Any]:
    import helm_sdkpy

    configuration = helm_sdkpy.Configuration(namespace=NAMESPACE, kubeconfig=str(kubeconfig))
    if job["action"] == "lint":
        found: dict[str, Any] = await helm_sdkpy.Lint(configuration).run(str(CHART))
        return found
    made = await helm_sdkpy.Install(configuration).run(RELEASE, str(CHART), values=job["values"], wait=False)
    return {
        "manifest": made["manifest"],
        "hooks": [hook["manifest"] for hook in made.get("hooks", ())],
        "notes": made.get("info", {}).get("notes", ""),
    }


if __name__ == "__main__":
    asyncio.run(_main())
