"""Cost of records: CPU of a request of 1 KB, and throughput, with and without them.

    python -m benchmarks.records

Four real proxies on the first core: two without records, one with the default of at most 100 a second, one that records
every request. On the second core a stand-in for the provider and a client with 16 connections. Each round sends to one
proxy after the other, and begins with another one each time. Figures are ratios within a round to the mean of the two
proxies without records, whose difference is the noise of the machine. CPU is that of the process, including the writing
of records.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from benchmarks.served import CORES
from benchmarks.turns import Proxy, Writer, running

OFF = ("off", "off again")
KINDS = {**dict.fromkeys(OFF, "off"), "default": "{}", "every request": "{per_second: 1000000}"}
CONNECTIONS = 16
WRITTEN = 0.6
"""Seconds after a round in which all its records are written."""


class Cost(NamedTuple):
    """The cost of a round's requests."""

    cpu: float
    """Milliseconds of CPU per request."""
    rate: float
    """Requests per second."""


async def load(proxy: Proxy, writer: Writer, chain: str, seconds: float) -> tuple[int, float]:
    """Send requests for some seconds, each with a new question. Return their number and rate."""
    begun, requests = perf_counter(), 0

    async def client() -> None:
        nonlocal requests
        while perf_counter() < begun + seconds:
            await proxy.ask(_body(writer), chain)
            requests += 1

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return requests, requests / (perf_counter() - begun)


async def round_of(proxies: Mapping[str, Proxy], number: int, chain: str, seconds: float) -> Mapping[str, Cost]:
    """Measure each proxy, one after the other."""
    before, sent = {name: proxy.cpu() for name, proxy in proxies.items()}, {}
    first = number % len(proxies)
    for name in (*proxies, *proxies)[first : first + len(proxies)]:
        sent[name] = await load(proxies[name], Writer(number), chain, seconds)
    await asyncio.sleep(WRITTEN)
    spent = {name: 1000 * (proxy.cpu() - before[name]) for name, proxy in proxies.items()}
    return {name: Cost(spent[name] / requests, rate) for name, (requests, rate) in sent.items()}


def _body(writer: Writer) -> dict[str, Any]:
    asked = ({"role": "system", "content": writer.text(700)}, {"role": "user", "content": writer.text(210)})
    return {"model": "gpt-4o", "messages": [*asked]}


def line_of(name: str, costs: Sequence[Cost], base: Sequence[Cost]) -> str:
    """Return a line with the median cost and the ratios within each round: median and interquartile range."""
    cells = [f"{name:14} {statistics.median(each.cpu for each in costs):.3f} ms"]
    for field, text in (("cpu", "CPU"), ("rate", "throughput")):
        ratios = [getattr(one, field) / getattr(other, field) for one, other in zip(costs, base, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        cells.append(f"{text} {middle:.3f} ({low:.3f} to {high:.3f})")
    more = statistics.median(one.cpu - other.cpu for one, other in zip(costs, base, strict=True))
    return "   ".join([*cells, f"{more:+.3f} ms a request"])


async def measure(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        proxies = {}
        for name, records in KINDS.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            state = f'{{directory: "{folder}/state"}}'
            proxies[name] = await stack.enter_async_context(running(folder, "none", state, records))
        for chain in options.chains.split(","):
            _, *rounds = [  # the first warms up
                await round_of(proxies, number, chain, options.seconds) for number in range(options.rounds + 1)
            ]
            print(f"chain {chain}, {options.rounds} rounds of {options.seconds:g} s each; ratios to no records")
            base = [Cost(*map(statistics.mean, zip(*(each[name] for name in OFF), strict=True))) for each in rounds]
            for name in proxies:
                print(f"  {line_of(name, [each[name] for each in rounds], base)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each proxy in each round")
    parser.add_argument("--chains", default="empty,short,default")
    options = parser.parse_args()
    os.sched_setaffinity(0, CORES[-1:])
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
