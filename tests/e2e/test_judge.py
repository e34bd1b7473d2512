"""A small model judges what rules leave open: a real server plays it, well and badly; no request fails with it."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, Respond, Upstream, answering, send_chunk, silent
from tests.e2e.test_summaries import saying

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}"}
  small: {kind: openai, base_url: "{small}"}
models:
  - {match: tiny-judge, upstream: small, chain: empty}
  - {match: "*", upstream: main, window: 8000, reserve: 0, tokenizer: chars}
chains:
  default:
    - resolve_clashes: {reconcile: open, wait: {wait}, timeout: 50}
    - check_facts: {facts: ["Ada Lovelace was an English mathematician."], judge: {judge}, timeout: 50}
  empty: []
judge: {model: {model}, timeout: {timeout}}
server: {chain_deadline: 60}
"""
LONG = 10.0
"""Seconds that no test waits for, where the small model answers; more are not allowed."""

OPEN = "My budget is 500 euros. My budget is 900 euros."
"""Two statements of one message: rules do not say which holds."""
LINE = '[Penstock: in the next message, "My budget is 900 euros" supersedes "My budget is 500 euros"]'
FACT = "Ada Lovelace was an English mathematician."
UNREAD = "Ada Lovelace wrote the first cookbook of Norwick."
"""About a fact's subject, and beyond the rules."""


class Running:
    """Proxies with a model and a small model behind, on one store."""

    def __init__(self, lab: Lab, small: Upstream) -> None:
        self.lab, self.main, self.small = lab, lab.behind, small

    async def proxy(self, **settings: Any) -> Client:
        known: dict[str, Any] = {
            "small": self.small.url,
            "wait": LONG,
            "judge": 0,
            "timeout": 45,
            "model": "tiny-judge",
        }
        return await self.lab.client(CONFIG, "k", **known | settings)

    async def ask(self, client: Client, *said: str) -> tuple[list[str], dict[str, Any]]:
        """The texts that the model got, and what each step says of itself."""
        turns = [(("user", text), ("assistant", "Fine.")) for text in said]
        messages = [{"role": role, "content": text} for turn in turns for role, text in turn][:-1]
        answer = await client.chat(model="gpt", messages=messages)
        steps = {step["policy"]: step["facts"] for step in (await client.record(answer))["steps"]}
        return [message["content"] for message in json.loads(self.main.last.body)["messages"]], steps

    def asked(self) -> list[tuple[str, str]]:
        """What the small model was shown, call by call."""
        bodies = [json.loads(received.body) for received in self.small.received]
        shown = [re.findall(r"<(\w+)>(.*?)</\1>", body["messages"][1]["content"]) for body in bodies]
        return [(first[1], second[1]) for first, second in shown]


def ended(outcome: str) -> str:
    """The line of the metrics where one pair has ended so."""
    return f'penstock_judge_verdicts_total{{outcome="{outcome}"}} 1.0'


@pytest.fixture
async def running(lab: Lab) -> Running:
    return Running(lab, await lab.upstream())


async def test_the_later_statement_is_preferred_where_the_model_says_so(running: Running) -> None:
    running.small.respond = answering(saying("REPLACES"))
    texts, steps = await running.ask(await running.proxy(), "Hello.", OPEN)
    assert texts[2:] == [LINE, OPEN], "the message itself is not touched"
    counts = {"clashes_resolved": 1, "irresolvable": 0, "judged": 1, "unanswered": 0}
    assert steps["resolve_clashes"].items() >= counts.items()
    asked = {"model": "tiny-judge", "temperature": 0.0, "max_tokens": 16, "stream": False}
    assert json.loads(running.small.last.body).items() >= asked.items()
    assert running.asked() == [("My budget is 500 euros.", "My budget is 900 euros.")]
    assert running.small.last.header("authorization") is None, "the client's key stays with its own upstream"


async def endless(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        await send_chunk(writer, b" " * 2**16)


@pytest.mark.parametrize(
    ("respond", "outcome"),
    [
        pytest.param(answering(saying("REPLACES", finish="length")), "unusable", id="cut off"),
        pytest.param(answering(saying("REPLACES", tool_calls=[{"id": "c"}])), "unusable", id="a tool call"),
        pytest.param(answering(saying("REPLACES", refusal="No.")), "unusable", id="a refusal"),
        pytest.param(answering(saying("REPLACES" + " " * 2**21)), "unusable", id="huge"),
        pytest.param(endless, "failed", id="endless"),
    ],
)
async def test_whatever_the_small_model_does_the_rules_alone_decide(
    running: Running, respond: Respond, outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    running.small.respond = respond
    client = await running.proxy()
    texts, steps = await running.ask(client, OPEN)
    assert texts == [OPEN]
    facts = steps["resolve_clashes"]
    assert (facts["irresolvable"], facts["judged"], facts["unanswered"]) == (1, 1, 1)
    await client.until(ended(outcome))
    said = capsys.readouterr().err
    assert [json.loads(line)["cause"] for line in said.splitlines()] == [outcome]
    assert "budget" not in said


async def test_a_silent_one_is_waited_for_as_long_as_the_step_says_and_then_given_up(running: Running) -> None:
    running.small.respond = silent
    client = await running.proxy(wait=0.05, timeout=0.5)
    texts, steps = await running.ask(client, OPEN)
    assert (texts, steps["resolve_clashes"]["unanswered"]) == ([OPEN], 1)
    await client.until(ended("timeout"))
    await asyncio.wait_for(running.small.gone.wait(), 60)
    await running.ask(client, OPEN.replace("900", "800"))
    assert len(running.small.received) == 1, "it is left alone for a while"


async def test_what_is_under_way_is_dropped_at_shutdown(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    running.small.respond = silent
    async with AsyncExitStack() as stack:
        running.lab.stack = stack
        await running.ask(await running.proxy(wait=0.05), OPEN)
        assert not running.small.gone.is_set()
    await asyncio.wait_for(running.small.gone.wait(), 60)
    assert capsys.readouterr().err == "", "an end is no failure"


async def test_a_statement_that_rules_cannot_read_is_held_against_the_fact(running: Running) -> None:
    running.small.respond = answering(saying("Contradicts."))
    client = await running.proxy(judge=LONG)
    texts, steps = await running.ask(client, UNREAD, "Hm.")
    assert texts[0] == f'{UNREAD} [incorrect: contradicts the trusted fact "{FACT}"]'
    assert (steps["check_facts"]["judged"], steps["check_facts"]["unanswered"]) == (1, 0)
    assert running.asked() == [(FACT, UNREAD)]
    metrics = await client.metrics()
    assert ended("judged") in metrics
    assert 'penstock_judge_tokens_total{kind="input"} 900.0' in metrics
    assert "penstock_judge_duration_seconds_count 1.0" in metrics


async def test_the_clients_key_goes_along_to_the_upstream_that_gets_it_anyway(running: Running) -> None:
    running.main.respond = answering(saying("REPLACES"))
    await running.ask(await running.proxy(model="gpt-small"), OPEN)
    judged, chat = running.main.received
    assert [json.loads(one.body)["model"] for one in (judged, chat)] == ["gpt-small", "gpt"]
    assert judged.header("authorization") == chat.header("authorization") == "Bearer k"
