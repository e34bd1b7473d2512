"""What every policy owes, whoever wrote it: one test over each file in `policies/`."""

import importlib
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from proxy.chat import ChatRequest, Message
from proxy.chat.wire import flaws
from proxy.config.load import policy_class, policy_names
from proxy.context import Context
from proxy.gateway.chain import BrokenRequest, run
from proxy.policy import Decision, Keep, Policy, Rewrite
from proxy.testing import Example, MemoryArchive, chat, check, conform, context, dump, lifelike, prefixes

POLICIES = policy_names()
WINDOW = 700

PARTS: Sequence[Any] = [
    "mail ana.ruiz@example.com about 3 lamps at 41.90 EUR",
    [{"type": "text", "text": "¿cuánto cuesta? 🙂"}],
    [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}, {"type": "text", "text": "?"}],
    [{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}],
]
"""Contents of user messages and tool results."""
REASONING: Sequence[dict[str, Any]] = [
    {"reasoning_content": "I look it up."},
    {"thinking_blocks": [{"type": "thinking", "thinking": "I look it up.", "signature": "c2ln"}]},
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2ln"}]},
]


@st.composite
def conversations(draw: st.DrawFn) -> ChatRequest:
    """Sound conversations: several system messages anywhere, tool calls in parallel, an exchange open at the end.

    Contents are strings and lists of parts; assistant messages have reasoning of several kinds.
    """
    words: list[str] = draw(st.lists(st.sampled_from(["s", "d", "sA", "sA"]), max_size=4))
    for turn in range(draw(st.integers(1, 12))):
        words.append(f"u{turn}" + draw(st.sampled_from(["", "x" * 300])))
        for step in range(draw(st.integers(0, 3))):
            ids = [f"{turn}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
            words += [f"a!{','.join(ids)}", *(f"t{one}" for one in ids)]
        if draw(st.booleans()):
            words.append(f"a{turn}")
        if draw(st.integers(0, 9)) == 0:
            words.append("slater")
    if not any(word.startswith("u") for word in words[-1:]) and draw(st.booleans()):
        words.append("ulast")
    request = chat(" ".join(words))
    changes = {"user": [{"content": part} for part in PARTS], "tool": [{"content": part} for part in PARTS[:2]]}
    changes["assistant"] = list(REASONING)
    return request.with_messages(
        item.with_changes(**draw(st.sampled_from([{}, *changes.get(item.role, [])]))) for item in request.messages
    )


def made(name: str) -> Policy:
    return policy_class(name)()


def examples_of(name: str) -> Sequence[ChatRequest | Example]:
    """The `EXAMPLES` of a policy's test, if it has any."""
    test = importlib.import_module(f"tests.policies.test_{name}")
    found: Sequence[ChatRequest | Example] = getattr(test, "EXAMPLES", ())
    return found


@pytest.mark.parametrize("name", POLICIES)
class TestEveryPolicy:
    @settings(max_examples=20, deadline=None)
    @given(request_=conversations())
    async def test_decides_purely_and_leaves_a_sound_request(self, name: str, request_: ChatRequest) -> None:
        await check(made(name), request_, context(request_, window=WINDOW))
        await run([(name, made(name))], context(request_, window=WINDOW), strict=True)

    async def test_keeps_to_the_contract_in_conversations_in_which_it_acts(self, name: str) -> None:
        await conform(policy_class(name), examples_of(name))


LEAVING = ("clear_tool_results", "compress_history", "fit_budget", "offload_content", "window_history")


@pytest.mark.parametrize("name", LEAVING)
@pytest.mark.parametrize("archive", [None, MemoryArchive(broken=True)], ids=["no archive", "a broken one"])
async def test_what_cannot_be_archived_stays(name: str, archive: MemoryArchive | None) -> None:
    decided = []
    for each in (lifelike(), *examples_of(name)):
        start = each.start if isinstance(each, Example) else each
        ctx = start if isinstance(start, Context) else context(start, window=9000)
        before, after = [
            await made(name).decide(ctx.incoming, about) for about in (ctx, structs.replace(ctx, archive=archive))
        ]
        assert isinstance(after, Keep)
        decided.append(before)
    assert any(isinstance(before, Rewrite) for before in decided)


def test_decisions_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "import asyncio, sys\n"
        "from tests.test_conformance import POLICIES, made\n"
        "from proxy.policy import Rewrite\n"
        "from proxy.testing import context, dump, lifelike, prefixes\n"
        "async def main():\n"
        "    for name in POLICIES:\n"
        "        for request in list(prefixes(lifelike()))[::10]:\n"
        "            decision = await made(name).decide(request, context(request, window=9000))\n"
        "            shown = dump(decision.request) if isinstance(decision, Rewrite) else decision.why.encode()\n"
        "            sys.stdout.buffer.write(shown)\n"
        "asyncio.run(main())\n"
    )
    command, environments = (
        [sys.executable, "-c", program],
        [{"PYTHONHASHSEED": seed, "PYTHONPATH": "."} for seed in "12"],
    )
    one, other = (subprocess.run(command, env=each, capture_output=True, check=True).stdout for each in environments)
    assert one == other


