"""Instructions of the proxy a request, counted by valgrind: a figure that other work on the machine hardly changes.

    python -m benchmarks.instructions
    python -m benchmarks.instructions --sizes 200KB --chains default --profile out/profile

A real proxy runs under `valgrind --tool=callgrind` before a stand-in for the provider; each request asks another
question at the end of the same conversation. Counted is the whole process: event loop, threads, rows of records.
Repeats agree within 2 %. `--profile FILE` keeps the counts of each function, of the last pair, for
`callgrind_annotate FILE`.
"""

import argparse
import asyncio
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.turns import Proxy, Writer, running

_BEHIND = 2.0
"""Seconds, under valgrind, within which the work after an answer is done."""
_WARM_UP = 12


def conversations() -> dict[str, dict[str, Any]]:
    """Return a request for each size: a chat, and an agent's with 45 tools."""
    writer = Writer(1)
    chat = {"model": "gpt-4o", "messages": [{"role": "system", "content": writer.text(700)}]}
    return {
        "1KB": chat,
        "200KB": writer.agent(29, 6000),
        "401messages": writer.agent(199, 60),
        "4001messages": writer.agent(1999, 60),
    }


async def count(proxy: Proxy, body: dict[str, Any], chain: str, requests: int, profile: Path) -> float:
    """Return the millions of instructions of a request, and leave the profile of all at `profile`."""
    writer = Writer(2)

    async def ask(times: int) -> None:
        for _ in range(times):
            question = {"role": "user", "content": writer.text(210)}
            await proxy.ask({**body, "messages": [*body["messages"], question]}, chain)
        await asyncio.sleep(_BEHIND)

    async def control(*arguments: str) -> None:
        command = await asyncio.create_subprocess_exec(
            *("callgrind_control", *arguments, str(proxy.pid)), stdout=subprocess.DEVNULL
        )
        await command.wait()

    await ask(_WARM_UP)
    await control("--instr=on")
    await ask(requests)
    await control("--dump")
    await control("--instr=off")
    dump = profile.with_name(f"{profile.name}.dump.1")
    text = dump.read_text()
    dump.replace(profile)
    total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
    assert total is not None, text[-500:]
    return int(total[1]) / requests / 1e6


async def measure(options: argparse.Namespace, folder: Path) -> None:
    profile = (options.profile or folder / "profile").absolute()
    under = ("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={profile}.dump")
    bodies = conversations()
    for size in options.sizes.split(","):
        for chain in options.chains.split(","):
            async with running(folder, "none", under=under) as proxy:
                spent = await count(proxy, bodies[size], chain, options.requests, profile)
            print(f"{size:14} {chain:10} {spent:8.2f} million instructions a request", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default=",".join(conversations()))
    parser.add_argument("--chains", default="empty,short,default")
    parser.add_argument("--requests", type=int, default=20, help="counted requests of each pair")
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(options, Path(folder)))


if __name__ == "__main__":
    main()
