"""Compare `penstock replay` with a black-box scorer of the requests that a running proxy forwards.

Both play the same trajectories through the same chains, the scorer over HTTP. It prints the cost for each source at
each price. Use the static model: a large one still loads when the first conversations are served, while
a replay waits for it.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.score import HERE, scored
from proxy.config.load import load
from proxy.server.replay.reading import read
from proxy.server.replay.report import build_report
from proxy.server.replay.run import replay
from proxy.server.replay.score import OTHERS

MODELS = ("eval-agent", "eval-window-20-1")
"""The default chain, and `window_history: {keep_turns: 20, stride: 1}`."""
CONFIG = "replay.yaml"


async def scored_by_source(
    options: argparse.Namespace, model: str, read_at: float, write_at: float
) -> Mapping[str, Any]:
    """Return the scorer's figures of each source."""
    out = options.out / f"{model}-{read_at}-{write_at}.json"
    arguments = ["--metrics", "traj", "--models", "eval-32k=32768", "--model-for", f"traj={model}", "--out", str(out)]
    arguments += ["--cache-price", str(read_at), "--cache-write", str(write_at)]
    assert await scored(options.out / CONFIG, options.scorer, options.data, arguments) == 0
    figures: Mapping[str, Any] = json.loads(out.read_text())["traj"]
    return figures


def replayed(options: argparse.Namespace, model: str) -> Mapping[str, Any]:
    """Return the replay's figures of each source."""
    settings = load(options.out / CONFIG, {**os.environ, "UPSTREAM": "http://127.0.0.1:9/v1"}).settings
    files = sorted((options.data / "traj").glob("*.jsonl"))
    conversations = [each for path in files for each in read(path)]
    figures: Mapping[str, Any] = build_report(asyncio.run(replay(settings, conversations, model=model)))["sources"]
    return figures


def compared(options: argparse.Namespace, model: str) -> Iterator[float]:
    """Print both figures, and yield their relative difference, for each cost."""
    ours = replayed(options, model)
    for name, rules in OTHERS.items():
        theirs = asyncio.run(scored_by_source(options, model, rules.read, rules.write))
        for source, each in ours.items():
            wanted, got = theirs[source]["cost_vs_unchanged"], each["cost"][name]
            if wanted is not None and got is not None:
                print(f"{model:18} {name:22} {source:14} {wanted:.4f} {got:.4f} {got / wanted - 1:+.2%}")
                yield abs(got / wanted - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scorer", type=Path, required=True, help="folder with score.py")
    parser.add_argument("--data", type=Path, required=True, help="folder with traj/")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--embedding", default="{kind: static}", help="the section `embedding`")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = f"\nembedding: {options.embedding}\n"
    (options.out / CONFIG).write_text((HERE / "eval.yaml").read_text(encoding="utf-8") + chosen, encoding="utf-8")
    worst = max(off for model in MODELS for off in compared(options, model))
    print(f"at most {worst:.2%} off")
    return 0 if worst <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
