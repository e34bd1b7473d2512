"""Malformed and hostile requests at a running proxy: `python -m benchmarks.hostile --requests 10000`.

A real process with the shipped chain receives them one by one, over sockets. Behind it an upstream counts what it
receives, and a trap listens at the address to which the requests try to lure the proxy. Exit code 1 for any fault: a
status from 500 on, a connection that hangs, a complete request without an answer, an unasked request upstream, a
misdirected key, a traceback.

With `--floods` it sends bodies that cost much time or memory to read, each through the shipped chain and without it,
and asks for `/healthz` meanwhile. Exit code 1 if the 99th percentile of these answers is 100 ms or more.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp

from tests.e2e.hostile_bodies import encoded
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


def _with_field(field: bytes, value: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"Say hi."}],"' + field + b'":' + value + b"}"


def _many_keys(count: int) -> bytes:
    return b",".join(b'"k%d":1' % n for n in range(count))


def _with_content(content: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":' + content + b"}]}"


_TOOL = b'{"type":"function","function":{"name":"f%d","description":"Reads %d.","parameters":{"type":"object"}}}'
_PART = b'{"type":"text","text":"This is part %d of many."}'

FLOODS: dict[str, Callable[[], bytes]] = {
    "1.5 million fields": lambda: _with_field(b"x", b"1,")[:-1] + _many_keys(1_500_000) + b"}",
    "1.5 million keys in a field": lambda: _with_field(b"x", b"{" + _many_keys(1_500_000) + b"}"),
    "5 million lists in a field": lambda: _with_field(b"x", b"[" + b"[]," * 5_000_000 + b"[]]"),
    "8 million numbers in a field": lambda: _with_field(b"x", b"[" + b"1," * 8_000_000 + b"1]"),
    "1.5 million keys in a message": lambda: _with_content(b'"x",' + _many_keys(1_500_000)),
    "5 million lists in a message": lambda: _with_content(b'"x","x":[' + b"[]," * 5_000_000 + b"[]]"),
    "50,000 fields": lambda: _with_field(b"x", b"1,")[:-1] + _many_keys(50_000) + b"}",
    "90,000 keys in a message": lambda: _with_content(b'"x",' + _many_keys(90_000)),
    "160,000 lists in a message": lambda: _with_content(b'"x","x":[' + b"[]," * 160_000 + b"[]]"),
    "9,980 parts": lambda: _with_content(b"[" + b",".join(_PART % n for n in range(9_980)) + b"]"),
    "9,980 equal parts": lambda: _with_content(b"[" + b",".join([_PART % 1] * 9_980) + b"]"),
    "9,980 tools": lambda: _with_field(b"tools", b"[" + b",".join(_TOOL % (n, n) for n in range(9_980)) + b"]"),
    "9,980 messages": lambda: encoded(
        {"model": "m", "messages": [{"role": "user", "content": f"And {n}?"} for n in range(9_980)]}),
    "9,980 calls": lambda: encoded({"model": "m", "messages": [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(4_990)]},
        *({"role": "tool", "tool_call_id": f"c{n}", "content": "ok"} for n in range(4_990)),
    ]}),
    "a text of 16 MB": lambda: _with_content(b'"' + b"word, and " * 1_600_000 + b'"'),
    "an image of 16 MB": lambda: _with_content(
        b'[{"type":"image_url","image_url":{"url":"data:image/png;base64,' + b"A" * 16_000_000 + b'"}}]'),
}  # fmt: skip
"""Bodies that are valid, and of which each costs much time or memory where nothing bounds it."""

_MOST = 0.1
"""Largest 99th percentile of `/healthz` in seconds."""


async def flood() -> int:
    slow = 0
    print(f"{'body':<32}{'chain':<8}{'MB':>6}{'status':>8}{'s':>7}{'CPU s':>7}{'p99 ms':>8}{'max ms':>8}{'+MiB':>7}")
    with tempfile.TemporaryDirectory() as folder:
        async with world(Path(folder)) as under, aiohttp.ClientSession(under.running.base) as http:
            for name, make in FLOODS.items():
                for chain, headers in (("default", {}), ("none", {"x-penstock-bypass": "true"})):
                    body = make()
                    cpu, memory = _used(under.running.process.pid)
                    took, status, waited = await _beside(http, body, headers)
                    now, peak = _used(under.running.process.pid)
                    p99 = waited[int(len(waited) * 0.99)]
                    slow += p99 >= _MOST
                    print(f"{name:<32}{chain:<8}{len(body) / 1e6:>6.1f}{status:>8}{took:>7.2f}{now - cpu:>7.2f}"
                          f"{1e3 * p99:>8.1f}{1e3 * waited[-1]:>8.1f}{peak - memory:>7.0f}", flush=True)  # fmt: skip
    print(f"beside {slow} of them, health took {1e3 * _MOST:.0f} ms or more")
    return int(slow > 0)


async def _beside(http: aiohttp.ClientSession, body: bytes, headers: dict[str, str]) -> tuple[float, int, list[float]]:
    """Send a body. Return its seconds and status, and the sorted seconds of `/healthz` meanwhile."""
    waited: list[float] = []

    async def ask() -> None:
        while True:
            began = time.perf_counter()
            async with http.get("/healthz") as answer:
                await answer.read()
            waited.append(time.perf_counter() - began)
            await asyncio.sleep(0.005)

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0.3)
    began = time.perf_counter()
    async with http.post("/v1/chat/completions", data=body, headers=headers) as answer:
        await answer.read()
    took = time.perf_counter() - began
    await asyncio.sleep(0.3)
    asking.cancel()
    return took, answer.status, sorted(waited)


def _used(process: int) -> tuple[float, float]:
    """Return the CPU seconds of a process and its peak memory in MiB, and reset the peak."""
    folder = Path(f"/proc/{process}")
    fields = (folder / "stat").read_text().rpartition(") ")[2].split()
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    (folder / "clear_refs").write_text("5")
    return (int(fields[11]) + int(fields[12])) / 100, int(status["VmHWM"].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--floods", action="store_true", help="bodies that are costly to read, with health beside them")
    arguments = parser.parse_args()
    sys.exit(asyncio.run(flood() if arguments.floods else run(arguments.requests, arguments.seed)))


if __name__ == "__main__":
    main()
