"""What was sent is kept where an answer has signed reasoning, and stays in front of it whatever happens."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Message, encode
from proxy.config.load import load
from proxy.context import Context, Outage
from proxy.gateway import chain
from proxy.gateway.hidden import Hidden, HiddenParts
from proxy.gateway.signed import CHECK, Prefixes, Settled, SignedAnswer, run
from proxy.policy import Decision, Policy, Rewrite
from proxy.server.replay.player import Player, open_player
from proxy.testing import chat, context, profile, tool
from tests.scripted import Kept, answer, prefix_digests
from tests.talk import assistant, user
from tests.test_conversations import turns

THOUGHT = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
SIGNED = {**answer("Yes.")["choices"][0]["message"], "thinking_blocks": THOUGHT}


class Settling:
    count = 0

    def __call__(self, rounds: Sequence[Message] = ()) -> None:
        self.count += 1


@pytest.mark.parametrize(
    ("body", "times"),
    [
        (encode({"choices": [{"index": 0, "message": SIGNED}]}), 1),
        (b'data: {"choices":[{"delta":{"thinking_blocks":[{"signature":"s"}]}}]}\n\n' * 3, 1),
        (b'event: content_block_delta\ndata: {"delta":{"type":"signature_delta","signature":"s"}}\n\n', 1),
        (b'data: {"item":{"type":"reasoning","encrypted_content":"x"}}\n\n', 1),
        (encode({"choices": [{"index": 0, "message": {"content": "Sign it.", "reasoning_content": "Hm."}}]}), 0),
        (encode(answer("The signature is missing.")), 0),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_answer_shows_its_signature_however_it_is_cut(body: bytes, times: int, size: int) -> None:
    settle = Settling()
    watch = SignedAnswer(settle)
    for start in range(0, len(body), size):
        watch.feed(body[start : start + size])
    assert settle.count == times


@pytest.mark.parametrize(("last", "times"), [(SIGNED, 1), ({"role": "assistant", "content": "Yes."}, 0)])
async def test_hidden_reasoning_counts_as_the_shown(last: dict[str, object], times: int) -> None:
    settle = Settling()
    hidden = Hidden(assistant("Yes."), (), Message(last))
    assert await HiddenParts(Kept()).record(hidden, chat("u1"), "tenant", settle)
    assert settle.count == times


CONFIG = """
upstreams: {strict: {kind: openai, base_url: "http://127.0.0.1:9/v1"}}
models:
  - {match: m, upstream: strict, window: 3000, reserve: 0, tokenizer: chars}
  - {match: small, upstream: strict, window: 600, reserve: 0, tokenizer: chars}
chains:
  default: [consolidate_system: {}, compact_tool_results: {}, offload_content: {}, compress_history: {}, pin_context: {},
            offer_recall: {}, reject_oversize: {share: 0.95}]
  other: [compact_tool_results: {over: 400}, offer_recall: {}]
state: {kind: memory}
embedding: {kind: none}
"""
TOOL = json.loads(tool().raw)


class Conversation:
    """A client that sends back what a strict provider answered, which signs each answer over all that it was sent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    async def asks(self, player: Player, reply: Message, *, is_signed: bool = True, **more: Any) -> None:
        body = {"model": "m", "messages": self.messages, "tools": [TOOL]}
        played = await player.play(json.dumps(body).encode(), conversation="one", **more)
        said = json.loads(reply.raw)
        if played.body is not None:
            sent = json.loads(played.body)
            prefixes = prefix_digests(sent)
            for place, message in enumerate(sent["messages"]):
                for block in message.get("thinking_blocks", ()):
                    assert block["signature"] == prefixes[place], f"message {place} of request {len(self.messages)}"
            if is_signed:
                said["thinking_blocks"] = [{"type": "thinking", "thinking": "Hm.", "signature": prefixes[-1]}]
            await player.commit(played, Message(said))
        self.messages.append(said)


