"""What every policy owes, whoever wrote it: one test over each file in `policies/`."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chain import run
from proxy.chat import ChatRequest, Message, encode
from proxy.config import policy_class, policy_names
from proxy.policy import Keep, Policy, Rewrite
from proxy.testing import chat, context
from proxy.wire import damage

POLICIES = policy_names()
WINDOW = 700


@st.composite
def conversations(draw: st.DrawFn) -> ChatRequest:
    """Sound conversations: several system messages anywhere, tool calls in parallel, an exchange open at the end."""
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
    return chat(" ".join(words))


def made(name: str) -> Policy:
    return policy_class(name)()


def dump(request: ChatRequest) -> bytes:
    """Everything of a request, as bytes that were not taken from a memo."""
    return encode([request.model, list(request.messages), list(request.tools), request.rest, list(request.order)])


@pytest.mark.parametrize("name", POLICIES)
class TestEveryPolicy:
    @settings(max_examples=60, deadline=None)
    @given(request_=conversations())
    async def test_decides_purely_and_leaves_a_sound_request(self, name: str, request_: ChatRequest) -> None:
        policy, ctx, before = made(name), context(request_, window=WINDOW), dump(request_)

        first = await policy.apply(request_, ctx)
        second = await policy.apply(request_, ctx)

        assert dump(request_) == before, "the request was changed in place"
        assert type(first) is type(second)
        if isinstance(first, Rewrite) and isinstance(second, Rewrite):
            assert dump(first.request) == dump(second.request), "the same request gave two answers"
            assert first.why == second.why
            assert dict(first.facts) == dict(second.facts)
            assert not damage(request_, first.request)
            again = await policy.apply(first.request, context(request_, window=WINDOW))
            assert isinstance(again, Keep) or (
                isinstance(again, Rewrite) and dump(again.request) == dump(first.request)
            ), "applying it twice changes more"

    @settings(max_examples=30, deadline=None)
    @given(request_=conversations())
    async def test_needs_no_mercy_from_the_runner(self, name: str, request_: ChatRequest) -> None:
        await run([(name, made(name))], context(request_, window=WINDOW), strict=True)

    async def test_changes_a_sent_prefix_no_more_often_than_it_declares(self, name: str) -> None:
        policy = made(name)
        sent: list[bytes] = []
        breaks = turns = 0
        for request in growing():
            decision = await policy.apply(request, context(request, window=10**6))
            forwarded = decision.request if isinstance(decision, Rewrite) else request
            raws = [message.raw for message in forwarded.messages]
            turns += 1
            breaks += raws[: len(sent)] != sent[: len(raws)] and sent != []
            sent = raws
        assert breaks <= policy.prefix_breaks_per_turn * turns

    def test_documents_and_defaults_every_field(self, name: str) -> None:
        kind = policy_class(name)
        kind()  # every field has a default, so `- name: {}` is a legal line
        assert kind.__doc__
        for field, about in kind.model_fields.items():
            assert about.description, f"{field} has no docstring"

    def test_is_frozen(self, name: str) -> None:
        policy = made(name)
        with pytest.raises(ValueError, match="frozen"):
            policy.timeout = 2.0


def growing() -> Iterator[ChatRequest]:
    """One conversation, turn by turn, as a client sends it."""
    words = ["s", "s2", "d"]
    for turn in range(120):
        words += [f"u{turn}"]
        yield chat(" ".join(words))
        words += [f"a{turn}!", f"t{turn}", f"a{turn}"]


def test_decisions_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "import asyncio, sys\n"
        "from tests.test_conformance import POLICIES, dump, growing, made\n"
        "from proxy.policy import Rewrite\n"
        "from proxy.testing import context\n"
        "async def main():\n"
        "    for name in POLICIES:\n"
        "        for request in growing():\n"
        "            decision = await made(name).apply(request, context(request, window=900))\n"
        "            shown = dump(decision.request) if isinstance(decision, Rewrite) else decision.why.encode()\n"
        "            sys.stdout.buffer.write(shown)\n"
        "asyncio.run(main())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_messages_are_plain_json() -> None:
    message = Message({"role": "user", "content": "é"})
    assert json.loads(message.raw) == message
