"""A conversation is forwarded with the same bytes whether its requests resume at what the one before had, or not."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.chat import Message
from proxy.config.load import load
from proxy.server.replay.player import open_player
from proxy.state.cache import Cache

CONFIG = """
upstreams: {main: {kind: openai, base_url: "http://127.0.0.1:9/v1"}}
models: [{match: "*", upstream: main, window: WINDOW, tokenizer: chars}]
chains:
  default: [isolate_tasks: {}, consolidate_system: {}, compact_tool_results: {}, offload_content: {}, compress_history: {},
    pin_context: {}, recall_history: {}, filter_tools: {keep: 4}, offer_recall: {}, reject_oversize: {}, mark_cache: {}]
  checks: [check_facts: {facts: ["The capital of Australia is Canberra."]}, inject_facts: {}, resolve_clashes: {},
    window_history: {keep_turns: 6, stride: 2}, clear_tool_results: {}, keep_notes: {}, alternate_roles: {}]
embedding: {kind: none}
state: {kind: memory}
"""
WORDS = (
    *("ledger", "tenant", "invoice", "gateway", "export", "audit", "session", "archive", "region", "contract"),
    *("shipment", "refund", "branch"),
)
SAID = (
    *("Always answer in French.", "My budget is 900 euros.", "What was the invoice of tenant 17?"),
    *("Thanks!", "Go on."),
)


def agent(chance: random.Random, steps: int) -> Iterator[dict[str, Any]]:
    """The requests of a conversation that grows; now and then its last answer is made again."""

    def words(count: int) -> str:
        return " ".join(chance.choices(WORDS, k=count)) + f" {chance.randrange(999)}."

    messages: list[dict[str, Any]] = [{"role": "system", "content": words(40)}]
    tools = [{"type": "function", "function": {"name": f"{word}_tool", "description": words(9)}} for word in WORDS]
    for step in range(steps):
        if step % 6 == 0:
            pasted = "\n\n".join(words(30) for _ in range(40)) if step % 18 == 12 else ""
            said = chance.choice(SAID) + (f"\n\n# Report\n\n{pasted}" if pasted else "")
            messages.append({"role": "user", "content": said})
        yield {"model": "m", "messages": messages, "tools": tools}
        if step % 7 == 3:
            yield {"model": "m", "messages": [*messages[:-1], {**messages[-1], "content": words(5)}], "tools": tools}
        if step % 6 == 5:
            messages = [*messages, {"role": "assistant", "content": words(20)}]
            continue
        calls = [f"c{step}{place}" for place in range(chance.randrange(1, 4))]
        functions = [{"name": f"{chance.choice(WORDS)}_tool", "arguments": json.dumps({"q": words(3)})} for _ in calls]
        made = [{"id": id, "type": "function", "function": each} for id, each in zip(calls, functions, strict=True)]
        rows = [[{"id": chance.randrange(9**6), "name": words(8)} for _ in range(12)] for _ in calls]
        results = [(id, json.dumps(each)) for id, each in zip(calls, rows, strict=True)]
        messages = [*messages, {"role": "assistant", "content": None, "tool_calls": made}]
        messages += [{"role": "tool", "tool_call_id": id, "content": content} for id, content in results]


@pytest.mark.parametrize(("window", "chain"), [(100_000, "default"), (6_000, "default"), (6_000, "checks")])
async def test_resumed_requests_are_forwarded_like_those_that_begin_anew(
    tmp_path: Path, window: int, chain: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.replace("WINDOW", str(window)))
    settings = load(path).settings
    async with open_player(settings) as resuming, open_player(settings) as anew:
        preparation = anew._preparation
        preparation._services = replace(preparation._services, parsed=Cache(0))
        for body in agent(random.Random(7), 40):
            raw = json.dumps(body).encode()
            one, other = [await each.play(raw, chain=chain, conversation="c") for each in (resuming, anew)]
            assert one.body == other.body
            assert [step.why for step in one.done.outcome.steps] == [step.why for step in other.done.outcome.steps]
            assert one.estimate == other.estimate or one.effects == other.effects
            for player, played in ((resuming, one), (anew, other)):
                await player.commit(played, Message({"role": "assistant", "content": "Done."}))
