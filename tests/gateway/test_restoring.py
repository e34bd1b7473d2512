"""What placeholders stand for comes back in an answer, however the network and the model cut it."""

import json
from collections.abc import AsyncGenerator, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat.placeholders import Placeholders
from proxy.gateway.restoring import restored
from proxy.testing import chat
from proxy.upstreams.base import Call, Reply

NAMES = Placeholders(b"key")
MAIL, PEM = NAMES("email", "ana@example.com"), NAMES("key", 'a "key"\nof two lines')


def call(**rest: Any) -> Call:
    return Call("/chat/completions", "m", b"", {}, request=chat("u1", **rest), restores=NAMES.secrets)


def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return (
        b"data: " + json.dumps({"id": "c1", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


async def through(parts: Iterable[bytes], **rest: Any) -> bytes:
    """What the client gets of a stream."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for part in parts:
            yield part

    reply = restored(call(**rest), Reply(200, chunks=chunks()))
    assert reply.chunks is not None
    return b"".join([part async for part in reply.chunks])


def said(stream: bytes) -> tuple[dict[str, str], str | None]:
    """The texts of a stream by their keys, and why it ended."""
    texts, finish = dict[str, str](), None
    for line in stream.splitlines():
        if line.startswith(b"data: {"):
            (choice,) = json.loads(line[6:])["choices"]
            finish = choice["finish_reason"] or finish
            delta = choice["delta"]
            for each in delta.get("tool_calls", ()):
                key = f"call {each['index']}"
                texts[key] = texts.get(key, "") + each["function"].get("arguments", "")
            for key in delta.keys() - {"tool_calls", "role"}:
                assert finish is None or delta[key] == "" or choice["finish_reason"]
                texts[key] = texts.get(key, "") + delta[key]
    return texts, finish


TEXT = f"Mail {MAIL}, or red{MAIL}redacted-{MAIL[:20]} redact"
PLAIN = f"Mail ana@example.com, or redana@example.comredacted-{MAIL[:20]} redact"


@given(st.lists(st.integers(0, len(TEXT)), max_size=12), st.lists(st.integers(0, 3000), max_size=6), st.booleans())
async def test_a_stream_says_the_same_wherever_it_is_cut(cuts: list[int], breaks: list[int], in_end: bool) -> None:
    places = sorted({0, *cuts, len(TEXT)})
    pieces = [TEXT[start:end] for start, end in pairwise(places)]
    events = [event({"role": "assistant", "content": ""}), *(event({"content": piece}) for piece in pieces[:-1])]
    events += (
        [event({"content": pieces[-1]}, "stop")] if in_end else [event({"content": pieces[-1]}), event({}, "stop")]
    )
    whole = b"".join([*events, b"data: [DONE]\n\n"])
    ends = sorted({0, *(each for each in breaks if each < len(whole)), len(whole)})

    got = await through(whole[start:end] for start, end in pairwise(ends))

    assert said(got) == ({"content": PLAIN}, "stop")
    assert got.endswith(b"data: [DONE]\n\n")


async def test_arguments_of_calls_stay_json_and_texts_do_not_mix() -> None:
    text = json.dumps({"to": MAIL, "key": PEM})
    events = [event({"content": "now re"})]
    for piece in (text[:17], text[17:40], text[40:]):
        for index in (0, 1):
            call_ = {"index": index, "function": {"arguments": piece}}
            events.append(event({"tool_calls": [call_]}))
    texts, finish = said(await through([*events, event({}, "tool_calls"), b"data: [DONE]\n\n"]))
    assert finish == "tool_calls"
    assert texts["content"] == "now re"
    for index in (0, 1):
        assert json.loads(texts[f"call {index}"]) == {"to": "ana@example.com", "key": 'a "key"\nof two lines'}


async def test_a_stream_that_breaks_off_gives_what_waited() -> None:
    assert said(await through([event({"content": "so far redact"})])) == ({"content": "so far redact"}, None)


async def test_events_without_a_placeholder_keep_their_bytes() -> None:
    odd = b': hi\r\n\r\ndata:  {"choices": [ {"delta": {"content": "plain"}, "index": 0}] }\n\nevent: x\ndata: y\n\n'
    assert await through([odd]) == odd


@pytest.mark.parametrize(("format_", "text"), [({}, 'a "key"\nof two lines'), ({"type": "json_object"}, None)])
def test_a_whole_answer_is_restored_but_for_what_is_signed(format_: dict[str, str], text: str | None) -> None:
    message = {
        "content": f'{{"key": "{PEM}"}}',
        "reasoning_content": MAIL,
        "thinking_blocks": [{"thinking": MAIL, "signature": "x"}],
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": json.dumps({"to": PEM})}}],
    }
    body = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
    reply = restored(call(response_format=format_), Reply(200, body=body))
    made = json.loads(reply.body or b"")["choices"][0]["message"]
    assert made["reasoning_content"] == "ana@example.com"
    assert made["thinking_blocks"] == message["thinking_blocks"]
    assert json.loads(made["tool_calls"][0]["function"]["arguments"])["to"] == 'a "key"\nof two lines'
    assert made["content"] == f'{{"key": "{text}"}}' if text else json.loads(made["content"])["key"]


def test_errors_and_answers_without_a_placeholder_are_the_same_object() -> None:
    for reply in (Reply(400, body=MAIL.encode()), Reply(200, body=b'{"choices": []}'), Reply(200, body=b"redacted-")):
        assert restored(call(), reply) is reply
