"""OpenAI's answer, made here: whole, and in chunks."""

import json
from typing import Any

import pytest

from proxy.upstreams.completion import DONE, JSON_HEADERS, STREAM_HEADERS, Completion, usage, wants_usage

USED = usage(90, 7, cached=64, reasoning=3)


def event(data: bytes) -> dict[str, Any]:
    assert data.startswith(b"data: {")
    assert data.endswith(b"}\n\n")
    assert data.count(b"\n") == 2
    read: dict[str, Any] = json.loads(data[6:])
    return read


def test_usage_adds_up() -> None:
    assert USED == {
        "prompt_tokens": 90,
        "completion_tokens": 7,
        "total_tokens": 97,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert usage(1, 2)["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_whole_answer_has_every_field_that_sdks_read() -> None:
    raw = Completion("m-1").whole({"content": "caf\xe9"}, "stop", USED)
    answer = json.loads(raw)

    assert "caf\xe9".encode() in raw
    assert b'": ' not in raw, "it is compact UTF-8"

    assert answer["object"] == "chat.completion"
    assert answer["model"] == "m-1"
    assert answer["id"].startswith("chatcmpl-")
    assert isinstance(answer["created"], int)
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "caf\xe9", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == USED


def test_an_answer_of_tool_calls_has_no_content() -> None:
    calls = [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}]

    answer = json.loads(Completion("m").whole({"tool_calls": calls}, "tool_calls", USED, system_fingerprint="fp"))

    assert answer["choices"][0]["message"] == {
        "role": "assistant", "content": None, "refusal": None, "tool_calls": calls,
    }  # fmt: skip
    assert answer["system_fingerprint"] == "fp"


def test_all_chunks_of_an_answer_have_the_same_head() -> None:
    answer = Completion("m")
    chunks = [answer.first(), answer.chunk({"content": "a"}), answer.chunk({}, "stop"), answer.usage_chunk(USED)]

    heads = [{key: event(chunk)[key] for key in ("id", "object", "created", "model")} for chunk in chunks]
    assert all(head == heads[0] for head in heads)
    assert heads[0]["object"] == "chat.completion.chunk"
    assert event(Completion("m").first())["id"] != heads[0]["id"]
    assert [event(chunk).get("usage") for chunk in chunks] == [None, None, None, USED]
    assert [event(chunk)["choices"] for chunk in chunks] == [
        [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        for delta, reason in (({"role": "assistant", "content": "", "refusal": None}, None), ({"content": "a"}, None),
                              ({}, "stop"))
    ] + [[]]  # fmt: skip


def test_a_stream_ends_with_its_mark() -> None:
    assert DONE == b"data: [DONE]\n\n"
    assert STREAM_HEADERS == [(b"content-type", b"text/event-stream; charset=utf-8")]
    assert JSON_HEADERS == [(b"content-type", b"application/json")]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        pytest.param({"stream_options": {"include_usage": True}}, True, id="asked for"),
        pytest.param({"stream_options": {"include_usage": False}}, False, id="declined"),
        pytest.param({"stream_options": {"include_usage": "true"}}, False, id="a word for true"),
        pytest.param({"stream_options": {}}, False, id="not said"),
        pytest.param({"stream_options": None}, False, id="null"),
        pytest.param({"stream_options": ["include_usage"]}, False, id="a list"),
        pytest.param({"include_usage": True}, False, id="in the wrong place"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_whether_a_client_wants_usage(fields: dict[str, Any], wanted: bool) -> None:
    assert wants_usage(fields) is wanted
