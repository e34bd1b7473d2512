"""Placeholders in answers of each wire, whole and as streams cut anywhere."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from proxy.chat.errors import UpstreamFailed
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
    Body: TypeAdapter(ChatCompletionChunk),
    MessagesBody: TypeAdapter(RawMessageStreamEvent),
    ResponsesBody: TypeAdapter(ResponseStreamEvent),
}


def call(kind: type[Body], **more: Any) -> Call:
    body = {"model": "m", kind.conversation[0]: [{"role": "user", "content": "hi"}], **more}
    return Call(kind.path, "m", b"", {}, request=kind(json.dumps(body).encode()).parse(), restores=NAMES.secrets)


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    ends = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def chunk(delta: Json, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def chat_events(cuts: Sequence[int]) -> list[Json]:
    """A chat: a text, two calls at once, and a text that ends with its last piece or behind it."""
    made = [chunk({"role": "assistant", "content": ""}), *(chunk({"refusal": each}) for each in pieces(TEXT, cuts))]
    for piece in pieces(ARGUMENTS, cuts):
        made += [chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for index in (0, 1)]
    *texts, last = [{"content": each} for each in pieces(TEXT, cuts)]
    made += map(chunk, texts)
    return [*made, chunk(last, "stop")] if len(cuts) % 2 else [*made, chunk(last), chunk({}, "stop")]


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
    summary = [{"type": "summary_text", "text": MAIL}]
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "c2Vh"},
        {**openai_server.message(TEXT), "id": "msg_1", "status": "completed"},
        {**openai_server.call("c1", "mail"), "id": "fc_1", "arguments": ARGUMENTS, "status": "completed"},
    ]
    response = {"id": "resp_1", "object": "response", "created_at": 1.0, "model": "m", "output": items,
                "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed"}  # fmt: skip
    made: list[Json] = []
    for event in openai_server.stream_events(response):
        if not event["type"].endswith(".delta"):
            made.append(event)
            if event["type"] == "response.output_item.added" and event["item"]["type"] == "reasoning":
                at = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
                thought = {"type": "response.reasoning_summary_text.delta", **at}
                made += [{**thought, "delta": piece} for piece in pieces(TEXT, cuts)]
                part = {"content_index": 0, "part": {"type": "reasoning_text", "text": MAIL}}
                made.append({"type": "response.content_part.done", "item_id": "rs_1", "output_index": 0, **part})
        elif event["type"] != made[-1]["type"]:
            whole = TEXT if "text" in event["type"] else ARGUMENTS
            made += [{**event, "delta": piece} for piece in pieces(whole, cuts)]
    return [{**event, "sequence_number": number} for number, event in enumerate(made)]


STREAMS = {Body: chat_events, MessagesBody: messages_events, ResponsesBody: responses_events}
KINDS = pytest.mark.parametrize("kind", STREAMS, ids=lambda kind: kind.wire)


def encoded(events: Sequence[Json]) -> bytes:
    names = [f"event: {each['type']}\n" if "type" in each else "" for each in events]
    return "".join(f"{name}data: {json.dumps(each)}\n\n" for name, each in zip(names, events, strict=True)).encode()


async def through(kind: type[Body], stream: bytes, breaks: Sequence[int] = (), error: Exception | None = None) -> bytes:
    """Return what the client gets of a stream, which may end with an error."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for part in pieces(stream.decode(), breaks):
            yield part.encode()
        if error is not None:
            raise error

    reply, shown = restored(call(kind), Reply(200, chunks=chunks())), b""
    assert reply.chunks is not None
    with suppress(*[type(error)] if error is not None else []):
        async for part in reply.chunks:
            shown += part
    return shown


def said(kind: type[Body], stream: bytes) -> dict[str, str]:
    """Return the texts of a stream: by key of a chat, by the type of their deltas on the other wires."""
    texts, ended = dict[str, str](), set[int]()
    for line in stream.splitlines():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        EVENTS[kind].validate_python(event)
        place = event.get("index", event.get("output_index"))
        ended |= {place} if str(event.get("type")).endswith(("block_stop", ".done")) else set()
        assert "delta" not in event or place not in ended, "a part has ended"
        delta = event["choices"][0]["delta"] if kind is Body else event.get("delta") or {}
        found: Json = {event["type"]: delta} if isinstance(delta, str) else dict(delta)
        for each in found.pop("tool_calls", ()):
            found[f"call {each['index']}"] = each["function"]["arguments"]
        for key in found.keys() - {"role", "type", "stop_reason", "stop_sequence"}:
            texts[key] = texts.get(key, "") + found[key]
    return texts


