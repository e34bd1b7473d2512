"""What an agent pays for its prompts on Claude, with the prompt cache and without: by the usage that the stand-in reports."""

from itertools import pairwise, takewhile

import pytest

from tests.upstreams.anthropic.conftest import TOOL, Start, result, system, text, thinking, tool_use, user
from tests.upstreams.anthropic.rules import MINIMUM, blocks, tokens
from tests.upstreams.anthropic.rules import bare as unmarked
from tests.upstreams.anthropic.stand_in import StandIn
from tests.upstreams.anthropic.test_thinking import BOUND, bare

STEPS = 25
MODELS = pytest.mark.parametrize("model", ["claude-opus-5", BOUND], ids=["reasoning is free", "reasoning is bound"])


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
    async with start(chain=chain) as client:
        for step in range(steps):
            ids = [f"toolu_{step}_{n}" for n in range(calls)]
            used = [tool_use(each, key=each) for each in ids]
            anthropic.say(thinking(f"Thought {step}."), text("I look."), *used)
            answered = await client.chat(*messages, model=model, tools=[TOOL], reasoning_effort="low")
            assert answered.status == 200, answered.text
            messages += [bare(answered.message), *(result(each, f"{each}: " + "some words " * 60) for each in ids)]
    assert anthropic.refused == []
    return cost(anthropic)


@MODELS
async def test_an_agent_loop_costs_a_fifth_with_marks(start: Start, anthropic: StandIn, model: str) -> None:
    plain = await loop(start, anthropic, "[]", model)
    assert sum(used["cache_read_input_tokens"] for used in anthropic.usages) == 0

    marked = "[consolidate_system: {}, compact_tool_results: {}, mark_cache: {}]"
    assert await loop(start, anthropic, marked, model) < 0.2 * plain


@MODELS
@pytest.mark.parametrize("calls", [1, 24], ids=["a call a step", "more calls a step than a mark looks back over"])
async def test_all_of_the_prefix_that_was_sent_before_is_read(
    start: Start, anthropic: StandIn, model: str, calls: int
) -> None:
    await loop(start, anthropic, "[mark_cache: {}]", model, calls, STEPS if calls == 1 else 10)

    reads = sum(used["cache_read_input_tokens"] for used in anthropic.usages)
    assert reads == pytest.approx(predicted_reads(anthropic), rel=0.02)
