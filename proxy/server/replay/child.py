"""A proxy in a process of its own, for commands that serve a variant of the operator's configuration."""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from proxy.chat.errors import PenstockError
from proxy.config.document import edited
from proxy.config.load import Config

_PATIENCE = 30.0
"""Seconds within which the proxy has to listen."""


@contextmanager
def serving(
    config: Config, edit: Callable[[dict[str, Any]], None], *options: str, port: int | None = None
) -> Iterator[str]:
    """Serve the edited configuration on loopback, with these options of `penstock serve`; yield the base URL."""
    # a port that another server has is an error at once: that one would get the requests
    with socket.create_server(("127.0.0.1", port or 0)) as free:
        port = int(free.getsockname()[1])
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
        server = subprocess.Popen(serve, stdout=log, stderr=log, start_new_session=True)  # noqa: S603
        try:
            _wait_for_port(server, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            if server.wait():
                log.seek(0)
                print(log.read(), file=sys.stderr)


def _wait_for_port(server: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise PenstockError("the proxy does not start; its log is above")