@KINDS
@given(cuts=st.lists(st.integers(0, 200), max_size=12), breaks=st.lists(st.integers(0, 3000), max_size=6))
async def test_a_stream_says_the_same_wherever_it_is_cut(kind: type[Body], cuts: list[int], breaks: list[int]) -> None:
    stream = await through(kind, encoded(STREAMS[kind](cuts)) + b"data: [DONE]\n\n" * (kind is Body), breaks)
    texts = said(kind, stream)
    calls = {key: json.loads(texts.pop(key)) for key in [*texts] if "call" in key or "json" in key}

    assert calls
    assert all(arguments == {"to": KEY, "arguments": KEY} for arguments in calls.values())
    for thought in ("thinking", "response.reasoning_summary_text.delta"):
        assert texts.pop(thought, TEXT) == TEXT
    assert {*texts.values()} == {PLAIN}
    if kind is Body:
        assert (len(calls), {*texts}) == (2, {"refusal", "content"})
        assert stream.rindex(b'"content"') < stream.index(b'"stop"') < stream.index(b"[DONE]")
    if kind is ResponsesBody:
        events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: ")]
        assert [each["sequence_number"] for each in events] == [*range(len(events))]
        assert MAIL in [each["part"]["text"] for each in events if each["type"] == "response.content_part.done"]
        reasoning, message, called = events[-1]["response"]["output"]
        assert reasoning["summary"][0]["text"] == MAIL
        assert message["content"][0]["text"] == PLAIN
        assert json.loads(called["arguments"])["to"] == KEY


@KINDS
async def test_a_stream_without_a_placeholder_keeps_its_bytes(kind: type[Body]) -> None:
    plain = encoded(STREAMS[kind]([])).replace(b"redact", b"extract")
    odd = b': hi\r\n\r\ndata:  {"choices": [ {"delta": {"content": "plain"}, "index": 0}] }\n\nevent: x\ndata: y\n\n'
    assert await through(kind, plain + odd) == plain + odd


@pytest.mark.parametrize(("kind", "events"), [
    (Body, [chunk({"content": "so far redact"})]),
    (MessagesBody, [*messages_events([])[:5], {
        "type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "so far redact"}}]),
])  # fmt: skip
@pytest.mark.parametrize("error", [None, UpstreamFailed("gone")])
async def test_a_broken_stream_gives_what_waited(kind: type[Body], events: list[Json], error: Exception | None) -> None:
    assert "so far redact" in said(kind, await through(kind, encoded(events), error=error)).values()


@pytest.mark.parametrize(
    ("kind", "delta"),
    [
        (MessagesBody, lambda text: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}),
        (ResponsesBody, lambda text: {"type": "response.output_text.delta", "delta": text}),
    ],
)
async def test_a_stream_whose_parts_have_no_number_is_restored(kind: type[Body], delta: Callable[[str], Json]) -> None:
    shown = await through(kind, encoded([delta("Mail " + MAIL[:4]), delta(MAIL[4:])]))
    events = [json.loads(line[5:]) for line in shown.splitlines() if line.startswith(b"data:")]
    assert events == [delta("Mail "), delta("ana@example.com")]


async def test_a_sign_of_life_passes_while_a_text_waits() -> None:
    begun, ping = encoded([chunk({"content": "redact"})]), b": ping\n\n"
    assert await through(Body, begun + ping, [len(begun)]) == ping + begun


def whole(kind: type[Body], answer: Json, **asked: Any) -> Any:
    return json.loads(restored(call(kind, **asked), Reply(200, body=json.dumps(answer).encode())).body or b"")


@pytest.mark.parametrize(("format_", "text"), [({}, KEY), ({"type": "json_object"}, None)])
def test_a_whole_chat_is_restored_but_for_what_is_signed(format_: dict[str, str], text: str | None) -> None:
    message = {
        "content": f'{{"key": "{PEM}"}}',
        "reasoning_content": MAIL,
        "thinking_blocks": [{"thinking": MAIL, "signature": "x"}],
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": json.dumps({"to": PEM})}}],
    }
    made = whole(Body, {"choices": [{"index": 0, "message": message}]}, response_format=format_)
    made = made["choices"][0]["message"]
    assert made["reasoning_content"] == "ana@example.com"
    assert made["thinking_blocks"] == message["thinking_blocks"]
    assert json.loads(made["tool_calls"][0]["function"]["arguments"])["to"] == KEY
    assert made["content"] == f'{{"key": "{text}"}}' if text else json.loads(made["content"])["key"]


def test_whole_answers_are_restored_but_for_reasoning_and_those_without_placeholder_the_same() -> None:
    thought = {"type": "thinking", "thinking": MAIL, "signature": "x"}
    use = {"type": "tool_use", "id": "t1", "name": "mail", "input": {"to": PEM, "arguments": PEM}}
    made = whole(MessagesBody, {"content": [thought, {"type": "text", "text": TEXT}, use]})
    restored_use = {**use, "input": {"to": KEY, "arguments": KEY}}
    assert made["content"] == [thought, {"type": "text", "text": PLAIN}, restored_use]
    for reply in (Reply(400, body=MAIL.encode()), Reply(200, body=b'{"choices": []}'), Reply(200, body=b"redacted-")):
        assert restored(call(Body), reply) is reply


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (MessagesBody, {"output_config": {"format": {"type": "json_schema", "schema": {}}}}),
        (ResponsesBody, {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}),
    ],
)
def test_a_text_that_is_json_stays_json(kind: type[Body], fields: Json) -> None:
    made = whole(kind, {"content": [{"type": "text", "text": json.dumps({"key": PEM})}]}, **fields)
    assert json.loads(made["content"][0]["text"]) == {"key": KEY}
