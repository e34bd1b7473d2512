"""CPU of the proxy for a turn, by the size of its conversation, its chain and its turn.

    python -m benchmarks.turns

A real proxy on the first core; on the second a stand-in for the provider and one client. Three tables:

- *new question*: the same conversation again and again, 16 at once, each time with another question at its end; of
  1 KB, of 200 KB (60 messages, 45 tools) and of 1.2 MB. An empty chain, a short one, and the default chain of
  `config.yaml`.
- *growth*: agents' conversations that grow by two messages with each request, around their turns 20, 200 and 2,000.
- *cuts*: a chat of 150 turns in a window of 16,000 tokens, where the default chain cuts again and again.

CPU is that of the process, from /proc, so other work on the machine affects it little. Compare ratios only.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.served import CHAINS, CORES, cpu, latency, served
from tests.e2e.servers import Received, Upstream, plainly, until_ready, upstream

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models:
  - {{match: small-window, upstream: main, window: 16000, tokenizer: o200k_base}}
  - {{match: "*", upstream: main, window: 10000000, tokenizer: o200k_base}}
{chains}
  short:
    - consolidate_system: {{}}
    - window_history: {{keep_turns: 400, stride: 100}}
    - reject_oversize: {{share: 0.95}}
  empty: []
state: {state}
records: {records}
embedding: {{kind: {embedding}}}
telemetry: {{log_level: error}}
server: {{warm: true, max_messages: 100000}}
"""
_VOCABULARY = (
    "ledger tenant invoice payment gateway export report audit session webhook snapshot archive tariff region contract "
    "shipment customer inventory template renderer upload quota policy locale currency refund dispute calendar channel "
    "thread approval branch release build metric alert dashboard fails retries expires returns contains follows before "
    "after without because until slowly twice again nearly"
)
_WORDS = _VOCABULARY.split()
_BEHIND = 0.5
"""Seconds within which the record of a request is written."""
_CONVERSATIONS = 3
_AT_ONCE = 16
"""Requests with a new question that are sent at once: a process that has much to do takes them together."""

Messages = list[dict[str, Any]]


