"""What an agent's loop costs at Anthropic, with marks for its prompt cache and without."""

from itertools import pairwise, takewhile
from typing import Any

import pytest

from proxy.context import CacheRules
from proxy.economics import reported_cost
from tests.upstreams.anthropic.conftest import MODEL, TOOL, Client, Start, assistant, call, result, system, user
from tests.upstreams.anthropic.rules import MINIMUM, bare, blocks, tokens
from tests.upstreams.anthropic.stand_in import StandIn

RULES = CacheRules(read=0.1, write=1.25)
STEPS = 41
GUIDE = " ".join(f"Rule {n}: look up key {n} before you answer about it." for n in range(900))


async def run_loop(client: Client, anthropic: StandIn, parallel: int) -> None:
    """An agent that calls tools in each step and sends all of its history again."""
    messages: list[dict[str, Any]] = [system(GUIDE), user("Find out about all keys.")]
    for step in range(STEPS):
        answered = await client.chat(*messages, tools=[TOOL])
        assert answered.status == 200, answered.text
        anthropic.cache.now += 20
        ids = [f"toolu_{step}_{n}" for n in range(parallel)]
        calls = [call(each, f'{{"key":"{each}"}}') for each in ids]
        messages += [assistant(None, *calls), *(result(each, f"{each} says {step}. " * 20) for each in ids)]


def cost(anthropic: StandIn) -> float:
    """Of all prompts so far, in input tokens."""
    total = 0.0
    for used in anthropic.usages:
        read, written = used["cache_read_input_tokens"], used["cache_creation_input_tokens"]
        total += reported_cost(RULES, used["input_tokens"] + read + written, read, written)
    return total


def predicted_reads(anthropic: StandIn) -> int:
    """The tokens of the prefixes that each request has in common with the one before it."""
    total = 0
    for one, other in pairwise([[bare(each) for _, each in blocks(body)] for body in anthropic.bodies]):
        same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        shared = sum(tokens(block) for block, _ in same)
        total += shared if shared >= MINIMUM[MODEL] else 0
    return total


@pytest.mark.parametrize("parallel", [1, 24], ids=["a call a step", "more calls a step than a mark looks back over"])
async def test_marks_make_an_agents_loop_cost_a_fifth(start: Start, anthropic: StandIn, parallel: int) -> None:
    async with start() as client:
        await run_loop(client, anthropic, parallel)
    unmarked = cost(anthropic)
    assert not any(used["cache_read_input_tokens"] for used in anthropic.usages)

    anthropic.bodies.clear()
    anthropic.usages.clear()
    async with start(chain="[mark_cache: {}]") as client:
        await run_loop(client, anthropic, parallel)
    assert anthropic.refused == []
    assert cost(anthropic) < unmarked * 0.2

    reads = sum(used["cache_read_input_tokens"] for used in anthropic.usages)
    assert reads == pytest.approx(predicted_reads(anthropic), rel=0.02)
