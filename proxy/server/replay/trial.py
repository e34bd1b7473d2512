"""A proxy in a process of its own, and `penstock try`: a session of the operator's own with empty chains.

It says what the session would have cost with the configured chains. Only guards run meanwhile: they keep secrets here.
"""

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from proxy.chat.errors import PenstockError
from proxy.config.document import edited
from proxy.config.load import Config, load
from proxy.policy import Guard
from proxy.server.replay.player import check_chain
from proxy.server.replay.reading import read
from proxy.server.replay.report import build_report, render_text
from proxy.server.replay.run import replay

_LISTENING = re.compile(r"listening on (\S+)/v1")


@contextmanager
def serving(config: Config, edit: Callable[[dict[str, Any]], None], *options: str, port: int = 0) -> Iterator[str]:
    """Serve the edited configuration on loopback, with these options of `penstock serve`; yield the base URL."""
    with (
        # beside the configuration, as paths in it are relative to its folder
        tempfile.NamedTemporaryFile("w", dir=config.path.parent, prefix=".serving-", suffix=".yaml") as file,
        tempfile.TemporaryFile("w+") as log,
    ):
        file.write(edited(config.text, edit))
        file.flush()
        serve = [sys.executable, "-m", "proxy", "serve", "--config", file.name, "--host", "127.0.0.1"]
        serve += ["--port", str(port), *options]
        # of a session of its own, so that Ctrl-C ends the work here before it ends the server
        with subprocess.Popen(  # noqa: S603
            serve, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        ) as server:
            try:
                address = next(filter(None, map(_LISTENING.search, server.stdout or ())), None)
                if address is None:
                    raise PenstockError("the proxy does not start; its log is above")
                yield address[1]
            finally:
                server.terminate()
                if server.wait():
                    log.seek(0)
                    print(log.read(), file=sys.stderr)


def try_session(options: argparse.Namespace) -> int:
    """Record a session as the command line says, and print what it costs. Return the exit code."""
    config = load(options.config)
    check_chain(config.settings, options.chain)
    port = config.settings.server.port if options.port is None else options.port
    with tempfile.TemporaryDirectory(prefix="penstock-try-") as folder:
        path = options.save or Path(folder, "session.jsonl")
        with serving(config, partial(empty_chains, config), "--save", str(path.absolute()), port=port) as base:
            _wait_for_session(base, options.command)
        if not path.exists() or not path.stat().st_size:
            raise PenstockError(f"nothing was recorded; send requests to {base}/v1 and try again")
        conversations = read(path)
    print(render_text(build_report(asyncio.run(replay(config.settings, conversations, chain=options.chain)))))
    if options.save:
        print(f"more: penstock replay {options.save} --html report.html")
    return 0


def empty_chains(config: Config, data: dict[str, Any]) -> None:
    """Remove all steps but guards from the chains in a configuration's data."""
    listed = data.get("chains") or {}
    for name, steps in listed.items():
        policies = [policy for _, policy in config.settings.chains[name]]
        listed[name] = [step for step, each in zip(steps or (), policies, strict=True) if isinstance(each, Guard)]


def _wait_for_session(base: str, command: Sequence[str]) -> None:
    """Run the command with this proxy as its server, or wait for Ctrl-C."""
    with suppress(KeyboardInterrupt):
        if command:
            names = {"OPENAI_BASE_URL": f"{base}/v1", "ANTHROPIC_BASE_URL": base}
            subprocess.run(command, env={**os.environ, **names}, check=False)  # noqa: S603
            return
        print(f"penstock: work as usual against {base}/v1, and press Ctrl-C when you are done", flush=True)
        while True:
            signal.pause()
