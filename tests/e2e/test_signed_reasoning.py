"""Signed reasoning survives: a strict upstream signs each answer over the exact prefix and refuses a broken one."""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from proxy.testing import tool
from tests.e2e.conftest import Client, Lab
from tests.e2e.servers import Received, Upstream, filled, say, send
from tests.scripted import answer, prefix_digests
from tests.talk import calls, result, user

Message = dict[str, Any]

FULL = (
    "[consolidate_system: {}, compact_tool_results: {over: 600, read_again: 0, turns: 30}, offload_content: {}, "
    "compress_history: {}, pin_context: {}, "
    "recall_history: {}, filter_tools: {}, offer_recall: {}, reject_oversize: {share: 0.95}]"
)
CONFIG = """
upstreams: {strict: {kind: openai, base_url: "{url}"}}
models:
  - match: m
    upstream: strict
    window: {window}
    reserve: 0
    cache: {read: 0.1, write: 1, minimum: 1024, ttl: 300}
chains: {default: {chain}}
state: {state}
"""


@dataclass
class Strict:
    """Answers as it is told, signs each answer over all that it was sent, and refuses what a signature does not fit."""

    answers: list[Message] = field(default_factory=list)
    broken: int = 0
    bodies: list[Any] = field(default_factory=list)

    async def __call__(self, upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        body = json.loads(received.body)
        self.bodies.append(body)
        digests = prefix_digests(body)
        for place, message in enumerate(body["messages"]):
            if any(block["signature"] != digests[place] for block in message.get("thinking_blocks", ())):
                self.broken += 1
                await send(writer, 400, b'{"error":{"message":"Invalid `signature` in `thinking` block"}}')
                return
        blocks = [{"type": "thinking", "thinking": "Let me see.", "signature": digests[-1]}]
        message = self.answers.pop(0)
        finish = "tool_calls" if "tool_calls" in message else "stop"
        await say(writer, received, answer(**message, thinking_blocks=blocks, finish=finish))


MANY = [tool(name, f"Reads {name} of a shop.") for name in ("orders", *(f"thing_{n}" for n in range(60)))]


def called(tool: str, number: int, /, **arguments: Any) -> Message:
    return calls(f"c{number}", name=tool, arguments=json.dumps(arguments))


def read(number: int, size: int) -> Message:
    """A result in JSON with white space, as tools give them."""
    rows = [
        {"id": f"ORD-{number}-{row}", "state": "shipped", "note": f"left the warehouse {row}"} for row in range(size)
    ]
    return result(json.dumps(rows, indent=2), f"c{number}")


@dataclass
class Talk:
    """A client that sends the whole conversation each time, reasoning included."""

    client: Client
    tools: Sequence[Message] = ()
    messages: list[Message] = field(default_factory=list)

    async def ask(self, message: Message, headers: Any = None, **fields: Any) -> Message:
        self.messages.append(message)
        if self.tools:
            fields["tools"] = self.tools
        answer = await self.client.chat(messages=self.messages, headers=headers, **fields)
        assert answer.status == 200, answer.body
        self.messages.append(answer.json["choices"][0]["message"])
        return self.messages[-1]


async def begin(
    lab: Lab, answers: Sequence[Message], tools: Sequence[Message] = (), *, window: int = 100_000
) -> tuple[Strict, Talk, list[str]]:
    """Start two proxies that share nothing; the client talks to the first."""
    lab.behind.respond = strict = Strict([*answers])
    bases = await lab.two(CONFIG, chain=FULL, window=window, state="{kind: memory}")
    return strict, Talk(Client(bases[0], lab.http), tools), bases


def thoughts(strict: Strict) -> int:
    """Return how many messages with reasoning the last request had."""
    return sum("thinking_blocks" in message for message in strict.bodies[-1]["messages"])


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_full_window_is_begun_anew_with_a_user_message(restarts: bool, lab: Lab) -> None:
    """The reasoning of before leaves with it, that of after stays, and so a replica without a memory decides."""
    answers = [{"content": f"Answer {n}. " + "More of it follows here. " * 40} for n in range(40)]
    strict, talk, bases = await begin(lab, answers, window=6000)
    kept = []
    for turn in range(40):
        talk.client.base = bases[turn % 2 if restarts else 0]
        more = f"I am allergic to nuts. And the invoices? ({turn}) " + "Some more words of mine. " * 10
        await talk.ask(user(asked := more if turn else "Where are my orders?"))
        kept.append(thoughts(strict))
        assert strict.bodies[-1]["messages"][-1]["content"] == asked
    assert strict.broken == 0
    assert 1 <= sum(count == 0 for count in kept[1:]) <= 20, kept
    assert all(after in (0, before + 1) for before, after in pairwise(kept)), kept


async def test_results_leave_room_for_those_to_come(lab: Lab) -> None:
    """In a small window an open tool loop goes on; what was shortened stays so, also where nothing is remembered."""
    answers = [called("orders", n, key="all") for n in range(12)]
    strict, talk, bases = await begin(lab, answers, MANY[:1], window=8000)
    await talk.ask(user("Where are my orders?"))
    for number in range(10):
        talk.client.base = bases[number % 2]
        await talk.ask(read(number, 60))
        assert thoughts(strict) == number + 1
    assert strict.broken == 0
    results = [each["content"] for each in strict.bodies[-1]["messages"] if each["role"] == "tool"]
    assert all(f"ORD-{number}-" in each for number, each in enumerate(results))
    assert sum("recall(" in each for each in results) >= 5


async def test_an_open_tool_loop_is_never_cut(lab: Lab) -> None:
    """What does not fit is refused, rather than sent without the reasoning that the loop needs."""
    answers = [called("orders", n, key="all") for n in range(40)]
    strict, talk, _ = await begin(lab, answers, MANY[:1], window=6000)
    message: Message = user("Where are my orders?")
    for number in range(40):
        try:
            await talk.ask(message)
        except AssertionError as refused:
            assert "context_length_exceeded" in str(refused)
            break
        assert thoughts(strict) == number
        message = read(number, 12)
    assert strict.broken == 0
    assert number > 5


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_large_result_of_an_internal_tool_stays_as_the_model_read_it(is_restarted: bool, lab: Lab) -> None:
    """It was sent as it is within the loop, so the answer behind it is bound to that."""
    lab.behind.respond = strict = Strict([called("orders", 1, key="all"), called("invoices", 2, key="all")])
    config = filled(CONFIG, chain=FULL, window=20_000, state=f'{{directory: "{lab.folder}/state"}}')
    talk = Talk(await lab.client(config), [MANY[0], tool("invoices", "Reads invoices of a shop.")])
    talk.messages.append({"role": "system", "content": "Help a shop. " * 600})
    await talk.ask(user("Where are my orders?"))
    await talk.ask(read(1, 600))
    handle = re.findall(r'recall\(\\?"([a-z2-7]+)', json.dumps(strict.bodies[-1]["messages"]))[0]
    strict.answers += [called("recall", 7, handle=handle), {"content": "They are shipped."}, {"content": "Bye."}]
    await talk.ask(result("[]", "c2"))
    if is_restarted:
        talk.client = await lab.client(config, name="again")
    await talk.ask(user("Thanks."))
    assert strict.broken == 0
    assert any(len(each["content"]) > 6_500 for each in strict.bodies[-1]["messages"] if each["role"] == "tool")


async def test_a_tool_that_must_be_called_is_offered_also_where_it_was_left_out(lab: Lab) -> None:
    """The reasoning was made without it, so it leaves."""
    strict, talk, _ = await begin(lab, [{"content": "They are on their way."}, called("thing_59", 1, key="all")], MANY)
    await talk.ask(user("Where are my orders?"))
    choice = {"type": "function", "function": {"name": "thing_59"}}
    await talk.ask(user("Now the thing."), tool_choice=choice)
    offered = [[each["function"]["name"] for each in body["tools"]] for body in strict.bodies]
    assert ["thing_59" in names for names in offered] == [False, True]
    assert strict.broken == 0
    assert strict.bodies[1]["tool_choice"] == choice


async def test_the_rounds_of_internal_tools_go_with_their_reasoning(lab: Lab) -> None:
    answers = [
        called("search_tools", 7, query="invoices"),
        called("call_tool", 1, name="thing_59", arguments={"key": "x"}),
        called("search_tools", 8, query="more"),  # the chain that offered it is skipped by now
        {"content": "Done."},
        {"content": "Bye."},
    ]
    strict, talk, _ = await begin(lab, answers, MANY)
    asked = await talk.ask(user("Where are my orders?"))
    assert asked["tool_calls"][0]["function"]["name"] == "thing_59"
    done = await talk.ask(read(1, 60), {"x-penstock-bypass": "true"})
    assert done["content"] == "Done."
    await talk.ask(user("Thanks."))
    assert strict.broken == 0
    signed = [each for each in strict.bodies[-1]["messages"] if "thinking_blocks" in each]
    assert [each["tool_calls"][0]["function"]["name"] for each in signed[:2]] == ["search_tools", "call_tool"]
    assert len(signed) == 4
