"""Placeholders in answers of Messages and Responses, whole and as streams cut anywhere."""

import json
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from proxy.chat.parse import Body
from proxy.chat.placeholders import Placeholders
from proxy.gateway.restoring import restored
from proxy.upstreams.base import Call, Reply
from proxy.wires.messages import MessagesBody
from proxy.wires.responses import ResponsesBody
from tests.wires import openai_server

NAMES = Placeholders(b"key")
MAIL, PEM = NAMES("email", "ana@example.com"), NAMES("key", 'a "key"\nof two lines')
TEXT = f"Mail {MAIL}, or red{MAIL}redacted-{MAIL[:20]} redact"
PLAIN = f"Mail ana@example.com, or redana@example.comredacted-{MAIL[:20]} redact"
ARGUMENTS = json.dumps({"to": PEM, "arguments": PEM})
KEY = 'a "key"\nof two lines'

Json = dict[str, Any]
EVENTS: dict[type[Body], TypeAdapter[Any]] = {
    MessagesBody: TypeAdapter(RawMessageStreamEvent),
    ResponsesBody: TypeAdapter(ResponseStreamEvent),
}


def call(kind: type[Body], **more: Any) -> Call:
    body = {"model": "m", kind.conversation[0]: [{"role": "user", "content": "hi"}], **more}
    return Call(kind.path, "m", b"", {}, request=kind(json.dumps(body).encode()).parse(), restores=NAMES.secrets)


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    ends = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def messages_events(cuts: Sequence[int]) -> list[Json]:
    """A stream of Messages: thinking, a text, and a call."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    made: list[Json] = [{"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None}}]
    blocks: list[tuple[Json, str, str]] = [
        ({"type": "thinking", "thinking": "", "signature": ""}, "thinking", TEXT),
        ({"type": "text", "text": ""}, "text", TEXT),
        ({"type": "tool_use", "id": "t1", "name": "mail", "input": {}}, "partial_json", ARGUMENTS),
    ]
    for index, (block, key, text) in enumerate(blocks):
        kind = {"thinking": "thinking_delta", "text": "text_delta", "partial_json": "input_json_delta"}[key]
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        deltas = [{"type": kind, key: piece} for piece in pieces(text, cuts)]
        made += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        made.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    return [*made, {"type": "message_delta", "delta": end, "usage": usage}, {"type": "message_stop"}]


def responses_events(cuts: Sequence[int]) -> list[Json]:
    """A stream of Responses: reasoning, a text, and a call."""
    items = [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": MAIL}],
            "encrypted_content": "c2Vh",
        },
        {**openai_server.message(TEXT), "id": "msg_1", "status": "completed"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "mail",
            "arguments": ARGUMENTS,
            "status": "completed",
        },
    ]
    response = {
        "id": "resp_1", "object": "response", "created_at": 1.0, "model": "m", "output": items,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed",
    }  # fmt: skip
    made: list[Json] = []
    for event in openai_server.stream_events(response):
        if not event["type"].endswith(".delta"):
            made.append(event)
        elif event["type"] != made[-1]["type"]:
            whole = TEXT if "text" in event["type"] else ARGUMENTS
            made += [{**event, "delta": piece} for piece in pieces(whole, cuts)]
    return [{**event, "sequence_number": number} for number, event in enumerate(made)]


async def through(kind: type[Body], events: Sequence[Json], breaks: Sequence[int] = ()) -> list[Json]:
    """Return the events that the client gets, each checked with the SDK's types."""
    whole = b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)

    async def chunks() -> AsyncGenerator[bytes, None]:
        for part in pieces(whole.decode(), breaks):
            yield part.encode()

    reply = restored(call(kind), Reply(200, chunks=chunks()))
    assert reply.chunks is not None
    got = b"".join([part async for part in reply.chunks])
    made = [json.loads(line[6:]) for line in got.splitlines() if line.startswith(b"data: ")]
    for event in made:
        EVENTS[kind].validate_python(event)
    return made


cut_places = st.lists(st.integers(0, 200), max_size=12)
break_places = st.lists(st.integers(0, 3000), max_size=6)


@given(cut_places, break_places)
async def test_a_stream_of_messages_says_the_same_wherever_it_is_cut(cuts: list[int], breaks: list[int]) -> None:
    texts = dict.fromkeys(("thinking", "text", "partial_json"), "")
    for event in await through(MessagesBody, messages_events(cuts), breaks):
        for key, text in (event.get("delta") or {}).items():
            if key in texts and event["type"] == "content_block_delta":
                texts[key] += text
    assert texts["thinking"] == TEXT
    assert texts["text"] == PLAIN
    assert json.loads(texts["partial_json"]) == {"to": KEY, "arguments": KEY}


@given(cut_places, break_places)
async def test_a_stream_of_responses_says_the_same_wherever_it_is_cut(cuts: list[int], breaks: list[int]) -> None:
    events = await through(ResponsesBody, responses_events(cuts), breaks)

    assert [each["sequence_number"] for each in events] == [*range(len(events))]
    said = {"response.output_text.delta": "", "response.function_call_arguments.delta": ""}
    for event in events:
        if event["type"] in said:
            said[event["type"]] += event["delta"]
    text, arguments = said.values()
    assert (text, json.loads(arguments)["to"]) == (PLAIN, KEY)
    reasoning, message, called = events[-1]["response"]["output"]
    assert reasoning["summary"][0]["text"] == MAIL
    assert message["content"][0]["text"] == PLAIN
    assert json.loads(called["arguments"])["to"] == KEY


@pytest.mark.parametrize(("kind", "events"), [(MessagesBody, messages_events), (ResponsesBody, responses_events)])
async def test_a_stream_without_a_placeholder_keeps_its_bytes(kind: type[Body], events: Any) -> None:
    plain = json.loads(json.dumps(events([])).replace("redact", "extract"))
    assert await through(kind, plain) == plain


async def test_a_stream_that_breaks_off_gives_what_waited() -> None:
    begun = messages_events([])[:5]
    delta = {"type": "text_delta", "text": "so far redact"}
    events = [*begun, {"type": "content_block_delta", "index": 1, "delta": delta}]

    got = await through(MessagesBody, events)
    assert "".join(each["delta"].get("text", "") for each in got if "delta" in each) == "so far redact"


def test_a_whole_answer_is_restored_but_for_its_reasoning() -> None:
    thought = {"type": "thinking", "thinking": MAIL, "signature": "x"}
    use = {"type": "tool_use", "id": "t1", "name": "mail", "input": {"to": PEM, "arguments": PEM}}
    answer = {"content": [thought, {"type": "text", "text": TEXT}, use]}
    made = json.loads(restored(call(MessagesBody), Reply(200, body=json.dumps(answer).encode())).body or b"")

    text = {"type": "text", "text": PLAIN}
    assert made["content"] == [thought, text, {**use, "input": {"to": KEY, "arguments": KEY}}]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (MessagesBody, {"output_config": {"format": {"type": "json_schema", "schema": {}}}}),
        (ResponsesBody, {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}),
    ],
)
def test_a_text_that_is_json_stays_json(kind: type[Body], fields: Json) -> None:
    answer = {"content": [{"type": "text", "text": json.dumps({"key": PEM})}]}
    made = json.loads(restored(call(kind, **fields), Reply(200, body=json.dumps(answer).encode())).body or b"")
    assert json.loads(made["content"][0]["text"]) == {"key": KEY}
