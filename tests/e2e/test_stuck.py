"""A worker thread that does not come to an end: liveness says so, until it does."""

import asyncio
import json
from typing import Any

from tests.e2e.conftest import Lab
from tests.e2e.served import served

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: m, upstream: main}}]
chains: {{default: [stuck.policy: {{until: "{until}"}}]}}
server: {{stuck_after: 0.2}}
"""

POLICY = '''
"""Keeps the thread of a chain's heavy work busy."""

import time
from pathlib import Path

from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy


class Wait(Policy):
    """Waits in a thread."""

    until: str = ""
    """The file whose arrival ends it."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Wait."""
        await ctx.once.of_key("wait", 100_000, self._wait)
        return Keep("waited")

    def _wait(self) -> bool:
        while not Path(self.until).exists():
            time.sleep(0.01)
        return True
'''

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def until(lab: Lab, base: str, expected: tuple[int, Any], times: int) -> None:
    """Until it was answered so many times in a row, whichever worker was asked."""
    in_a_row = 0
    async with asyncio.timeout(120):
        while in_a_row < times:
            in_a_row = in_a_row + 1 if await lab.get(f"{base}/healthz") == expected else 0
            await asyncio.sleep(0.01)


def waiting(log: list[str]) -> list[str]:
    """The lines that tell of the thread."""
    told = [line for line in log if "thread stuck" in line]
    return [line for line in told if json.loads(line)["at"][-1].endswith(" _wait")]


async def test_a_stuck_thread_is_told_by_every_worker(lab: Lab) -> None:
    (lab.folder / "stuck").mkdir()
    (lab.folder / "stuck/policy.py").write_text(POLICY)
    go = lab.folder / "go"
    config = CONFIG.format(url=lab.behind.url, until=go)
    well, stuck = (200, {"status": "ok"}), (503, {"status": "stuck"})
    async with served(config, lab.folder, "--workers", "2") as running:
        try:
            asking = asyncio.ensure_future(lab.http.post(f"{running.base}/v1/chat/completions", json=BODY))
            # vocabularies that are being loaded take longer than is allowed here, too
            async with asyncio.timeout(120):
                while not waiting(running.log):
                    await lab.get(f"{running.base}/healthz")
            await until(lab, running.base, stuck, 20)
            assert len(waiting(running.log)) == 1, "it is told once, by the worker that it is true of"
        finally:
            go.touch()
        await until(lab, running.base, well, 20)
        async with await asking as response:
            assert response.status == 200
