"""Answers with parts of other types than their form says, on each wire: the upstream's fault, and none of Penstock's."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.chat.errors import UpstreamFailed
from proxy.gateway.bridge import BridgedUpstream
from proxy.gateway.loop import send
from proxy.gateway.restoring import restored
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.wires import WIRES
from proxy.wires.messages import Blocks
from tests.scripted import Recall, Scripted, read, reply, streaming

ODD: tuple[Any, ...] = (None, True, 0, -1, 1.5, "", "x", [], {}, [[]], [{}], [None], {"a": [1]}, [1, "a", None, {}])
TIMES = 300

CALL = {"id": "r1", "type": "function", "function": {"name": "recall", "arguments": "{}"}}
SAID = {"role": "assistant", "content": "Wait.", "tool_calls": [CALL]}
BLOCKS = [{"type": "text", "text": "Wait."}, {"type": "tool_use", "id": "r1", "name": "recall", "input": {}}]
ITEMS = [
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
    {"type": "function_call", "id": "fc_1", "call_id": "r1", "name": "recall", "arguments": "{}"},
]
DONE = {"id": "resp_1", "status": "completed", "output": ITEMS, "usage": {"input_tokens": 1}}
WHOLE: dict[str, Any] = {
    "chat": {"choices": [{"index": 0, "message": SAID, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}},
    "messages": {"type": "message", "content": BLOCKS, "stop_reason": "tool_use", "usage": {"input_tokens": 1}},
    "responses": DONE,
}
EVENTS: dict[str, list[Any]] = {
    "chat": [
        {"choices": [{"index": 0, "delta": {"content": "Wait."}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **CALL}]}, "finish_reason": "tool_calls"}]},
    ],
    "messages": [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "citations": []}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Wait."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"url": "u"}}},
        {"type": "content_block_start", "index": 1, "content_block": BLOCKS[1]},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ],
    "responses": [
        {"type": "response.created", "sequence_number": 0, "response": {**DONE, "output": []}},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": ITEMS[0]},
        {"type": "response.output_text.delta", "sequence_number": 2, "output_index": 0, "content_index": 0, "delta": "a"},
        {"type": "response.output_item.added", "sequence_number": 3, "output_index": 1, "item": ITEMS[1]},
        {"type": "response.completed", "sequence_number": 4, "response": DONE},
    ],
}  # fmt: skip


def call_of(wire: str) -> Call:
    """A call that offers the tool, in a request with a secret."""
    function = Recall.definition["function"]
    tools: dict[str, list[Any]] = {
        "chat": [Recall.definition],
        "messages": [{"name": "recall", "description": function["description"], "input_schema": function["parameters"]}],
        "responses": [{"type": "function", **function}],
    }  # fmt: skip
    said = [{"role": "user", "content": "Hi."}]
    name = "input" if wire == "responses" else "messages"
    request = WIRES[wire].body(json.dumps({"model": "m", name: said, "tools": tools[wire]}).encode()).parse()
    return Call(f"/{wire}", "m", request.encode(), {}, request=request, restores={"redacted-email-a": "a@b.c"})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def damaged(value: Any, dice: random.Random) -> Any:
    made = copy.deepcopy(value)
    holder, key = dice.choice([*places(made)])
    holder[key] = copy.deepcopy(dice.choice(ODD))
    return made


def damaged_reply(wire: str, dice: random.Random, *, streamed: bool) -> Reply:
    if not streamed:
        return reply(damaged(WHOLE[wire], dice))
    return streaming(b"data: " + json.dumps(each).encode() + b"\n\n" for each in damaged(EVENTS[wire], dice))


async def answered(call: Call, upstream: Upstream, tools: list[Recall]) -> None:
    """Get an answer to its end; an error of the upstream's is one, too."""
    try:
        shown = restored(call, await send(upstream, call, tools, rounds=1))
        if shown.chunks is not None:
            await read(shown)
    except UpstreamFailed:
        pass


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("tools", [[Recall()], []], ids=["with its tool", "with a secret"])
@pytest.mark.parametrize("wire", WHOLE)
async def test_a_malformed_answer_is_no_fault(wire: str, tools: list[Recall], streamed: bool) -> None:
    dice, call = random.Random(7), call_of(wire)
    for _ in range(TIMES):
        then = streaming([]) if streamed else reply(WHOLE[wire])
        await answered(call, Scripted(damaged_reply(wire, dice, streamed=streamed), then), tools)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", ["messages", "responses"])
async def test_a_malformed_answer_is_no_fault_on_a_translated_wire(wire: str, streamed: bool) -> None:
    dice, call = random.Random(7), call_of(wire)
    for _ in range(TIMES):
        behind = Scripted(damaged_reply("chat", dice, streamed=streamed))
        await answered(call, BridgedUpstream(behind, wire), [])


def test_a_malformed_event_of_blocks_is_no_fault() -> None:
    dice = random.Random(7)
    for _ in range(TIMES):
        blocks = Blocks()
        for event in damaged(EVENTS["messages"], dice):
            blocks.feed(event if isinstance(event, dict) else {})


@pytest.mark.parametrize("wire", WHOLE)
def test_a_malformed_answer_is_no_fault_of_who_observes_it(wire: str) -> None:
    dice = random.Random(7)
    for _ in range(TIMES):
        WIRES[wire].answer(json.dumps(damaged(WHOLE[wire], dice)).encode(), streamed=False)
        events = (b"data: " + json.dumps(each).encode() + b"\n\n" for each in damaged(EVENTS[wire], dice))
        WIRES[wire].answer(b"".join(events), streamed=True)
