"""A client leaves while the heavy work of its request runs or waits for its turn: no more is done for it."""

import asyncio
import re
from typing import Any

from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import until

CONFIG = """
models: [{match: m, upstream: main}]
chains:
  default:
    - heavy.policy: {folder: "{folder}", name: first}
    - heavy.policy: {folder: "{folder}", name: second}
state: {directory: "{folder}/state"}
"""

POLICY = '''
"""Works on each message in the thread of a chain's heavy work, and tells of it."""

import time
from pathlib import Path

from proxy.chat import ChatRequest, Message
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy


class Work(Policy):
    """Tells of each message; the first one waits."""

    folder: str = ""
    """Where it tells, and where the file `go` arrives."""
    name: str = ""
    """Of the step."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Work on every message."""
        self._tell(f"{self.name} {request.messages[0].text[0]}")
        await ctx.once.of_each(self._first if self.name == "first" else self._second, request.messages)
        return Keep("worked")

    def _first(self, message: Message) -> bool:
        self._tell(f"worked {message.text[:2]}")
        while not (Path(self.folder) / "go").exists():
            time.sleep(0.01)
        return True

    def _second(self, message: Message) -> bool:
        return True

    def _tell(self, said: str) -> None:
        with (Path(self.folder) / "told").open("a") as told:
            told.write(f"{said}\\n")
'''


def asked(name: str) -> dict[str, Any]:
    """Three messages that are too large to be worked on on the event loop."""
    contents = [f"{name}{place} {'word ' * 1000}" for place in range(3)]
    return {"model": "m", "messages": [{"role": "user", "content": content} for content in contents]}


async def test_nothing_more_is_done_for_a_client_that_left(lab: Lab) -> None:
    (lab.folder / "heavy").mkdir()
    (lab.folder / "heavy/policy.py").write_text(POLICY)
    told = lab.folder / "told"
    told.touch()

    async def has_told(line: str) -> None:
        async with asyncio.timeout(60):
            while line not in told.read_text().splitlines():
                await asyncio.sleep(0.01)

    async with lab.served(CONFIG, folder=lab.folder) as running:
        url = f"{running.base}/v1/chat/completions"
        try:
            works = asyncio.ensure_future(lab.http.post(url, json=asked("a")))
            await has_told("worked a0")
            waits = asyncio.ensure_future(lab.http.post(url, json=asked("b")))
            await has_told("first b")
            works.cancel()
            waits.cancel()
            client = Client(running.base, lab.http)
            await until(client.metrics, re.compile(r'_requests_total\{.*status="499".*\} 2.0').search)
        finally:
            (lab.folder / "go").touch()
        async with lab.http.post(url, json=asked("c")) as response:
            assert response.status == 200
        worked = ["worked c0", "worked c1", "worked c2"]
        assert told.read_text().splitlines() == ["first a", "worked a0", "first b", "first c", *worked, "second c"]
        assert len(lab.behind.received) == 1
