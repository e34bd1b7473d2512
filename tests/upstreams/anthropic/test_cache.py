"""What an agent pays for its prompts on Claude, with the prompt cache and without: by the usage that the stand-in reports."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any

import pytest

from tests.upstreams.anthropic.conftest import TOOL, Start, result, system, text, thinking, tool_use, user
from tests.upstreams.anthropic.rules import MINIMUM, blocks, tokens
from tests.upstreams.anthropic.rules import bare as unmarked
from tests.upstreams.anthropic.stand_in import StandIn
from tests.upstreams.anthropic.test_thinking import BOUND, bare

STEPS = 25
MODEL = "claude-opus-5"
MODELS = pytest.mark.parametrize("model", [MODEL, BOUND], ids=["reasoning is free", "reasoning is bound"])


def cost(anthropic: StandIn) -> float:
    """Tokens of all prompts at the input price: a tenth for what is read from the cache, a quarter more for writes."""
    prices = {"input_tokens": 1.0, "cache_read_input_tokens": 0.1, "cache_creation_input_tokens": 1.25}
    return sum(used[name] * price for used in anthropic.usages for name, price in prices.items())


def predicted_reads(anthropic: StandIn) -> int:
    """The tokens of the prefixes that each request has in common with the one before it."""
    total, bodies = 0, anthropic.bodies
    for one, other in pairwise([[unmarked(each) for _, each in blocks(body)] for body in bodies]):
        same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        shared = sum(tokens(block) for block, _ in same)
        total += shared if shared >= MINIMUM.get(bodies[0]["model"], 1024) else 0
    return total


async def loop(start: Start, anthropic: StandIn, chain: str, model: str, calls: int = 1, steps: int = STEPS) -> float:
    """Run an agent that calls tools in each step and sends back role, content and calls; what its prompts cost."""
    messages = [system("Use the tools with care. " * 420), user("Find everything out.")]
    anthropic.usages.clear()
    anthropic.bodies.clear()
    async with start(chain=chain, model=", tokenizer: chars") as client:  # which counts as the stand-in does, nearly
        for step in range(steps):
            ids = [f"toolu_{step}_{n}" for n in range(calls)]
            used = [tool_use(each, key=each) for each in ids]
            anthropic.say(thinking(f"Thought {step}."), text("I look."), *used)
            answered = await client.chat(*messages, model=model, tools=[TOOL], reasoning_effort="low")
            assert answered.status == 200, answered.body
            messages += [bare(answered.message), *(result(each, f"{each}: " + "some words " * 60) for each in ids)]
        metrics = await client.any.metrics()
    assert anthropic.refused == []
    expected, reported = (
        float(re.findall(rf'penstock_cached_tokens_total{{.*source="{source}"}} (.*)', metrics)[0])
        for source in ("expected", "reported")
    )
    assert reported == sum(used["cache_read_input_tokens"] for used in anthropic.usages)
    assert expected == pytest.approx(reported, rel=0.02)
    return cost(anthropic)


@MODELS
async def test_an_agent_loop_costs_a_fifth_with_marks(start: Start, anthropic: StandIn, model: str) -> None:
    plain = await loop(start, anthropic, "[]", model)
    assert sum(used["cache_read_input_tokens"] for used in anthropic.usages) == 0

    marked = "[consolidate_system: {}, compact_tool_results: {}, mark_cache: {}]"
    assert await loop(start, anthropic, marked, model) < 0.2 * plain


@MODELS
@pytest.mark.parametrize("calls", [1, 24], ids=["a call a step", "more calls a step than a mark looks back over"])
async def test_all_of_the_sent_prefix_is_read(start: Start, anthropic: StandIn, model: str, calls: int) -> None:
    await loop(start, anthropic, "[mark_cache: {}]", model, calls, STEPS if calls == 1 else 10)

    reads = sum(used["cache_read_input_tokens"] for used in anthropic.usages)
    assert reads == pytest.approx(predicted_reads(anthropic), rel=0.02)


async def talked(start: Start, anthropic: StandIn, heads: Sequence[str], *, keeps: int = 99) -> list[dict[str, str]]:
    """Have a conversation whose system prompt is another in each turn; the headers of the answers, and the metrics."""
    messages: list[dict[str, Any]] = []
    headers: list[dict[str, str]] = []
    async with start(chain="[mark_cache: {}]") as client:
        for turn, head in enumerate(heads):
            messages.append(user(f"Question {turn}: " + "some words " * 90))
            anthropic.say(text(f"Answer {turn}: " + "other words " * 90))
            first = system(head + "\nYou are a voice assistant. " + "Never unlock the door. " * 400)
            answered = await client.chat(first, *messages[-keeps:], model=MODEL, tools=[TOOL])
            assert answered.status == 200, answered.body
            headers.append(answered.headers)
            messages.append(bare(answered.message))
        metrics = await client.any.metrics()
    found = re.search(r'penstock_unstable_prefixes_total\{policy="mark_cache"\} (\d+)', metrics)
    assert int(found[1] if found else 0) == sum("x-penstock-findings" in each for each in headers)
    return headers


def marked(anthropic: StandIn) -> list[list[str]]:
    """The levels that are marked in each request."""
    return [sorted({level for level, block in blocks(body) if "cache_control" in block}) for body in anthropic.bodies]


ALL, TOOLS = ["messages", "system", "tools"], ["tools"]


async def test_a_clock_in_the_system_prompt_is_told_and_not_paid_for(start: Start, anthropic: StandIn) -> None:
    headers = await talked(start, anthropic, [f"It is 15:0{turn}:10." for turn in range(8)])
    assert marked(anthropic) == [ALL, ALL, *[TOOLS] * 6]
    assert [used["cache_creation_input_tokens"] > 0 for used in anthropic.usages] == [True] * 2 + [False] * 6
    findings = [json.loads(each["x-penstock-findings"]) for each in headers[2:]]
    assert all(each == findings[0] for each in findings)
    assert findings[0][0]["policy"] == "mark_cache"
    at = len('{"role": "system", "content": "It is 15:0')
    assert f"messages[0] changes in each request, from byte {at} of its JSON on" in findings[0][0]["finding"]


async def test_a_beginning_that_stays_the_same_again_is_marked_again(start: Start, anthropic: StandIn) -> None:
    await talked(start, anthropic, ["one", "two", "three", "four", "four", "four", "five", "five"])
    assert marked(anthropic) == [ALL, ALL, TOOLS, TOOLS, *[ALL] * 4]
    assert [used["cache_read_input_tokens"] > 0 for used in anthropic.usages] == [False] * 5 + [True, False, True]


async def test_of_a_window_that_slides_with_each_turn_the_head_is_marked(start: Start, anthropic: StandIn) -> None:
    headers = await talked(start, anthropic, ["the same"] * 8, keeps=5)
    assert marked(anthropic) == [*[ALL] * 4, *[["system", "tools"]] * 4]
    assert all(used["cache_read_input_tokens"] > 0 for used in anthropic.usages[1:])
    assert "the messages behind the system prompt" in headers[-1]["x-penstock-findings"]
