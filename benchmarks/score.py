"""Start the proxy with `eval.yaml` and let a black-box scorer of forwarded requests judge it.

The scorer is a folder with `score.py`; it starts its own recording upstream. The report goes to `--out`.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
MODELS = "eval-4k=4096,eval-8k=8192,eval-32k=32768"
HANDLE = r'recall\("([0-9a-z]+)"\)'
MODEL_FOR = "tools=eval-tools,traj=eval-agent,clash=eval-clash,poison=eval-poison,system=eval-system,pass=eval-8k"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(port: int, proxy: subprocess.Popen[bytes], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if proxy.poll() is not None:
            raise SystemExit(f"the proxy ended with {proxy.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1)
        except OSError:  # not there yet, or slow while its model loads
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"the proxy was not ready after {seconds:g} s")


@contextmanager
def running(config: Path, upstream: int, facts: Path) -> Iterator[int]:
    """Run the proxy in front of an upstream's port; the value is the proxy's own port."""
    port = free_port()
    environment = {
        **os.environ,
        "UPSTREAM": f"http://127.0.0.1:{upstream}/v1",
        "PORT": str(port),
        "FACTS": str(facts.resolve()) if facts.exists() else "",  # only data on poisoning has them
    }
    proxy = subprocess.Popen([sys.executable, "-m", "proxy", "serve", "--config", str(config)], env=environment)
    try:
        wait_until_ready(port, proxy)
        yield port
    finally:
        proxy.terminate()
        proxy.wait(10)


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
    upstream = free_port()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    config = options.out.with_suffix(".yaml")
    chosen = f"\nembedding: {options.embedding}\n" if options.embedding else ""
    config.write_text(options.config.read_text(encoding="utf-8") + chosen, encoding="utf-8")
    with running(config, upstream, options.data / "poison" / "facts.jsonl") as port:
        scorer = [sys.executable, str(options.scorer / "score.py"), "--data", str(options.data)]
        scorer += ["--base-url", f"http://127.0.0.1:{port}/v1", "--upstream-port", str(upstream)]
        scorer += ["--models", MODELS, "--limits-models", "eval-limits=8192"]
        scorer += ["--metrics", options.metrics] if options.metrics else []
        scorer += ["--model-for", options.model_for, "--out", str(options.out)]
        # what left the context, and how to get it back
        scorer += ["--ref-regex", HANDLE, "--retrieve-url", f"http://127.0.0.1:{port}/v1/retrieve/{{id}}"]
        scorer += options.more
        return subprocess.run(scorer, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
