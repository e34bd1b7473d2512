"""Soak test: hours of mixed load at half of the proxy's capacity, to find leaks and faults.

    python -m benchmarks.soak --minutes 60                      # as it is shipped: a directory, vectors in process
    python -m benchmarks.soak --minutes 15 --workers 2 --state redis://127.0.0.1:6379/0 --memory 8

Small chats, agents of 200 KB with 45 tools, streams, clients that disconnect, `/v1/compress`, recalls, embeddings,
invalid requests and limited ones, through the shipped default chain and with keys of Penstock. Behind it an upstream
that fails, stalls and breaks off now and then. The configuration changes every half minute. The capacity is measured
first. Large requests alone and a warm-up then fill the bounded caches. Between the phases the load pauses, and open
tasks, connections and files are counted. Exit code 1 if memory grew by more than 5 % after the warm-up, if any of these
leaked, or if a request failed unexpectedly.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.served import CHAINS, served
from benchmarks.soak_load import KEYS, Clients, Upstream
from proxy.config.keys_file import hash_of

ADMIN = "soak-admin"
CONFIG = """
# version {n}
upstreams:
  main: {{kind: openai, base_url: "{url}", api_key: sk-soak, idle_timeout: {idle}, breaker: {{failures: 20}}}}
models: [{{match: "*", upstream: main, window: 48000, tokenizer: o200k_base}}]
auth:
  kind: keys
  keys:
    - {{name: ann, hash: {ann}, tokens_per_minute: 100000000}}
    - {{name: bob, hash: {bob}, budget_per_day: 1000000}}
    - {{name: tight, hash: {tight}, requests_per_minute: 20}}
server: {{watch: false, admin_key: {admin}, keep_alive: 5, remember_mib: {memory}}}
state: {state}
embedding: {embedding}
telemetry: {{log_level: warning}}
"""
_MOST_AT_ONCE = 200


class Processes:
    """A running proxy: its parent and its workers."""

    def __init__(self, parent: int, count: int) -> None:
        self.parent, self._count = parent, count

    def serving(self) -> list[int]:
        """Return the ids of the processes that serve."""
        if self._count == 1:
            return [self.parent]
        children = Path(f"/proc/{self.parent}/task/{self.parent}/children").read_text().split()
        return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]

    def memory(self) -> float:
        """Return the resident memory of all processes in MB."""
        return sum(_status(pid, "VmRSS") for pid in self.serving()) / 1024

    def threads(self) -> int:
        """Return the number of threads of all processes."""
        return sum(_status(pid, "Threads") for pid in self.serving())

    def open(self) -> dict[str, int]:
        """Return the numbers of open sockets and of other files of all processes."""
        opened: Counter[str] = Counter()
        for pid in self.serving():
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                try:
                    opened["sockets" if os.readlink(entry).startswith("socket:") else "files"] += 1
                except FileNotFoundError:
                    continue  # it was closed meanwhile
        return dict(opened)


def _status(pid: int, name: str) -> int:
    line = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line[1]) if line else 0


class Soak:
    """One run of the soak test."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, clients: Clients, running: Processes, url: str
    ) -> None:
        self.options, self.folder, self.clients, self.running, self.url = options, folder, clients, running, url
        self.samples: list[tuple[float, float, dict[str, int], int]] = []
        self.version = 0
        self.late = 0
        self.started = perf_counter()

    def configure(self, *, wrong: bool = False) -> None:
        """Write a new version of the configuration. Each changes the upstream; Penstock refuses a `wrong` one."""
        self.version += 1
        write_config(self.folder, self.url, self.options, self.version, wrong=wrong)

    async def closed(self, seconds: float, connections: int, *, only_large: bool = False) -> float:
        """Send requests as fast as the connections allow, and return the rate per second."""
        until, done = perf_counter() + seconds, 0

        async def go() -> None:
            nonlocal done
            while perf_counter() < until:
                await self.clients.one(only_large=only_large)
                done += 1

        await asyncio.gather(*(go() for _ in range(connections)))
        return done / seconds

    async def load(self, seconds: float, rate: float) -> None:
        """Send requests at a fixed rate, independent of their answers, and sample and reload meanwhile."""
        begun, under_way, sent = perf_counter(), set[asyncio.Task[None]](), 0
        beside = asyncio.ensure_future(self._beside())
        while (elapsed := perf_counter() - begun) < seconds:
            while sent < elapsed * rate:
                sent += 1
                if len(under_way) >= _MOST_AT_ONCE:
                    self.late += 1
                    continue
                task = asyncio.ensure_future(self.clients.one())
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.sleep(0.005)
        await asyncio.gather(*under_way)
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)

    async def _beside(self) -> None:
        tick = 0
        while True:
            await asyncio.sleep(5)
            tick += 1
            self.sample()
            if tick % 6 == 0:
                self.configure(wrong=tick % 30 == 0)
                os.kill(self.running.parent, signal.SIGHUP)

    def sample(self) -> None:
        """Record memory, open files and threads."""
        now, running = perf_counter() - self.started, self.running
        self.samples.append((now, running.memory(), running.open(), running.threads()))
        if len(self.samples) % 12 == 0:
            print(f"{now:7.0f} s {self.samples[-1][1]:7.1f} MB {self.samples[-1][2]}", flush=True)

    async def rest(self, base: str) -> dict[str, int]:
        """Wait until idle connections are closed, and return the numbers of tasks, files and threads."""
        await asyncio.sleep(self.options.rest)
        headers = {"authorization": f"Bearer {ADMIN}", "connection": "close"}
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{base}/admin/config", headers=headers) as response,
        ):
            answer: dict[str, Any] = await response.json()
        each = [answer, *answer["workers"]]
        sums = {name: sum(one[name] for one in each) for name in ("tasks", "generations")}
        return {**sums, **self.running.open(), "threads": self.running.threads(), "MB": round(self.running.memory())}


