"""Answers read back from bytes, whole and streamed, and bytes that are none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat.answer import Answer
from proxy.wires import WIRES

read_answer = WIRES["chat"].answer


def whole(message: object, finish: object = "stop") -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}).encode()


def stream(*deltas: object, finish: str | None = "stop") -> bytes:
    events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    lines = [b"data: " + json.dumps(event).encode() for event in (*events, end)]
    return b": a comment\n\n" + b"\n\n".join(lines) + b'\n\ndata: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n'


def call(index: int | None, name: str | None, arguments: str) -> dict[str, object]:
    function = {"arguments": arguments} | ({"name": name} if name is not None else {})
    return {"function": function} | ({"index": index} if index is not None else {})


CALLED = [
    {"tool_calls": each}
    for each in ([call(0, "a", "")], [call(1, "b", "[")], [call(0, None, "{}"), call(1, None, "]")])
]


@pytest.mark.parametrize(("body", "streamed", "answer"), [
    (whole({"content": "hi"}), False, Answer("hi", finish="stop")),
    (stream({"role": "assistant", "content": ""}, {"content": "h"}, {"content": "i"}), True, Answer("hi", finish="stop")),
    (whole({"content": None, "refusal": "no"}), False, Answer(refusal="no", finish="stop")),
    (stream({"refusal": "n"}, {"refusal": "o"}), True, Answer(refusal="no", finish="stop")),
    (whole({"tool_calls": [call(None, "a", "{}"), call(None, "b", "[]")]}, "tool_calls"), False, Answer(calls=[("a", "{}"), ("b", "[]")], finish="tool_calls")),
    (stream(*CALLED, finish="tool_calls"), True, Answer(calls=[("a", "{}"), ("b", "[]")], finish="tool_calls")),
    (whole({"content": [{"type": "text", "text": "hi"}]}), False, Answer("hi", finish="stop")),
    (whole({"content": None, "audio": {"id": "x"}}), False, Answer(finish="stop", other=True)),
    (whole({"content": None, "tool_calls": [{"custom": {"name": "x", "input": "y"}}]}), False, Answer(calls=[("x", "y")], finish="stop")),
    (b'data: {"choices":[{"index":1,"delta":{"content":"b"}}]}\n\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\n', True, Answer("a")),
    (b'{"error": {"code": "x"}}', False, None),
    (b'data: {"choices":[{"delta":{"content":"h"}}]}\n\ndata: {"error": {}}\n\n', True, None),
    (b"", False, None),
    (b"data: [DONE]\n\n", True, None),
])  # fmt: skip
def test_read_answer(body: bytes, streamed: bool, answer: Answer | None) -> None:
    assert read_answer(body, streamed=streamed) == answer


def test_the_first_choice_is_read_wherever_it_stands() -> None:
    choices = [{"index": 1, "message": {"content": "b"}}, {"index": 0, "message": {"content": "a"}}]
    assert read_answer(json.dumps({"choices": choices}).encode(), streamed=False) == Answer("a")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["choices", "message", "delta", "content", "tool_calls", "function", "index", "name", "arguments"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(value=JSON, streamed=st.booleans())
def test_nothing_that_an_upstream_may_say_is_a_fault(value: object, streamed: bool) -> None:
    body = json.dumps({"choices": [value]}).encode()
    read_answer(b"data: " + body if streamed else body, streamed=streamed)


@given(body=st.binary(max_size=200), streamed=st.booleans())
def test_nor_are_any_bytes(body: bytes, streamed: bool) -> None:
    read_answer(body, streamed=streamed)
