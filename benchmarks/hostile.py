"""Malformed and hostile requests at a running proxy: `python -m benchmarks.hostile --requests 10000`.

A real process with the shipped chain gets them one by one, over sockets. Behind it an upstream counts what reaches it,
and a trap listens at the address to which the requests try to lure the proxy. Exit code 1 where anything is wrong: a
status from 500 on, a connection that hangs, a whole request that got no answer, a request upstream that nobody made, a
key that went astray, a traceback.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.hostile_requests import attacks
from tests.e2e.hostile_world import world


async def run(requests: int, seed: int) -> int:
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        async with world(Path(folder)) as under:
            for number, attack in enumerate(attacks(requests, seed, under.lure)):
                await under.attack(number, attack)
            broken = [line for line in under.running.log if "Traceback" in line or "unexpected error" in line]
            alive = under.running.process.returncode is None
            upstream = len(under.behind.received)
    faults = under.found.faults
    print(f"{requests} attacks of seed {seed} in {time.perf_counter() - started:.0f} s")
    print(f"attempts: {under.found.attempts}; lost: {under.found.lost}")
    print(f"answers: {dict(sorted(under.found.statuses.items()))}; requests upstream: {upstream}")
    print(f"faults: {len(faults)}; tracebacks: {len(broken)}; the process is {'alive' if alive else 'gone'}")
    print(*faults[:50], *broken[:5], sep="\n")
    return int(bool(faults or broken or under.found.lost or not alive))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sys.exit(asyncio.run(run(arguments.requests, arguments.seed)))


if __name__ == "__main__":
    main()
