"""The files, functions and types of Penstock that one request runs through.

    python -m benchmarks.walk
    python -m benchmarks.walk --list

A small request with a tool goes through the empty chain and through the shipped one, to a server that speaks OpenAI's
API. Two before it are not counted, since they load modules. Code that runs in threads is counted; what does not run in
each of three requests, such as work that runs once in a while, is not.
"""

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.served import CHAINS
from proxy.__main__ import main as penstock

ROOT = str(Path(__file__).parent.parent)
OWN = tuple(os.path.join(ROOT, folder, "") for folder in ("proxy", "policies"))

CONFIG = """\
upstreams: {{server: {{kind: openai, base_url: "http://127.0.0.1:{port}/v1", api_key: none}}}}
{chains}
models:
  - {{match: empty, upstream: server, model: gpt-4o, chain: empty, window: 8192}}
  - {{match: default, upstream: server, model: gpt-4o, window: 8192}}
state: {{directory: "{folder}/state"}}
server: {{host: 127.0.0.1, port: 0}}
telemetry: {{log_level: warning}}
"""
ANSWER = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Seven."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 50, "completion_tokens": 2, "total_tokens": 52},
}
TOOL = {"name": "read_file", "description": "Read a file.", "parameters": {"type": "object", "properties": {}}}
BODY = {
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Which colours has the rainbow?"},
    ],
    "tools": [{"type": "function", "function": TOOL}],
}


class Server(BaseHTTPRequestHandler):
    """A server that gives the same answer to all."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Walk:
    """The functions that run while it is recorded."""

    def __init__(self) -> None:
        self.is_recorded = False
        self.functions: set[tuple[str, str]] = set()
        self.types: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Take note of a function of Penstock that is called."""
        code = frame.f_code
        if event != "call" or not self.is_recorded or not code.co_filename.startswith(OWN):
            return
        self.functions.add((code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname))
        kind = type(frame.f_locals.get("self"))
        if kind.__module__.startswith(("proxy", "policies")):
            self.types.add(f"{kind.__module__}.{kind.__qualname__}")

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what runs within."""
        self.functions, self.types = set(), set()
        self.is_recorded = True
        yield
        self.is_recorded = False


def ask(base: str, model: str) -> None:
    """Send one request."""
    headers = {"content-type": "application/json"}
    body = json.dumps({"model": model, **BODY}).encode()
    request = urllib.request.Request(f"{base}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        answer.read()


def measure(walk: Walk, out: StringIO, listed: bool) -> None:
    """Send the requests, print the walk of each, and stop the proxy."""
    try:
        while (address := re.search(r"http://127\.0\.0\.1:\d+", out.getvalue())) is None:
            threading.Event().wait(0.05)
        for model in ("empty", "default"):
            ask(address[0], model)
            ask(address[0], model)
            walks = []
            for _ in range(3):
                with walk.recorded():
                    ask(address[0], model)
                    threading.Event().wait(0.02)
                walks.append((walk.functions, walk.types))
            functions, types = (set.intersection(*each) for each in zip(*walks, strict=True))
            files = {file for file, _ in functions}
            counts = f"{len(files):4} files {len(functions):4} functions {len(types):4} types"
            print(f"{model:8}{counts}", file=sys.__stdout__)
            if listed:
                print(*sorted(files), *sorted(types), sep="\n", file=sys.__stdout__)
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Serve, and measure from a thread."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name the files and types")
    options = parser.parse_args()
    walk, out = Walk(), StringIO()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(
            CONFIG.format(chains=CHAINS.rstrip() + "\n  empty: []\n", folder=folder, port=server.server_port)
        )
        threading.setprofile(walk)
        sys.setprofile(walk)
        client = threading.Thread(target=measure, args=(walk, out, options.list))
        client.start()
        with redirect_stdout(out):
            sys.argv = ["penstock", "serve", "--config", str(path)]
            penstock()
        client.join()


if __name__ == "__main__":
    main()
