"""Latency of small requests while a model in the same process computes vectors, all on one core.

    python -m benchmarks.model_thread

One client sends a new conversation of 120 KB each second, which is cut and searched, so that thousands of texts wait
for vectors. Another one sends 1 KB through the default chain, again and again. It prints wall time on the first core.
"""

import argparse
import asyncio
import tempfile
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.served import latency
from benchmarks.turns import Proxy, Writer, running


def long_chat(writer: Writer) -> dict[str, Any]:
    """Return a conversation that does not fit a window of 16,000 tokens."""
    messages = [{"role": role, "content": writer.text(1500)} for _ in range(40) for role in ("user", "assistant")]
    return {"model": "small-window", "messages": [*messages, {"role": "user", "content": writer.text(200)}]}


async def keep_busy(proxy: Proxy) -> None:
    """Send new conversations until cancelled."""
    for seed in count(1000):
        await proxy.ask(long_chat(Writer(seed)), "default")
        await asyncio.sleep(1)


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder), "sentence-transformers") as proxy:
            busy = asyncio.create_task(keep_busy(proxy))
            await asyncio.sleep(12)  # the model loads
            writer, seconds, end = Writer(5), list[float](), perf_counter() + options.seconds
            while perf_counter() < end:
                sizes = (("system", 600), ("user", 210))
                messages = [{"role": role, "content": writer.text(size)} for role, size in sizes]
                seconds.append(await proxy.ask({"model": "gpt-4o", "messages": messages}, "default"))
                await asyncio.sleep(0.02)
            busy.cancel()
    print(f"{len(seconds)} requests of 1 KB: {latency(seconds)}")


if __name__ == "__main__":
    asyncio.run(main())
