"""What an agent pays for its prompts on Claude, with the prompt cache and without: by the usage that the stand-in reports."""

import pytest

from tests.upstreams.anthropic.conftest import TOOL, Start, result, system, text, thinking, tool_use, user
from tests.upstreams.anthropic.stand_in import StandIn
from tests.upstreams.anthropic.test_thinking import bare

STEPS = 41
MODEL = "claude-opus-5"


def cost(anthropic: StandIn) -> float:
    """Tokens of all prompts at the input price: a tenth for what is read from the cache, a quarter more for writes."""
    prices = {"input_tokens": 1.0, "cache_read_input_tokens": 0.1, "cache_creation_input_tokens": 1.25}
    return sum(used[name] * price for used in anthropic.usages for name, price in prices.items())


async def loop(start: Start, anthropic: StandIn, chain: str) -> float:
    """Run an agent that calls a tool in each step and sends back role, content and calls; what its prompts cost."""
    messages = [system("Use the tools with care. " * 420), user("Find everything out.")]
    anthropic.usages.clear()
    async with start(chain=chain) as client:
        for step in range(STEPS):
            anthropic.say(thinking(f"Thought {step}."), text("I look."), tool_use(f"toolu_{step}", key=str(step)))
            answered = await client.chat(*messages, model=MODEL, tools=[TOOL], reasoning_effort="low")
            assert answered.status == 200, answered.text
            messages += [bare(answered.message), result(f"toolu_{step}", f"Result {step}: " + "some words " * 60)]
    assert anthropic.refused == []
    return cost(anthropic)


@pytest.mark.parametrize(
    "marked", ["[mark_cache: {}]", "[consolidate_system: {}, compact_tool_results: {}, mark_cache: {}]"]
)
async def test_an_agent_loop_costs_a_fifth_with_marks(start: Start, anthropic: StandIn, marked: str) -> None:
    plain = await loop(start, anthropic, "[]")
    assert sum(used["cache_read_input_tokens"] for used in anthropic.usages) == 0

    assert await loop(start, anthropic, marked) < 0.2 * plain
