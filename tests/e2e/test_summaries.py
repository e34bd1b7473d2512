"""Summaries of a small model: a real server plays it, well and badly; requests never wait for it, nor fail with it."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import Any

import pytest

from proxy.state.sqlite import SqliteStore
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Upstream, answering, silent, until
from tests.scripted import answer

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}"}
  small: {kind: openai, base_url: "{small}"}
models:
  - {match: tiny-writer, upstream: small, window: 16000, chain: empty}
  - {match: "*", upstream: main, window: 4000, reserve: 0, tokenizer: chars}
chains:
  default: [compress_history: {summary: written}]
  empty: []
writer: {model: tiny-writer, timeout: 20}
state: {directory: "{folder}"}
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


GOOD = "- Moves the ledger to region eu-7.\n- Batches of 40 rows.\n- ticket LED-1204\n"


def saying(content: str | None, **more: Any) -> bytes:
    return json.dumps(answer(content, used=(900, 70, 0), **more)).encode()


class Running:
    """Proxies on one store, with a model and a small model behind."""

    def __init__(self, lab: Lab, small: Upstream) -> None:
        self.lab, self.main, self.small = lab, lab.behind, small

    async def proxy(self, name: str = "one") -> Client:
        return await self.lab.client(CONFIG, "k", name, small=self.small.url, folder=self.lab.folder / "state")

    async def ask(self, client: Client, turns: int, key: str = "k") -> list[Body]:
        """Return what the model gets of a conversation of so many turns."""
        assert (await client.chat(model="gpt", messages=talk(turns), key=key)).status == 200
        return list(json.loads(self.main.last.body)["messages"])

    async def drafted(self) -> None:
        """Wait until a draft is stored."""
        store = SqliteStore(self.lab.folder / "state" / "archive", 2**30)
        await until(
            lambda: store.keys("summary/"),
            lambda keys: any("/draft/" in key and "/claim" not in key for key in keys),
        )
        await store.aclose()


@pytest.fixture
async def running(lab: Lab) -> Running:
    made = Running(lab, await lab.upstream())
    made.small.respond = answering(saying(GOOD))
    return made


async def test_what_was_written_ahead_is_used_at_the_cut_and_kept(running: Running) -> None:
    client = await running.proxy()
    assert await running.ask(client, NEAR) == talk(NEAR), "below the mark the conversation is left alone"
    await running.drafted()
    sent = await running.ask(client, OVER)
    told = sent[0]["content"]
    assert sent[0]["role"] == "user"
    written = "Summary of answers that have no line below:\n- Moves the ledger to region eu-7.\n- Batches of 40 rows."
    assert written in told
    assert re.search(r"\n1: .*Never touch account acct_991\.", told), "the user's own words stand beside it"
    later = await running.ask(client, OVER + 2)
    assert later[: len(sent) - 1] == sent[:-1]
    asked = json.loads(running.small.received[0].body)
    assert (asked["model"], asked["temperature"], asked["stream"]) == ("tiny-writer", 0.0, False)
    assert "tools" not in asked
    assert "Never touch account acct_991" in asked["messages"][1]["content"]
    assert running.small.received[0].header("authorization") is None, "the client's key stays with its own upstream"
    for turns in range(OVER + 3, 80):
        await running.ask(client, turns)
        if len(running.small.received) > 1:
            break
    second = json.loads(running.small.received[1].body)["messages"][1]["content"]
    earlier, _, since = second.partition("<transcript>")
    assert "\n- Batches of 40 rows." in earlier, "the next cut is written of the summary before, and what came since"
    assert "Question 0 " not in since
    assert "Question 25 " in since


async def test_a_slow_one_is_not_waited_for_and_dropped_at_shutdown(running: Running) -> None:
    running.small.respond = silent
    async with AsyncExitStack() as stack:
        running.lab.stack = stack
        client = await running.proxy()
        await running.ask(client, NEAR)
        await running.small.arrived(1)
        assert "Summary of answers" not in (await running.ask(client, OVER))[0]["content"]
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