def write_config(folder: Path, url: str, options: argparse.Namespace, n: int, *, wrong: bool = False) -> Path:
    """Write version `n` of the configuration atomically, and return its path."""
    # full after some minutes, so that eviction is tested too
    own = f'{{directory: "{folder}/state", max_mib: 96}}'
    state = f'{{kind: redis, url: "{options.state}"}}' if options.state else own
    keys = {name: hash_of(key) for name, key in KEYS.items()}
    bound = "" if options.embedding == "none" else f", memory_mib: {options.memory}"
    values = {"state": state, "embedding": f"{{kind: {options.embedding}{bound}}}", "memory": options.memory}
    text = CONFIG.format(n=n, url=url, idle=2 + n % 2, admin=ADMIN, **values, **keys)
    new = folder / "new"
    new.write_text(text + CHAINS + ("wrong: 1\n" if wrong else ""))
    return new.rename(folder / "config.yaml")


async def measure(options: argparse.Namespace, folder: Path) -> int:
    """Run all phases, and return the exit code."""
    upstream = Upstream(options.seed)
    runner = web.AppRunner(upstream.app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    config, workers = write_config(folder, url, options, 0), str(options.workers)
    # shorter than the proxy's keep-alive, so that the proxy closes no connection while a request is on its way
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3)
    with (folder / "log").open("wb") as log:
        async with (
            served(config, "--workers", workers, stderr=log, TMPDIR=str(folder)) as (process, base),
            aiohttp.ClientSession(connector=connector) as http,
        ):
            clients = Clients(base, http, upstream, options.seed, ADMIN)
            soak = Soak(options, folder, clients, Processes(process.pid, options.workers), url)
            clients.may_be_late = True
            most = await soak.closed(5, 4) and await soak.closed(options.calibrate, 16)
            rate = options.rate or most / 2
            print(f"at most {most:.0f} requests a second; load {rate:.0f}", flush=True)
            await soak.closed(options.fill, 6, only_large=True)
            clients.may_be_late = False
            await soak.load(options.warm_up * 60, rate)
            before, warm = await soak.rest(base), len(soak.samples)
            print(f"not expected until here: {dict(clients.unexpected)}", flush=True)
            clients.begin()
            await soak.load(options.minutes * 60, rate)
            after = await soak.rest(base)
    await runner.cleanup()
    return report(soak, upstream, warm, before, after, process.returncode)


def report(
    soak: Soak, upstream: Upstream, warm: int, before: dict[str, int], after: dict[str, int], code: int | None
) -> int:
    """Print the figures, and return the exit code."""
    clients, measured = soak.clients, soak.samples[warm:]
    memory = [sample[1] for sample in measured]
    part = max(1, len(memory) // 5)
    first, last = statistics.median(memory[:part]), statistics.median(memory[-part:])
    grown = last / first - 1
    # a pool may keep a few connections more than before
    leaked = [name for name in ("tasks", "generations", "sockets", "files") if after.get(name, 0) > before[name] + 4]
    log = (soak.folder / "log").read_text().splitlines()
    events = Counter(json.loads(line).get("event", "?") if line.startswith("{") else line[:80] for line in log)
    figures = {
        "requests": sum(sum(each.values()) for each in clients.outcomes.values()),
        "by_kind": {name: dict(each) for name, each in sorted(clients.outcomes.items())},
        "faults_of_the_upstream": dict(upstream.faults),
        "configurations": soak.version,
        "not_sent_in_time": soak.late,
        "MB": {
            "first": round(soak.samples[0][1]),
            "warm": round(first),
            "end": round(last),
            "most": round(max(memory)),
        },
        "grown": f"{grown:+.1%}",
        "rested_before": before,
        "rested_after": after,
        "most_open": {name: max(sample[2].get(name, 0) for sample in measured) for name in ("sockets", "files")},
        "log": dict(events),
        "leaked": leaked,
        "unexpected": dict(clients.unexpected),
        "exit_code": code,
    }
    print(json.dumps(figures, indent=2))
    fine = grown <= 0.05 and not leaked and not clients.unexpected and "unexpected error" not in events and code == 0
    print("fine" if fine else "NOT FINE")
    return 0 if fine else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60, help="of load after the warm-up")
    parser.add_argument(
        "--warm-up", type=float, default=20, help="minutes of load before it: caches and arenas reach their size"
    )
    parser.add_argument("--fill", type=float, default=180, help="seconds of large requests alone before that")
    parser.add_argument("--rate", type=float, default=0, help="requests per second; by default half of the capacity")
    parser.add_argument("--calibrate", type=float, default=15, help="seconds for measuring the capacity")
    parser.add_argument("--rest", type=float, default=45, help="seconds without load after each phase; pools keep 30")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--state", default="", help="a Redis server's address; a directory if not given")
    parser.add_argument("--embedding", default="sentence-transformers", choices=["sentence-transformers", "none"])
    parser.add_argument("--memory", type=int, default=64, help="MiB that work and vectors may each take in a process")
    parser.add_argument("--seed", type=int, default=1)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
