"""The referee finds a chain that changes a model's decisions, and is not misled by the noise of the model.

The stand-in for a model books with the code that it finds in the prompt. In one request of ten, by dice that depend on
the prompt and on how often it came, it does something else.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.__main__ import main
from proxy.server.replay.referee import ComparedRequest, Decision, is_changed, summary
from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Upstream, send
from tests.scripted import answer

NOISE = 0.1
CONFIG = """
models:
  - match: m
    upstream: main
    window: 8192
    prices: {input: 10, output: 10}
    cache: {read: 0.1, minimum: 1024, ttl: 300}
chains:
  default: []
  careful: [{consolidate_system: {}}, {compact_tool_results: {}}]
  harmful: [{window_history: {keep_turns: 2, stride: 1, summary: false}}]
embedding: {kind: none}
"""

Message = dict[str, Any]


def conversations() -> Iterator[Message]:
    """Trips whose booking code was said at the beginning, and is wanted in each request."""
    for trip in range(12):
        messages: list[Message] = [
            {"role": "system", "content": "You book trips."},
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"The booking code is TRIP-{trip}47. Remember it."},
            {"role": "assistant", "content": "I will."},
        ]
        points = []
        for night in range(6):
            messages.append({"role": "user", "content": f"Book night {night} with the booking code."})
            points.append(len(messages))
            messages.append({"role": "assistant", "content": f"Night {night} is booked."})
        yield {"id": f"trip-{trip}", "messages": messages, "request_points": points}


class Model:
    """The stand-in."""

    def __init__(self) -> None:
        self.came: Counter[bytes] = Counter()

    async def respond(self, upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        self.came[received.body] += 1
        dice = random.Random(f"{received.body!r}{self.came[received.body]}")
        prompt = json.dumps(json.loads(received.body)["messages"])
        code = re.search(r"TRIP-\d+", prompt)
        night = re.findall(r"Book night (\d)", prompt)[-1]
        tool = "cancel" if dice.random() < NOISE else "book"
        arguments = json.dumps({"night": night, "code": code[0] if code else "unknown"})
        call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": arguments}}
        said = answer(None, finish="tool_calls", used=(len(prompt) // 4, 20, 0), tool_calls=[call])
        await send(writer, 200, json.dumps(said).encode())


async def referee(lab: Lab, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    config, file = lab.folder / "config.yaml", lab.folder / "trips.jsonl"
    lab.behind.respond = Model().respond
    config.write_text(lab.config(CONFIG))
    file.write_text("\n".join(map(json.dumps, conversations())))
    arguments = ["referee", str(file), "--model", "m", "--config", str(config), *options]
    code = await asyncio.to_thread(main, arguments)
    return code, capsys.readouterr().out


async def test_a_harmful_chain_is_found_beside_its_lower_bill(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = await referee(lab, capsys, "--against", "harmful", "--json")
    report = json.loads(out)
    assert code == 1
    changed = report["kinds"]["arguments"]
    assert changed["interval"][0] > 0.4
    assert 0.05 < report["kinds"]["any"]["noise"] < 0.3
    assert 0 < report["usd"]["b"] < report["usd"]["a"]
    assert len(lab.behind.received) == 3 * report["requests"] == 216


async def test_a_harmless_chain_changes_nothing_beyond_the_noise(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = await referee(lab, capsys, "--against", "careful")
    assert code == 0
    assert "no change beyond the noise" in out


async def test_another_proxy_stands_in_the_place_of_a_chain(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    cut = "default: [window_history: {keep_turns: 1, stride: 1, summary: false}]"
    other = await lab.start(CONFIG.replace("default: []", cut), "other")
    code, out = await referee(lab, capsys, "--against", f"{other}/v1", "--most", "36")
    assert code == 1
    assert f"36 requests of 6 conversations; A is the model's own chain, B is {other}/v1" in out
    changed = r"trip-\d, request \d: arguments: A book\(\{\"code\": \"TRIP-\d+\".*B book\(\{\"code\": \"unknown\""
    assert re.search(changed, out)


async def test_a_referee_needs_a_model_and_something_to_compare(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert (await referee(lab, capsys))[0] == 1
    for wrong in (("--model", "unknown", "--against", "careful"), ("--against", "none")):
        assert (await referee(lab, capsys, *wrong))[0] == 1
    assert not lab.behind.received


def decision(text: str | None, *calls: tuple[str, str]) -> Decision:
    made = [{"id": "c", "type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]
    return Decision.of("chat", 200, json.dumps(answer(text, tool_calls=made)).encode())


ORDER, BOOKED = decision("The order A-1003 ships in 12 days."), decision(None, ("book", '{"night": 1, "code": "A"}'))
CHANGES: dict[str, tuple[Decision, Decision, str | None]] = {
    "other words": (ORDER, decision("In 12 days, order A-1003 will ship."), None),
    "another fact": (ORDER, decision("The order A-1004 ships in 12 days."), "facts"),
    "other JSON": (BOOKED, decision(None, ("book", '{"code":"A","night":1}')), None),
    "another value": (BOOKED, decision(None, ("book", '{"code":"A","night":2}')), "arguments"),
    "another tool": (BOOKED, decision(None, ("cancel", '{"code":"A","night":1}')), "tools"),
    "an error": (BOOKED, Decision.of("chat", 503, b'{"error": {"code": "busy"}}'), "failed"),
}


@pytest.mark.parametrize(("one", "other", "change"), CHANGES.values(), ids=CHANGES)
def test_answers_differ_by_what_they_decide(one: Decision, other: Decision, change: str | None) -> None:
    assert one.change(other) == change


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_rarely_a_change(seed: int) -> None:
    dice = random.Random(seed)

    def ships() -> Decision:
        return decision(f"The order A-{dice.choice((1003, 1003, 1003, 1004))} ships.")

    compared = [ComparedRequest(f"c{n // 5}", n, ships(), ships(), ships(), (1.0, 1.0)) for n in range(100)]
    assert not is_changed(summary(compared))
