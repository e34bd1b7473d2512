"""Latency of small requests beside tenants that send large new texts.

    python -m benchmarks.neighbours --mb 1 --seconds 15

A real proxy with the shipped chain, and four clients with keys of their own: two send a new text of `--mb` megabytes
with each request, one a new text of 20 KB, one a growing chat; a fifth asks for `/healthz`. It prints latencies in ms
and the statuses of the answers.
"""

import argparse
import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.served import ROOT, latency, served
from benchmarks.turns import Writer
from tests.e2e.servers import until_ready

Messages = list[dict[str, str]]


class Clients:
    """The clients of one proxy, which send requests until a given time."""

    def __init__(self, http: aiohttp.ClientSession, base: str, until: float) -> None:
        self._http, self._base, self._until = http, base, until
        self.seconds: dict[str, list[float]] = {}
        self.answers: Counter[str] = Counter()

    async def asks(self, kind: str, seed: int, size: int, pause: float) -> None:
        """Ask about a new text of `size` characters again and again; with size 0 continue one chat."""
        writer, chat = Writer(seed), Messages()
        while perf_counter() < self._until:
            if size:
                chat = [{"role": "user", "content": writer.text(size)}, {"role": "assistant", "content": "Read."}]
            elif len(chat) > 40:
                chat = []
            chat.append({"role": "user", "content": f"What does it say of {writer.text(210)}?"})
            await self._ask(kind, f"{kind}-{seed}", chat)
            chat.append({"role": "assistant", "content": writer.text(420)})
            await asyncio.sleep(pause)

    async def _ask(self, kind: str, key: str, chat: Messages) -> None:
        body: dict[str, Any] = {"model": "echo", "messages": chat}
        begun = perf_counter()
        async with self._http.post(
            f"{self._base}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
        ) as response:
            await response.read()
        self._note(kind, response.status, perf_counter() - begun)

    async def looks(self) -> None:
        """Ask for `/healthz` again and again."""
        while perf_counter() < self._until:
            begun = perf_counter()
            async with self._http.get(f"{self._base}/healthz") as response:
                await response.read()
            self._note("health", response.status, perf_counter() - begun)
            await asyncio.sleep(0.02)

    def _note(self, kind: str, status: int, seconds: float) -> None:
        self.seconds.setdefault(kind, []).append(seconds)
        self.answers[f"{kind} {status}"] += 1


async def measure(options: argparse.Namespace, folder: Path) -> None:
    shipped = (ROOT / "config.yaml").read_text(encoding="utf-8")
    config = folder / "config.yaml"
    own = f'state: {{directory: "{folder}/state"}}\ntelemetry: {{log_level: error}}\n'
    config.write_text(f"{shipped.replace('window: 8192', 'window: 32768')}\n{own}")
    async with (
        served(config, PENSTOCK_WARM="true", OMP_NUM_THREADS="1") as (_, base),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as http,
    ):
        await until_ready(base)
        clients = Clients(http, base, perf_counter() + options.seconds)
        size = int(options.mb * 1e6)
        large = [clients.asks("large", seed, size, 0.0) for seed in (1, 2)]
        await asyncio.gather(
            *large, clients.asks("20 KB", 3, 20_000, 0.05), clients.asks("chat", 4, 0, 0.05), clients.looks()
        )
    for kind, seconds in clients.seconds.items():
        print(f"{kind:7} {len(seconds):5} requests   {latency(seconds)}")
    print(dict(sorted(clients.answers.items())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=15.0)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
