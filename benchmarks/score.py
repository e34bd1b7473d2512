"""Start the proxy with `eval.yaml`, and run a black-box scorer of forwarded requests against it.

The scorer is a folder with `score.py`; it starts its own recording upstream. The report goes to `--out`.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.served import served
from tests.e2e.servers import until_ready
from tests.loopback import free_port

HERE = Path(__file__).parent
MODELS = "eval-4k=4096,eval-8k=8192,eval-32k=32768"
HANDLE = r'recall\("([0-9a-z]+)"\)'
MODEL_FOR = "tools=eval-tools,traj=eval-agent,clash=eval-clash,poison=eval-poison,system=eval-system,pass=eval-8k"


async def scored(config: Path, scorer: Path, data: Path, arguments: Sequence[str], facts: str = "") -> int:
    """Run a proxy with `config`, and the scorer with these arguments against it. Return the scorer's exit code."""
    upstream = free_port()
    async with served(config, UPSTREAM=f"http://127.0.0.1:{upstream}/v1", FACTS=facts) as (_, base):
        await until_ready(base)
        command = [sys.executable, str(scorer / "score.py"), "--data", str(data), "--base-url", f"{base}/v1"]
        # handles of archived content, and the endpoint that returns it
        command += ["--ref-regex", HANDLE, "--retrieve-url", f"{base}/v1/retrieve/{{id}}"]
        command += ["--upstream-port", str(upstream), *arguments]
        return (await asyncio.to_thread(subprocess.run, command, check=False)).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scorer", type=Path, required=True, help="folder with score.py")
    parser.add_argument("--data", type=Path, required=True, help="folder with the data")
    parser.add_argument("--metrics", help="some of the scorer's metrics, with commas between; all, if not given")
    parser.add_argument("--out", type=Path, default=Path("out/score.json"))
    parser.add_argument("--config", type=Path, default=HERE / "eval.yaml")
    parser.add_argument("--embedding", help="another section `embedding`, such as '{kind: static}'")
    parser.add_argument("--model-for", default=MODEL_FOR, help="metric=model,... : another chain for a metric")
    parser.add_argument("more", nargs="*", help="behind --: further arguments of score.py")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    config = options.out.with_suffix(".yaml")
    chosen = f"\nembedding: {options.embedding}\n" if options.embedding else ""
    config.write_text(options.config.read_text(encoding="utf-8") + chosen, encoding="utf-8")
    facts = options.data / "poison" / "facts.jsonl"  # only data on poisoning has them
    arguments = ["--models", MODELS, "--limits-models", "eval-limits=8192", "--model-for", options.model_for]
    arguments += ["--metrics", options.metrics] if options.metrics else []
    arguments += ["--out", str(options.out), *options.more]
    facts_path = str(facts.resolve()) if facts.exists() else ""
    return asyncio.run(scored(config, options.scorer, options.data, arguments, facts_path))


if __name__ == "__main__":
    sys.exit(main())
