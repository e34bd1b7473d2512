"""What the proxy says that its chain saves, against an independent count of the requests that reached the upstream."""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from proxy.models.encodings import load_encoder
from tests.e2e.conftest import Lab
from tests.e2e.servers import DEFAULT_ANSWER, answering

CONFIG = """
models:
  - {match: "*", upstream: main, window: 200000, tokenizer: o200k_base, prices: {input: 5, output: 25},
     cache: {read: 0.1, write: {write}, minimum: 1024, ttl: 300}}
state: {kind: memory}
chains: {default: [{chain}]}
"""
WORDS = "the quick brown fox jumps over a lazy dog while nobody looks and the sun goes down behind the old barn "
FILE = "".join(f"{one} {other} {WORDS}\n" for one, other in product(WORDS.split(), "abcde"))
TOOL = {"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": {}}}


class Bill:
    """Counts as a provider does: a prefix shared with an earlier prompt is read from its cache, from 1,024 tokens up."""

    def __init__(self) -> None:
        self.cost, self.past = 0.0, list[str]()
        self.tokens = load_encoder("o200k_base")

    def add(self, body: Mapping[str, Any]) -> None:
        text = "".join([json.dumps(body.get("tools") or []), *map(json.dumps, body["messages"])])
        shared = self.tokens(text[: max((shared_characters(text, each) for each in self.past), default=0)])
        shared = shared if shared >= 1024 else 0
        self.past.append(text)
        self.cost += shared * 0.1 + (self.tokens(text) - shared) * 1.25


def shared_characters(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def chat(turns: int) -> Iterator[dict[str, Any]]:
    """The requests of a conversation that grows by a long question and a short answer each turn."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Answer briefly. " + WORDS * 60}]
    for turn in range(turns):
        messages += [{"role": "user", "content": f"Question {turn}: " + WORDS * 30}]
        yield {"model": "m", "messages": list(messages)}
        messages += [{"role": "assistant", "content": f"Answer {turn}. " + WORDS * 10}]


def agent(calls: int) -> Iterator[dict[str, Any]]:
    """The requests of an agent that reads a long file in each step."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find the fault. " + WORDS * 60}]
    for step in range(calls):
        yield {"model": "m", "messages": list(messages), "tools": [TOOL]}
        function = {"name": "read", "arguments": json.dumps({"path": f"src/{step}.py"})}
        call = {"id": f"c{step}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{step}", "content": FILE.replace("brown", f"brown-{step}")},
        ]
    yield {"model": "m", "messages": list(messages), "tools": [TOOL]}


CUT = "window_history: {keep_turns: 4, stride: 1, summary: false}"
SHORTEN = "compact_tool_results: {over: 600, read_again: 0, turns: 30}"


@pytest.mark.parametrize(
    ("requests", "chain", "is_cheaper"),
    [
        pytest.param(chat, CUT, False, id="a cut in each turn"),
        pytest.param(agent, SHORTEN, True, id="short forms of what was read"),
        pytest.param(chat, SHORTEN, None, id="nothing to do"),
    ],
)
async def test_what_is_saved_is_net(lab: Lab, requests: Any, chain: str, is_cheaper: bool | None) -> None:
    """A cut in each turn removes a third of the tokens, and makes the bill higher: nothing of that is a saving."""
    unchanged, sent = Bill(), Bill()
    client = await lab.client(CONFIG, chain="{" + chain + "}", write=1.25)
    for body in requests(14):
        unchanged.add(body)
        record = await client.record(await client.post("/v1/chat/completions", body))
        sent.add(json.loads(lab.behind.last.body))
    usd = {
        prompt: sum(
            float(line.split()[-1])
            for line in (await client.metrics()).splitlines()
            if line.startswith("penstock_prompt_cost_usd_total") and f'prompt="{prompt}"' in line
        )
        for prompt in ("sent", "unchanged")
    }
    assert usd["sent"] / usd["unchanged"] == pytest.approx(sent.cost / unchanged.cost, rel=0.04)
    if is_cheaper is None:
        assert usd["sent"] == usd["unchanged"]
    else:
        assert (sent.cost < unchanged.cost) is (usd["sent"] < usd["unchanged"]) is is_cheaper
    assert record["usd_saved"] == pytest.approx(record["usd_unchanged"] - record["usd_estimated"])


async def test_a_cache_that_is_never_read_is_not_counted_on(lab: Lab) -> None:
    """An upstream that reports no reads charges for each prompt in full."""
    usage = {"prompt_tokens": 3000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
    lab.behind.respond = answering(json.dumps({**json.loads(DEFAULT_ANSWER), "usage": usage}).encode())
    client = await lab.client(CONFIG, chain="{" + SHORTEN + "}", write=1.0)
    answers = [await client.post("/v1/chat/completions", body) for body in chat(14)]
    records = [await client.record(answer) for answer in answers]
    costs = [record["usd_estimated"] * 1e6 / 5 / record["tokens_after"] for record in records]
    assert [costs[0], costs[-1]] == pytest.approx([1.0, 1.0], rel=0.01)
    assert costs[3] < 0.5, "until that is known it is believed"
