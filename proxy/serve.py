"""Running the server: uvicorn on uvloop and httptools, one process or several."""

import os
import signal
import socket
import sys
import tempfile

import uvicorn

from proxy.config import Config
from proxy.settings import Server


def serve(config: Config, *, host: str | None = None, port: int | None = None, workers: int = 1) -> int:
    """Serve until a stop signal. Returns the exit code; raises `OSError` where the address cannot be had."""
    from proxy.app import CONFIG_VARIABLE

    server = config.settings.server
    os.environ[CONFIG_VARIABLE] = str(config.path.resolve())
    # from here on connections are taken; they wait until the app is built
    listener = _listen(host or server.host, server.port if port is None else port)
    address, bound = listener.getsockname()[:2]
    print(f"penstock: listening on http://{address}:{bound}/v1 ({workers} worker{'s' * (workers > 1)})", flush=True)
    # uvicorn raises the signal again once it has drained; a stop that was asked for is no failure
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="penstock-metrics-") as shared:
        if workers > 1:
            # counters of all processes are summed up from files; must be set before the metrics library is loaded
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = shared
        return _run(uvicorn_config(server, workers), listener)


def uvicorn_config(server: Server, workers: int) -> uvicorn.Config:
    """How uvicorn is run. It writes no access log: Penstock has its own, without prompts and queries."""
    return uvicorn.Config(
        "proxy.app:create",
        factory=True,
        workers=workers,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(server.keep_alive),
        timeout_graceful_shutdown=int(server.drain),
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen there: {error.strerror}", f"{host}:{port}") from None
    listener.listen(2048)
    listener.set_inheritable(True)
    return listener


def _run(config: uvicorn.Config, listener: socket.socket) -> int:
    server = uvicorn.Server(config)
    if config.workers > 1:
        from uvicorn.supervisors import Multiprocess

        Multiprocess(config, sockets=[listener]).run()
        return 0
    server.run(sockets=[listener])
    return 0 if server.started else 1