def test_no_two_policies_bring_a_tool_of_the_same_name() -> None:
    names = [tool.definition.name for name in POLICIES for tool in getattr(policy_class(name), "internal_tools", ())]
    assert len(names) == len(set(names)) > 0


def test_messages_are_plain_json() -> None:
    message = Message({"role": "user", "content": "é"})
    assert json.loads(message.raw) == message


def test_the_conversation_has_all_that_clients_send() -> None:
    request = lifelike()
    text = dump(request).decode()
    for wanted in ("image_url", "input_audio", "@example.com", "signature", "reasoning_content", "41.90", "今天"):
        assert wanted in text
    assert any(isinstance(item.get("content"), list) for item in request.messages if item.role == "tool")
    assert any(len(item.call_ids) > 1 for item in request.messages)
    assert all(not flaws(each) for each in prefixes(request))
    assert [each.messages[-1].role for each in prefixes(chat("s u1 a1! t1 a1 u2"))] == ["user", "tool", "user"]


class Tried(Policy):
    """Takes the word `toner` out of user messages."""

    changes_last_user_message: ClassVar[bool] = True

    how: str = "well"
    """How it goes about it."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        messages = [self._without(item, place) for place, item in enumerate(request.messages)]
        if all(new is old for new, old in zip(messages, request.messages, strict=True)):
            return Keep("nothing to take out")
        return Rewrite(request.with_messages(messages), "took it out")

    def _without(self, item: Message, place: int) -> Message:
        return item.with_texts(lambda text: text.replace("toner", "")) if item.role == "user" else item


class Idle(Tried):
    """Never acts."""

    def _without(self, item: Message, place: int) -> Message:
        return item


class InPlace(Tried):
    """Changes parts of the client's own message."""

    def _without(self, item: Message, place: int) -> Message:
        for part in item.parts:
            if "toner" in part.get("text", ""):
                part.update(text="")  # type: ignore[attr-defined]
        return item


class Undeclared(Tried):
    """Does what it has not declared."""

    changes_last_user_message = False


class Counting(Tried):
    """Numbers the messages from the end."""

    may_grow = True

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        last = len(request.messages)
        return Rewrite(request.with_messages(
            item.with_changes(name=f"n{last - place}") if item.role == "user" else item
            for place, item in enumerate(request.messages)
        ), "numbered")  # fmt: skip


class Stammering(Tried):
    """Adds a word each time."""

    may_grow = True

    def _without(self, item: Message, place: int) -> Message:
        return item.with_texts(lambda text: f"so {text}") if item.role == "user" else item


@pytest.mark.parametrize(("kind", "examples", "told"), [
    pytest.param(Tried, (), None, id="a good one"),
    pytest.param(Tried, (chat("utoner"),), None, id="with an example"),
    pytest.param(Tried, (chat("u1"),), r"does not act in its examples \[0\]", id="an example for nothing"),
    pytest.param(Idle, (), "no conversation made Idle act: bring EXAMPLES", id="it never acts"),
    pytest.param(InPlace, (), "changed the request in place", id="it changes a part in place"),
    pytest.param(Undeclared, (), "the last user message was changed", id="it does more than it declares"),
    pytest.param(Counting, (), "change what was sent before: more than 0.0 per turn", id="it breaks the prefix"),
    pytest.param(Stammering, (), "changes more when it is applied again", id="it is not idempotent"),
    pytest.param(Tried, (Example(context(chat("utoner"), window=9), Idle()),), "its examples", id="by settings"),
])  # fmt: skip
async def test_a_policy_that_does_not_keep_to_the_contract_is_told(
    kind: type[Policy], examples: Sequence[ChatRequest | Example], told: str | None
) -> None:
    with pytest.raises((AssertionError, BrokenRequest), match=told) if told else nullcontext():
        await conform(kind, examples)


async def test_what_the_steps_in_front_break_is_not_counted() -> None:
    behind = Example(chat("s u1 a1 u2 a2 utoner"), before=(Counting(),))
    await conform(Tried, [behind])
