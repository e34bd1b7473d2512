"""Cost of a request for several replicas on one Redis server, with and without session affinity.

    python -m benchmarks.replicas --replicas 4 --conversations 40 --turns 15

Real proxies with the default chain and a real Redis server, which must be installed. Agents' conversations grow by a
tool result of 2 KB with each request. Requests go to the replica of their conversation (*affinity*), then, in a second
run, to a random one (*none*). It prints CPU and latency of a request, and the work of the Redis server.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.served import latency
from benchmarks.turns import Proxy, Writer, running
from tests.redis_process import RedisProcess


class Counters:
    """The counters of a Redis server at one moment."""

    def __init__(self, server: RedisProcess) -> None:
        with server.admin() as client:
            stats, memory, keys = client.info("stats"), client.info("memory"), client.dbsize()
        self.commands, self.read = int(stats["total_commands_processed"]), int(stats["total_net_output_bytes"])
        self.written, self.memory = int(stats["total_net_input_bytes"]), int(memory["used_memory"])
        self.keys = int(keys)


@asynccontextmanager
async def replicas(count: int, server: RedisProcess) -> AsyncIterator[list[Proxy]]:
    """Run some proxies that share the server."""
    async with AsyncExitStack() as stack:
        state = f'{{kind: redis, url: "{server.url}"}}'
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(count)]
        yield [await stack.enter_async_context(running(folder, "none", state)) for folder in folders]


async def measure(options: argparse.Namespace, *, affinity: bool) -> None:
    """Measure with affinity or without, and print the figures."""
    chance, requests = random.Random(7), options.conversations * options.turns
    with tempfile.TemporaryDirectory() as folder:
        server = RedisProcess(Path(folder))
        server.start()
        try:
            async with replicas(options.replicas, server) as proxies:
                writers = [Writer(seed) for seed in range(options.conversations)]
                bodies = [writer.agent(5, 2000) for writer in writers]
                seconds: list[float] = []
                before, spent = Counters(server), sum(proxy.cpu() for proxy in proxies)
                for _ in range(options.turns):
                    for place, (writer, body) in enumerate(zip(writers, bodies, strict=True)):
                        body["messages"] = [*body["messages"], *writer.step(2000)]
                        proxy = proxies[place % len(proxies)] if affinity else chance.choice(proxies)
                        seconds.append(await proxy.ask(body, "default"))
                after, spent = Counters(server), sum(proxy.cpu() for proxy in proxies) - spent
        finally:
            server.stop()
    name = "affinity" if affinity else "none"
    print(f"{name:9} CPU {1000 * spent / requests:6.2f} ms   {latency(seconds)}")
    print(
        f"          a request: {(after.commands - before.commands) / requests:.1f} commands, "
        f"{(after.read - before.read) / requests / 1000:.2f} KB from Redis, "
        f"{(after.written - before.written) / requests / 1000:.2f} KB to it; "
        f"a conversation keeps {(after.memory - before.memory) / options.conversations / 1000:.0f} KB in "
        f"{(after.keys - before.keys) / options.conversations:.0f} keys",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--conversations", type=int, default=40)
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    for affinity in (True, False):
        asyncio.run(measure(options, affinity=affinity))


if __name__ == "__main__":
    main()
