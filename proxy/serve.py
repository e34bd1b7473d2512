"""Running the server: uvicorn on uvloop and httptools, one process or several."""

import os
import signal
import socket
import sys
import tempfile

import uvicorn
from uvicorn.supervisors import Multiprocess

from proxy.config import Config
from proxy.settings import Server


def serve(config: Config, *, host: str | None = None, port: int | None = None, workers: int = 1) -> int:
    """Serve until a stop signal. Returns the exit code; raises `OSError` where the address cannot be had."""
    from proxy.app import ADMIN_PORT_VARIABLE, CONFIG_VARIABLE
    from proxy.peers import WORKERS_VARIABLE

    # until the app hears it: what it would reload is about to be loaded
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = config.settings.server
    # links stay links: a ConfigMap's file is reached by one that is turned to another folder with each change
    os.environ[CONFIG_VARIABLE] = str(config.path.absolute())
    # from here on connections are taken; they wait until the app is built
    listeners = [_listen(host or server.host, server.port if port is None else port)]
    print(f"penstock: listening on {_address(listeners[0])}/v1 ({workers} worker{'s' * (workers > 1)})", flush=True)
    for inherited in (ADMIN_PORT_VARIABLE, WORKERS_VARIABLE):
        os.environ.pop(inherited, None)
    if server.admin_port is not None:
        listeners.append(_listen(server.admin_host or host or server.host, server.admin_port))
        os.environ[ADMIN_PORT_VARIABLE] = str(listeners[1].getsockname()[1])
        print(f"penstock: for operators on {_address(listeners[1])}/ui", flush=True)
    # uvicorn raises the signal again once it has drained; a stop that was asked for is no failure
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="penstock-metrics-") as shared:
        if workers > 1:
            # counters of all processes are summed up from files; must be set before the metrics library is loaded
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = os.environ[WORKERS_VARIABLE] = shared
        return _run(uvicorn_config(server, workers), listeners)


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


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _run(config: uvicorn.Config, listeners: list[socket.socket]) -> int:
    if config.workers > 1:
        _Workers(config, sockets=listeners).run()
        return 0
    server = uvicorn.Server(config)
    server.run(sockets=listeners)
    return 0 if server.started else 1


class _Workers(Multiprocess):
    def terminate_all(self) -> None:
        """Stop the workers; a listener left open here would take connections that nobody answers any more."""
        for listener in self.sockets:
            listener.close()
        super().terminate_all()

    def handle_hup(self) -> None:
        """Have the workers reload; by itself uvicorn would replace each, and wait for its last stream."""
        for worker in self.processes:
            # one that still starts would die of the signal, and reads the file as it is now
            if worker.pid is not None and worker.is_ready(timeout=1):
                os.kill(worker.pid, signal.SIGHUP)
