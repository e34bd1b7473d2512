"""Compare what the proxy says that trajectories cost with what a black-box scorer of forwarded requests counts.

For each source of the data the proxy is started anew, the scorer replays the trajectories through it, and both costs
are read: the scorer's `cost_vs_unchanged`, and the ratio of the two series of `penstock_prompt_cost_usd_total`.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from benchmarks.score import HERE, free_port, running

_SERIES = re.compile(r'^penstock_prompt_cost_usd_total\{.*prompt="(sent|unchanged)"\} (\S+)$', re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scorer", type=Path, required=True, help="folder with score.py")
    parser.add_argument("--data", type=Path, required=True, help="folder with the data")
    parser.add_argument("--config", type=Path, default=HERE / "eval.yaml")
    parser.add_argument("--model", default="eval-agent", help="the model to ask for; it needs prices and cache rules")
    parser.add_argument("--within", type=float, default=0.02, help="the most by which they may differ")
    parser.add_argument("more", nargs="*", help="behind --: further arguments of score.py")
    options = parser.parse_args()
    worst = 0.0
    print(f"{'source':<16} {'scorer':>7} {'proxy':>7} {'differ':>7}")
    for file in sorted((options.data / "traj").glob("*.jsonl")):
        theirs, ours = costs(options, file.stem)
        worst = max(worst, abs(ours / theirs - 1))
        print(f"{file.stem:<16} {theirs:7.4f} {ours:7.4f} {ours / theirs - 1:+7.2%}", flush=True)
    return 0 if worst <= options.within else 1


def costs(options: argparse.Namespace, source: str) -> tuple[float, float]:
    """What the trajectories of a source cost against the unchanged ones: as the scorer says, and as the proxy does."""
    upstream = free_port()
    with tempfile.NamedTemporaryFile(suffix=".json") as out, running(options.config, upstream, Path("none")) as port:
        scorer = [sys.executable, str(options.scorer / "score.py"), "--data", str(options.data), "--metrics", "traj"]
        scorer += ["--base-url", f"http://127.0.0.1:{port}/v1", "--upstream-port", str(upstream), "--out", out.name]
        scorer += ["--model-for", f"traj={options.model}", "--sources", source, *options.more]
        subprocess.run(scorer, check=True, stdout=subprocess.DEVNULL)
        report = json.loads(Path(out.name).read_text())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            usd = {prompt: float(value) for prompt, value in _SERIES.findall(answer.read().decode())}
    return report["traj"][source]["cost_vs_unchanged"], usd["sent"] / usd["unchanged"]


if __name__ == "__main__":
    sys.exit(main())