@pytest.mark.parametrize("fault", ["none", "replicas without a common store", "changes of the chain"])
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(added=turns(huge=True, most=8), data=st.data())
async def test_no_conversation_loses_its_reasoning(
    fault: str, added: list[list[Message]], data: st.DataObject, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    config = load(tmp_path / "config.yaml", {}).settings
    async with open_player(config) as one, open_player(config) as other:
        client = Conversation()
        for new, behind in pairwise(added):
            client.messages += [json.loads(message.raw) for message in new if message.get("role") != "assistant"]
            reply = behind[0] if behind[0].role == "assistant" else assistant("Go.")
            draw = data.draw(st.integers(0, 3))
            if fault == "none":
                await client.asks(one, reply, is_signed=draw > 0)
            elif fault == "changes of the chain":
                headers = {"x-penstock-bypass": "true"} if draw == 1 else {}
                await client.asks(one, reply, chain="other" if draw == 2 else None, headers=headers)
            else:
                await client.asks(other if draw % 2 else one, reply)


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_an_open_tool_loop_fits_a_smaller_model_without_its_reasoning(wire: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    talk: list[dict[str, Any]] = [{"role": "user", "content": "Read all."}]
    fields: dict[str, Any] = {"model": "m", "tools": [TOOL], "messages": talk}
    if wire == "responses":
        fields = {"model": "m", "tools": [{"type": "function", **TOOL["function"]}], "input": talk}
    async with open_player(load(tmp_path / "config.yaml", {}).settings) as player:
        for call in map("c{}".format, range(8)):
            played = await player.play(json.dumps(fields).encode(), conversation="one")
            asked: dict[str, Any] = {
                "id": call,
                "type": "function",
                "function": {"name": TOOL["function"]["name"], "arguments": "{}"},
            }
            said = Message({"role": "assistant", "content": None, "tool_calls": [asked], "thinking_blocks": THOUGHT})
            await player.commit(played, said)
            result = "".join(f"Line {line} of {call}.\n" for line in range(30))
            if wire == "chat":
                talk += [json.loads(said.raw), {"role": "tool", "tool_call_id": call, "content": result}]
            else:
                talk.append({"type": "reasoning", "id": f"rs_{call}", "summary": [], "encrypted_content": "c2ln"})
                talk.append({"type": "function_call", "call_id": call, **asked["function"]})
                talk.append({"type": "function_call_output", "call_id": call, "output": result})
        assert (played.body or b"").count(b'"signature"' if wire == "chat" else b'"encrypted_content"') == 7
        moved = await player.play(json.dumps({**fields, "model": "small"}).encode(), conversation="one")
    assert moved.body is not None
    assert b"Line 29 of c7" in moved.body
    assert not any(sign in moved.body for sign in (b'"signature"', b'"encrypted_content"'))


@pytest.mark.parametrize("is_signed", [True, False])
async def test_another_process_knows_what_was_sent_before_a_signed_answer(is_signed: bool) -> None:
    memory, later = Kept(), chat("u1 a1 u2 a2 u3")
    begun = [later.messages[0], later.messages[1].with_changes(thinking_blocks=THOUGHT), later.messages[2]]
    sent, later = later.with_messages(begun), later.with_messages([*begun, *later.messages[3:]])
    outgoing = sent.with_messages([*begun[:2], user("Shorter.")])
    one = Prefixes(memory)
    settle = Settled(one, "t\0s", Outage()).record(sent, outgoing)
    if is_signed:
        settle(())
    await one.aclose()
    for tenant in ("t", "u"):
        found = await Settled(Prefixes(memory), f"{tenant}\0s", Outage()).find(later, [3], [3])
        known = None if found is None else found.request.messages
        assert known == (outgoing.messages if is_signed and tenant == "t" else None)


class Unruly(Policy):
    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        messages = [each.with_changes(content=each.text.upper()) for each in request.messages[:-1]]
        return Rewrite(request.with_messages([*messages, request.messages[-1]]), "loud")


async def test_a_chain_that_changed_what_was_sent_before_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner puts back what it holds. Should it ever fail to, the check sends the request without the rewriting."""
    monkeypatch.setattr(chain, "_with_frozen", lambda decision, before, frozen: decision)
    request = chat("u1 a1 u2")
    first, said, last = request.messages
    request = request.with_messages([first, said.with_changes(thinking_blocks=THOUGHT), last])
    settled = Settled(Prefixes(Kept()), "t\0s", Outage())
    settled.record(chat("u1"), chat("u1"))
    ctx = context(request, model=profile(binds_reasoning=True))
    outcome, _ = await run([("unruly", Unruly())], ctx, settled)
    assert outcome.request.messages == request.messages
    assert [(step.policy, step.verdict) for step in outcome.steps] == [("unruly", "rewrite"), (CHECK, "fail")]
