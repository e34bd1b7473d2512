"""Load on a running proxy while its configuration is replaced: does a request fail, or see two configurations?

    python -m benchmarks.reload --rate 1000 --seconds 30 --reloads 10

Two upstreams answer with their names; each version of the file sends the model to the other one, with another chain.
Every answer must have status 200 and come from the upstream of the version that its header names. Exit code 1 if not.
"""

import argparse
import asyncio
import json
import re
import signal
import statistics
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.served import served

CONFIG = """
# {n}
upstreams: {{a: {{kind: openai, base_url: "http://127.0.0.1:{a}/v1"}}, b: {{kind: openai, base_url: "http://127.0.0.1:{b}/v1"}}}}
models: [{{match: m, upstream: {to}, window: 8192, chain: {chain}}}]
chains: {{empty: [], full: [consolidate_system: {{}}]}}
server: {{watch: false}}
state: {{directory: "{folder}"}}
embedding: {{kind: none}}
telemetry: {{log_level: warning}}
"""
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "how are you? " * 20}]}).encode()
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    % len(BODY)
) + BODY
VERSION = re.compile(rb"x-penstock-config: ([0-9a-f]+)\r\n")
LENGTH = re.compile(rb"content-length: (\d+)\r\n", re.IGNORECASE)


class Upstream(asyncio.Protocol):
    """Answers each request with its name."""

    def __init__(self, name: str) -> None:
        message = {"role": "assistant", "content": name}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        body = json.dumps(answer).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._answer = head % len(body) + body
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(self._received[: end + 2])
            size = end + 4 + (int(found[1]) if found else 0)
            if len(self._received) < size:
                return
            self._received = self._received[size:]
            self._transport.write(self._answer)


class Tally:
    """What clients saw."""

    def __init__(self) -> None:
        self.versions: Counter[bytes] = Counter()
        self.names: dict[bytes, set[bytes]] = {}
        self.seconds: list[float] = []
        self.failures: Counter[str] = Counter()


async def client(port: int, every: float, start: float, until: float, tally: Tally) -> None:
    """One connection that sends a request at each of its times, or as soon as the one before is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    due = start
    while due < until:
        await asyncio.sleep(max(0.0, due - perf_counter()))
        begun = perf_counter()
        try:
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            length, version = LENGTH.search(head), VERSION.search(head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            if not head.startswith(b"HTTP/1.1 200") or version is None:
                tally.failures[head.split(b"\r\n")[0].decode()] += 1
            else:
                tally.versions[version[1]] += 1
                name = json.loads(body)["choices"][0]["message"]["content"].encode()
                tally.names.setdefault(version[1], set()).add(name)
        except (OSError, asyncio.IncompleteReadError) as error:
            tally.failures[type(error).__name__] += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        tally.seconds.append(perf_counter() - begun)
        due = max(due + every, perf_counter() - 1.0)
    writer.close()


async def measure(options: argparse.Namespace, folder: Path) -> int:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(partial(Upstream, name), "127.0.0.1", 0) for name in ("a", "b")]
    ports = {name: server.sockets[0].getsockname()[1] for name, server in zip("ab", servers, strict=True)}
    path = folder / "config.yaml"

    def configure(n: int) -> None:
        to, chain = ("a", "empty") if n % 2 == 0 else ("b", "full")
        made = folder / "new"
        made.write_text(CONFIG.format(n=n, to=to, chain=chain, folder=folder / "state", **ports))
        made.rename(path)

    configure(0)
    tally, warm = Tally(), Tally()
    async with served(path, "--workers", str(options.workers)) as (process, base):
        port, now = int(base.rpartition(":")[2]), perf_counter()
        await asyncio.gather(*(client(port, 0.1, now, now + 4, warm) for _ in range(4)))
        start = perf_counter() + 0.1
        every, until = options.connections / options.rate, start + options.seconds
        begins = (start + every * n / options.connections for n in range(options.connections))
        clients = [asyncio.ensure_future(client(port, every, begin, until, tally)) for begin in begins]
        for n in range(1, options.reloads + 1):
            await asyncio.sleep(options.seconds / (options.reloads + 1))
            configure(n)
            process.send_signal(signal.SIGHUP)
        await asyncio.gather(*clients)
        seconds = perf_counter() - start
    return report(tally, seconds, options, process.returncode)


def report(tally: Tally, seconds: float, options: argparse.Namespace, code: int | None) -> int:
    mixed = [version for version, names in tally.names.items() if len(names) != 1]
    percentiles = statistics.quantiles(tally.seconds, n=1000)
    figures = {
        "requests": len(tally.seconds),
        "per_second": round(len(tally.seconds) / seconds),
        "reloads": options.reloads,
        "versions_seen": len(tally.versions),
        "failed": dict(tally.failures),
        "versions_with_two_upstreams": len(mixed),
        "milliseconds": {f"p{p / 10:g}": round(percentiles[p - 1] * 1000, 1) for p in (500, 990, 999)},
        "slowest_milliseconds": round(max(tally.seconds) * 1000, 1),
        "exit_code": code,
    }
    print(json.dumps(figures, indent=2))
    fine = not tally.failures and not mixed and len(tally.versions) == options.reloads + 1 and code == 0
    return 0 if fine else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=1000, help="requests per second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--reloads", type=int, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