class Writer:
    """A generator of new conversations."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._calls = 0

    def text(self, size: int) -> str:
        """Return sentences of about so many characters."""
        sentences = [
            f"{' '.join(self._chance.choices(_WORDS, k=9))} {self._chance.randrange(9999)}." for _ in range(size // 70)
        ]
        return " ".join(sentences) or "Go on."

    def step(self, size: int) -> Messages:
        """Return a tool call of an agent and its result of about so many characters."""
        self._calls += 1
        name, id = f"tool_{self._calls % 45}", f"call_{self._calls}"
        rows = [{"id": self._chance.randrange(10**6), "name": self.text(70)} for _ in range(max(1, size // 120))]
        function = {"name": name, "arguments": json.dumps({"query": self.text(70)})}
        call = {"id": id, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "content": json.dumps(rows)},
        ]

    def tools(self, count: int) -> Messages:
        """Return definitions of tools."""
        parameters = {"type": "object", "properties": {word: {"type": "string"} for word in _WORDS[:4]}}
        return [
            {
                "type": "function",
                "function": {"name": f"tool_{n}", "description": self.text(140), "parameters": parameters},
            }
            for n in range(count)
        ]

    def agent(self, steps: int, size: int) -> dict[str, Any]:
        """Return a request of an agent after some steps, each with a result of about `size` characters."""
        messages: Messages = [
            {"role": "system", "content": self.text(2000)},
            {"role": "user", "content": self.text(300)},
        ]
        for _ in range(steps):
            messages += self.step(size)
        return {"model": "gpt-4o", "messages": messages, "tools": self.tools(45)}


class Proxy:
    """A running proxy with its client."""

    def __init__(self, http: aiohttp.ClientSession, base: str, pid: int) -> None:
        self._http, self._base, self.pid = http, base, pid

    async def ask(self, body: dict[str, Any], chain: str) -> float:
        """Send a request, and return the seconds until its answer."""
        begun = perf_counter()
        headers = {"x-penstock-chain": chain, "authorization": "Bearer sk-none", "content-type": "application/json"}
        data = json.dumps(body).encode()
        async with self._http.post(f"{self._base}/v1/chat/completions", data=data, headers=headers) as response:
            answer = await response.read()
        assert response.status == 200, answer[:500]
        return perf_counter() - begun

    def cpu(self) -> float:
        """Return the CPU seconds of the proxy so far."""
        return cpu(self.pid)

    async def cost(self, bodies: Iterable[dict[str, Any]], chain: str, at_once: int = 1) -> float:
        """Send requests, so many at once, and return the mean CPU of one in ms, including the work after its answer."""
        before, count, remaining = self.cpu(), 0, iter(bodies)
        while batch := [*islice(remaining, at_once)]:
            await asyncio.gather(*(self.ask(body, chain) for body in batch))
            count += len(batch)
        await asyncio.sleep(_BEHIND)
        spent = self.cpu() - before
        await asyncio.sleep(_BEHIND)  # the CPU of an idle proxy, which is subtracted
        waiting = self.cpu() - before - spent
        return 1000 * (spent - waiting) / count


@asynccontextmanager
async def running(
    folder: Path, embedding: str, state: str = "{kind: memory}", records: str = "{}", under: Sequence[str] = ()
) -> AsyncIterator[Proxy]:
    """Run a proxy before a stand-in that answers at once."""

    async def answer(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        behind.received.clear()
        await plainly(behind, received, writer)

    async with upstream() as behind:
        behind.respond = answer
        config = folder / "config.yaml"
        values = {"embedding": embedding, "state": state, "records": records}
        config.write_text(CONFIG.format(url=behind.url, chains=CHAINS.rstrip(), **values))
        async with (
            served(config, under=under, pinned=True) as (process, base),
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(300)) as http,
        ):
            await until_ready(base)
            yield Proxy(http, base, process.pid)


async def new_question(proxy: Proxy, requests: int) -> None:
    """Measure the same conversation with another question each time."""
    writer = Writer(1)
    sizes: dict[str, tuple[dict[str, Any], int]] = {
        "1 KB": ({"model": "gpt-4o", "messages": [{"role": "system", "content": writer.text(700)}]}, 10 * requests),
        "200 KB": (writer.agent(29, 6000), requests),
        "1.2 MB": (writer.agent(175, 6000), requests // 4),
    }
    print("new question, CPU in ms (times the empty chain's)")
    for name, (body, count) in sizes.items():

        def asking(count: int, body: dict[str, Any] = body) -> Iterable[dict[str, Any]]:
            for _ in range(count):
                yield {**body, "messages": [*body["messages"], {"role": "user", "content": writer.text(210)}]}

        costs: dict[str, list[float]] = {"empty": [], "short": [], "default": []}
        for chain in costs:
            await proxy.cost(asking(_AT_ONCE), chain, _AT_ONCE)
        for _ in range(3):  # in turn, so that other load on the machine affects all chains
            for chain, runs in costs.items():
                runs.append(await proxy.cost(asking(max(_AT_ONCE, count // 3)), chain, _AT_ONCE))
        floor = statistics.median(costs["empty"])
        cells = [
            f"{chain} {statistics.median(runs):6.2f} ({statistics.median(runs) / floor:.1f})"
            for chain, runs in costs.items()
        ]
        print(f"  {name:7} {'   '.join(cells)}", flush=True)


async def growth(proxy: Proxy, turns: Sequence[int]) -> None:
    """Measure an agent's conversation around some of its turns."""
    print("growth, CPU in ms at a turn (times the first one's); each turn brings 2 KB")
    for chain in ("empty", "default"):
        at_turn: dict[int, list[float]] = {turn: [] for turn in turns}
        for conversation in range(_CONVERSATIONS):
            for turn, costs in at_turn.items():
                writer = Writer(100_000 * conversation + turn)
                body = writer.agent(turn - 10, 1500)

                def growing(
                    count: int, body: dict[str, Any] = body, writer: Writer = writer
                ) -> Iterable[dict[str, Any]]:
                    for _ in range(count):
                        body["messages"] = [*body["messages"], *writer.step(1500)]
                        yield body

                await proxy.cost([body, *growing(5)], chain)
                costs.append(await proxy.cost(growing(20), chain))
        medians = {turn: statistics.median(costs) for turn, costs in at_turn.items()}
        cells = [f"{turn}: {cost:.2f} ({cost / medians[turns[0]]:.1f})" for turn, cost in medians.items()]
        print(f"  {chain:8} {'   '.join(cells)}", flush=True)


async def cuts(proxy: Proxy) -> None:
    """Measure a long chat in a small window."""
    writer, body = Writer(5), dict[str, Any](model="small-window", messages=[])
    seconds: list[float] = []
    before = proxy.cpu()
    for _ in range(150):
        body["messages"].append({"role": "user", "content": writer.text(800)})
        seconds.append(await proxy.ask(body, "default"))
        body["messages"].append({"role": "assistant", "content": writer.text(1200)})
    spent = 1000 * (proxy.cpu() - before) / len(seconds)
    print(f"cuts: CPU {spent:.2f} ms a turn; latency {latency(seconds)}", flush=True)


async def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = f"{{directory: {folder}/state}}"
        async with running(Path(folder), options.embedding, state) as proxy:
            await new_question(proxy, options.requests)
            await growth(proxy, [int(turn) for turn in options.turns.split(",")])
            await cuts(proxy)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=int, default=150, help="of 200 KB, for each chain")
    parser.add_argument("--turns", default="20,200,2000")
    parser.add_argument("--embedding", default="none", help="kind of embedding; `none` finds by words alone")
    options = parser.parse_args()
    os.sched_setaffinity(0, CORES[-1:])
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
