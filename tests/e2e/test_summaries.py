"""Summaries of a small model: a real server plays it, well and badly; requests never wait for it, nor fail with it."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import Any

import pytest

from proxy.state.sqlite import SqliteStore
from tests.e2e.conftest import Lab
from tests.e2e.servers import Upstream, answering, silent

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{main}"}}
  small: {{kind: openai, base_url: "{small}"}}
models:
  - {{match: tiny-writer, upstream: small, window: 16000, chain: empty}}
  - {{match: "*", upstream: main, window: 4000, reserve: 0, tokenizer: chars}}
chains:
  default: [compress_history: {{summary: written}}]
  empty: []
writer: {{model: tiny-writer, timeout: {timeout}}}
state: {{directory: "{folder}"}}
"""

GOOD = """- Moves the ledger to region eu-7.
- Batches of 40 rows.
- ticket LED-1204
"""

Body = dict[str, Any]


def turn(n: int) -> list[Body]:
    """About a hundred and fifty tokens."""
    rule = "Move the ledger to region eu-7. Never touch account acct_991. " if n == 0 else ""
    told = f"{rule}Question {n} about ticket LED-12{n:02d}: " + "lorem ipsum " * 20
    return [
        {"role": "user", "content": told},
        {"role": "assistant", "content": f"Answer {n}: Batches of 40 rows. " + "dolor sit " * 20},
    ]


def talk(turns: int) -> list[Body]:
    return [message for n in range(turns) for message in turn(n)] + [{"role": "user", "content": f"And {turns}?"}]


NEAR, OVER = 21, 24
"""Turns at which the conversation is above the warn mark, and above the mark at which it is cut."""


def saying(content: str | None, finish: str = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}
    usage = {"prompt_tokens": 900, "completion_tokens": 70, "total_tokens": 970}
    return json.dumps(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    ).encode()


class Running:
    """A proxy, or several on one store, with a model and a small model behind."""

    def __init__(self, lab: Lab, small: Upstream) -> None:
        self.lab, self.main, self.small, self.http = lab, lab.behind, small, lab.http

    async def proxy(self, name: str = "one", patience: float = 20.0) -> str:
        state = self.lab.folder / "state"
        config = CONFIG.format(main=self.main.url, small=self.small.url, folder=state, timeout=patience)
        return await self.lab.start(config, name)

    async def ask(self, base: str, turns: int, key: str = "k") -> list[Body]:
        """What the model got of a conversation of so many turns."""
        body = {"model": "gpt", "messages": talk(turns)}
        headers = {"authorization": f"Bearer {key}"}
        async with self.http.post(f"{base}/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 200
        sent: list[Body] = json.loads(self.main.last.body)["messages"]
        return sent

    async def judged(self, base: str, outcome: str) -> None:
        """Wait until an answer of the small model was judged so."""
        await self.lab.until(base, f'penstock_writer_summaries_total{{outcome="{outcome}"}} 1.0')

    async def drafted(self, drafts: int = 1) -> None:
        """Wait until so many drafts are stored."""
        store = SqliteStore(self.lab.folder / "state" / "archive", 2**30)
        async with asyncio.timeout(60):
            while drafts > sum("/draft/" in key and "/claim" not in key for key in await store.keys("summary/")):
                pass
        await store.aclose()


@pytest.fixture
async def running(lab: Lab) -> Running:
    made = Running(lab, await lab.upstream())
    made.small.respond = answering(saying(GOOD))
    return made


async def test_what_was_written_ahead_is_used_at_the_cut_and_kept(running: Running) -> None:
    base = await running.proxy()
    assert await running.ask(base, NEAR) == talk(NEAR), "below the mark the conversation is left alone"
    await running.drafted()
    sent = await running.ask(base, OVER)
    told = sent[0]["content"]
    assert sent[0]["role"] == "user"
    assert (
        "Summary of answers that have no line below:\n- Moves the ledger to region eu-7.\n- Batches of 40 rows." in told
    )
    assert re.search(r"\n1: .*Never touch account acct_991\.", told), "the user's own words stand beside it"
    later = await running.ask(base, OVER + 2)
    assert later[: len(sent) - 1] == sent[:-1]
    asked = json.loads(running.small.received[0].body)
    assert (asked["model"], asked["temperature"], asked["stream"]) == ("tiny-writer", 0.0, False)
    assert "tools" not in asked
    assert "Never touch account acct_991" in asked["messages"][1]["content"]
    assert running.small.received[0].header("authorization") is None, "the client's key stays with its own upstream"


async def test_without_a_draft_the_cut_keeps_its_extract_for_ever(running: Running) -> None:
    base = await running.proxy()
    first = await running.ask(base, OVER)
    assert "Summary of answers" not in first[0]["content"]
    await running.ask(base, NEAR)
    await running.drafted()
    again = await running.ask(base, OVER + 1)
    assert again[0] == first[0]


async def test_a_slow_one_is_not_waited_for_and_dropped_at_shutdown(running: Running) -> None:
    running.small.respond = silent
    async with AsyncExitStack() as stack:
        running.lab.stack = stack
        base = await running.proxy()
        await running.ask(base, NEAR)
        await running.small.arrived(1)
        assert "Summary of answers" not in (await running.ask(base, OVER))[0]["content"]
    await asyncio.wait_for(running.small.gone.wait(), 60)


async def test_two_workers_use_the_same_summary(running: Running) -> None:
    one, two = await running.proxy("one"), await running.proxy("two")
    await running.ask(one, NEAR)
    await running.drafted()
    first = await running.ask(two, OVER)
    second = await running.ask(one, OVER)
    assert "Summary of answers" in first[0]["content"]
    assert first == second
    assert await running.ask(one, OVER, key="other") != first, "another tenant's cut has settled nothing"


async def test_the_next_cut_is_written_of_the_summary_before_and_what_came_since(running: Running) -> None:
    base = await running.proxy()
    await running.ask(base, NEAR)
    await running.drafted()
    for turns in range(NEAR + 1, 80):
        await running.ask(base, turns)
        if len(running.small.received) > 1:
            break
    second = json.loads(running.small.received[1].body)["messages"][1]["content"]
    earlier, _, since = second.partition("<transcript>")
    assert "\n- Batches of 40 rows." in earlier
    assert "Question 0 " not in since
    assert "Question 25 " in since
