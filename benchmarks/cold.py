"""The first request of a long conversation that no process knows, in windows that it does not fit.

    python -m benchmarks.cold --conversations 20 --tokens 190000

A real proxy with the default chain on the first core. Each request is a new agent's conversation, one after another,
into windows of 8,000, 32,000 and 128,000 tokens. A client beside them asks for `/healthz` fifty times a second. It
prints CPU and latency of a request and the latency of `/healthz`, in ms, and the statuses of the answers.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.served import CHAINS, cpu, latency, served
from benchmarks.turns import Writer
from proxy.models.tokens import TokenService
from tests.e2e.servers import Received, Upstream, plainly, until_ready, upstream

WINDOWS = (8_000, 32_000, 128_000)
CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models:
{models}
{chains}
state: {{kind: memory}}
embedding: {{kind: {embedding}}}
telemetry: {{log_level: error}}
server: {{warm: true}}
"""
MODEL = '  - {{match: "window-{0}", upstream: main, window: {0}, tokenizer: o200k_base}}'


def conversation(writer: Writer, count: Callable[[str], int], tokens: int) -> dict[str, Any]:
    """Return an agent's conversation of about so many tokens."""
    body = writer.agent(20, 6000)
    sample = count(json.dumps(body["messages"]))
    for _ in range(20 * max(0, tokens - sample) // sample):
        body["messages"] += writer.step(6000)
    return {**body, "messages": [*body["messages"], {"role": "user", "content": writer.text(210)}]}


async def watch(http: aiohttp.ClientSession, base: str, seconds: list[float]) -> None:
    while True:
        begun = perf_counter()
        async with http.get(f"{base}/healthz") as answer:
            await answer.read()
        seconds.append(perf_counter() - begun)
        await asyncio.sleep(0.02)


async def measure(base: str, pid: int, http: aiohttp.ClientSession, bodies: list[dict[str, Any]], window: int) -> None:
    spent, waited, health = [], [], list[float]()
    statuses: Counter[int] = Counter()
    watching = asyncio.create_task(watch(http, base, health))
    for body in bodies:
        data = json.dumps({**body, "model": f"window-{window}"}).encode()
        before, begun = cpu(pid), perf_counter()
        async with http.post(f"{base}/v1/chat/completions", data=data, headers={"authorization": "Bearer none"}) as got:
            await got.read()
            statuses[got.status] += 1
        waited.append(perf_counter() - begun)
        spent.append(1000 * (cpu(pid) - before))
        await asyncio.sleep(0.5)
    watching.cancel()
    cost = f"CPU p50 {statistics.median(spent):.0f} most {max(spent):.0f} ms"
    print(f"  {window:7}  {cost}; latency {latency(waited)}; /healthz {latency(health)}; {dict(statuses)}", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=190_000)
    parser.add_argument("--embedding", default="none")
    options = parser.parse_args()
    writer, counting = Writer(2), TokenService()
    await counting.warm(["o200k_base"])
    count = counting.encoder("o200k_base")

    async def answer(behind: Upstream, received: Received, stream: asyncio.StreamWriter) -> None:
        behind.received.clear()
        await plainly(behind, received, stream)

    async with upstream() as behind:
        behind.respond = answer
        models = "\n".join(MODEL.format(window) for window in WINDOWS)
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "config.yaml"
            values = {"url": behind.url, "models": models, "chains": CHAINS.rstrip(), "embedding": options.embedding}
            config.write_text(CONFIG.format(**values))
            async with served(config, pinned=True) as (process, base), aiohttp.ClientSession() as http:
                await until_ready(base)
                print(f"a new conversation of {options.tokens} tokens, by window")
                for window in WINDOWS:
                    bodies = [conversation(writer, count, options.tokens) for _ in range(options.conversations)]
                    await measure(base, process.pid, http, bodies, window)
    counting.close()


if __name__ == "__main__":
    asyncio.run(main())
