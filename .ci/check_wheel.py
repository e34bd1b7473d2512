"""Installs a wheel in an empty environment, and has it serve in an empty folder within ten seconds.

    python .ci/check_wheel.py dist/penstock-*.whl [EXTRAS]

Without EXTRAS neither litellm nor torch may have come with it.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from pathlib import Path

LIMIT = 10.0
QUESTION = {"model": "echo", "messages": [{"role": "user", "content": "Hello"}]}
ROOT = Path(__file__).resolve().parent.parent


def main(wheel: str, extras: str = "") -> None:
    """Install, serve, ask, and print the time until the first answer."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder, "empty"), with_pip=True)
        bin = Path(folder, "empty", "bin")
        install = [bin / "pip", "install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
        subprocess.run([*install, f"{Path(wheel).resolve()}{extras}"], check=True)  # noqa: S603
        present = subprocess.run([bin / "pip", "freeze"], check=True, capture_output=True, text=True)  # noqa: S603
        names = {line.partition("==")[0].lower() for line in present.stdout.splitlines()}
        if not extras and names & {"litellm", "torch"}:
            raise SystemExit("the core must need neither litellm nor torch")
        work = Path(folder, "work")
        work.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = time.monotonic()
        serve = [bin / "penstock", "serve", "--port", str(port)]
        server = subprocess.Popen(serve, cwd=work, env=environment)  # noqa: S603
        try:
            answer = first_answer(port, started)
        finally:
            server.terminate()
            server.wait()
        seconds = time.monotonic() - started
        python = ".".join(map(str, sys.version_info[:2]))
        print(f"Python {python}: {len(names)} packages; answered: {answer!r}, within {seconds:.1f} s with its stop")


def first_answer(port: int, started: float) -> str:
    """Return the text of the first answer. Raise `SystemExit` if it comes too late."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(QUESTION).encode(),
        {"content-type": "application/json"},
    )
    while time.monotonic() - started < LIMIT:
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:  # noqa: S310
                return str(json.load(answer)["choices"][0]["message"]["content"]).splitlines()[0]
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"no answer within {LIMIT:.0f} seconds")


if __name__ == "__main__":
    main(*sys.argv[1:])
