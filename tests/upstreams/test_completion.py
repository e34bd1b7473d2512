"""OpenAI's answer, made here."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from proxy.upstreams.base import Call
from proxy.upstreams.completion import Completion, usage, wants_usage


async def deltas() -> AsyncGenerator[dict[str, Any], None]:
    yield {"content": "caf\xe9"}


async def test_a_whole_answer_has_every_field_that_sdks_read() -> None:
    completion = Completion(Call("/chat/completions", "m-1", b"", {}), {})
    completion.usage = usage(90, 7, cached=64, reasoning=3)
    raw = (await completion.reply(deltas())).body or b""
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
    assert answer["usage"] == {
        "prompt_tokens": 90,
        "completion_tokens": 7,
        "total_tokens": 97,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


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
