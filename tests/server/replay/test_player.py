"""Requests are played as served: bounds, what a provider's cache reads, and the same bytes resumed or not."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import CacheMarks, ChatRequest, Message, encode
from proxy.chat.errors import ConfigError
from proxy.config.load import load
from proxy.config.settings import Settings
from proxy.context import CacheRules, Context
from proxy.policy import Decision, Keep, Need, Policy
from proxy.server.replay.player import open_player
from proxy.server.replay.report import totals
from proxy.server.replay.run import NAMES, read_bound
from proxy.server.replay.score import OWN, Prompt, PromptHistory, read_prompt, rules_of
from proxy.state.cache import Cache
from proxy.testing import chat, context, tool
from tests.vectors.scripted import Scripted

CONFIG = """
upstreams: {e: {kind: echo}}
models: [{match: m, upstream: e, window: 8192}, {match: tiny, upstream: e, window: 8192}]
chains: {default: [tests.server.replay.test_player: {}]}
judge: {model: tiny}
vectors: none
state: {kind: memory}
"""


class Asking(Policy):
    """Asks the judge, and for vectors."""

    asked: ClassVar[int] = 0

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"embedding", "judge"})

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Keep the request."""
        Asking.asked += 1
        assert ctx.services.judge is not None
        assert ctx.services.embedder is not None
        await ctx.services.judge.replacements([("a", "b")], wait=0)
        await ctx.services.embedder.similarities("a", ["a"], wait=0)
        ctx.services.embedder.prepare(["b"])
        return Keep("asked")


class Slow(Scripted):
    async def load(self) -> None:
        if not self.loads:
            await asyncio.sleep(0.2)
        await super().load()


BODY = encode({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.setattr("proxy.server.build.build_backend", lambda settings: Slow())
    return load(tmp_path / "config.yaml").settings


async def test_models_that_load_and_texts_that_are_compared_later_cost_no_step_time(settings: Settings) -> None:
    async with open_player(settings) as player:
        played = await player.play(BODY)
    assert played.seconds < 0.2
    assert played.unasked == {"judge": 1}
    assert Asking.asked == 1
    async with open_player(settings, loads=False) as player:
        for _ in range(2):
            played = await player.play(BODY, conversation="c")
            assert played.unasked == {"judge": 1, "vectors": 1}
            await player.commit(played)


TOTALS = {"cost": {"own": 1.25}, "values": {"lost": 0, "survival": 0.98}, "violations": {"requests": 2}}


@pytest.mark.parametrize(("text", "told"), [
    ("cost > 1.0", "cost > 1.0: it is 1.25"),
    (" cost>=1.25 ", "cost>=1.25: it is 1.25"),
    ("cost > 130%", None),
    ("lost > 0", None),
    ("survival < 99 %", "survival < 99 %: it is 0.98"),
    ("violations != 0", "violations != 0: it is 2"),
])  # fmt: skip
def test_a_bound_is_broken_or_not(text: str, told: str | None) -> None:
    assert read_bound(text)(TOTALS) == told


@pytest.mark.parametrize("text", ["cost", "cost > x", "price > 1", "cost > 1; x", "__import__('os') > 1", "1 > cost"])
def test_nothing_else_is_a_bound(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME > NUMBER"):
        read_bound(text)


def test_every_name_is_a_figure_of_the_report_and_one_that_is_none_no_success() -> None:
    for name, keys in NAMES.items():
        found: object = totals([])
        for key in keys:
            assert isinstance(found, dict)
            assert key in found or name == "cost_against", name
            found = found.get(key, {})
    with pytest.raises(ConfigError, match="no cost_against"):
        read_bound("cost_against > 1")(TOTALS)


RULES = CacheRules(read=0.1, minimum=0, ttl=300)


async def prompts(*requests: ChatRequest | str, at: float = 0.0) -> list[Prompt]:
    tokens = context().tokens
    return [await read_prompt(chat(each) if isinstance(each, str) else each, tokens, at) for each in requests]


def read(conversation: PromptHistory, prompt: Prompt, rules: CacheRules) -> int:
    return conversation.send(prompt, rules)[OWN].cached


async def test_a_prompt_that_goes_on_reads_the_one_before_it() -> None:
    first, second = await prompts("s u1", "s u1 a1 u2")
    talk = PromptHistory()
    assert read(talk, first, RULES) == 0
    assert read(talk, second, RULES) == first.ends[False][-1]
    priced = talk.send(second, RULES)[OWN]
    tokens = second.ends[False][-1]
    assert (priced.cached, priced.cost) == (tokens, 0.1 * tokens)


async def test_only_whole_steps_from_the_minimum_on_are_read() -> None:
    long = "word " * 400
    requests = [chat("s u1").with_messages([Message({"role": "user", "content": long})] * count) for count in (3, 4)]
    first, second = await prompts(*requests)
    talk = PromptHistory()
    rules = CacheRules(read=0.1, minimum=1024, ttl=300)
    read(talk, first, rules)
    cached = read(talk, second, rules)
    assert cached % 128 == 0
    assert first.ends[False][-1] - 128 < cached <= first.ends[False][-1]
    assert read(PromptHistory(), second, rules) == 0
    short = PromptHistory()
    short.send((await prompts("s u1"))[0], rules)
    assert short.send((await prompts("s u1 a1"))[0], rules)[OWN].cached == 0


async def test_nothing_is_read_after_a_pause_and_marks_end_what_is_cached() -> None:
    talk, (first,), (later,) = PromptHistory(), await prompts("s u1"), await prompts("s u1 a1 u2", at=301)
    talk.send(first, RULES)
    assert talk.send(later, RULES)[OWN].cached == 0
    marked = CacheRules(read=0.1, ttl=300, marked=True)
    request = chat("s u1 a1 u2", tools=[tool()]).with_cache_marks(CacheMarks((0,), tools=True))
    first, second = await prompts(request, chat("s u1 a1 u2 a2 u3", tools=[tool()]))
    talk = PromptHistory()
    talk.send(first, marked)
    assert talk.send(second, marked)[OWN].cached == second.ends[False][2]
    assert rules_of(marked, chat("s u1")) == CacheRules()
    assert rules_of(marked, request) is marked


async def test_marks_that_a_client_moves_break_nothing() -> None:
    def said(text: str, **mark: object) -> Message:
        return Message({"role": "user", "content": [{"type": "text", "text": text, **mark}]})

    control = {"cache_control": {"type": "ephemeral"}}
    talks = [said("one", **control)], [said("one"), said("two", **control)]
    before, after = await prompts(*map(chat("").with_messages, talks))
    assert before.shared(after) == len(before.text)
    assert (before.marks, after.marks) == ([1], [2])


@given(st.lists(st.text('abé"\\', max_size=6), max_size=6), st.lists(st.text('abé"\\', max_size=6), max_size=6))
async def test_the_first_byte_that_differs_is_found(before: Sequence[str], after: Sequence[str]) -> None:
    old, new = [
        (await prompts(chat("").with_messages([Message({"role": "user", "content": text}) for text in texts])))[0]
        for texts in (before, after)
    ]
    same = next(
        (place for place, pair in enumerate(zip(old.text, new.text, strict=False)) if pair[0] != pair[1]),
        min(len(old.text), len(new.text)),
    )
    assert old.shared(new) == same


RESUMED = """
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
async def test_resumed_requests_are_forwarded_like_new_ones(tmp_path: Path, window: int, chain: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(RESUMED.replace("WINDOW", str(window)))
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
