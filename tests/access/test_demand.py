"""What a request asks for: estimated from its bytes or its count, and held to what its key may ask for."""

import json
from typing import Any

import pytest

from proxy.access.limits import FILE_TOKENS, Demand, check_caps, demand_of
from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body
from proxy.context import ModelProfile, TokenCount
from proxy.upstreams.base import Call

PROFILE = ModelProfile("m", window=1000, max_output=500, reserve=100)


def call(fields: dict[str, Any], *, parsed: bool = False, **more: Any) -> Call:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    request = Body(body).parse() if parsed else None
    return Call("/chat/completions", "m", body, {}, request=request, **{"profile": PROFILE, **more})


def test_an_uncounted_prompt_counts_a_token_for_four_bytes() -> None:
    made = call({})
    assert demand_of(made) == Demand(len(made.body) // 4, 100)
    assert demand_of(call({}, parsed=True, counted=TokenCount(1, 2, 4, exact=True))).prompt == 7


@pytest.mark.parametrize("parsed", [False, True])
@pytest.mark.parametrize(("fields", "answer"), [
    ({}, 100),
    ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
    ({"max_tokens": 7, "n": 3}, 21),
    ({"n": None, "max_tokens": None}, 100),
    ({"n": "3", "max_tokens": True}, 100),
    ({"max_tokens": -1}, 100),
])  # fmt: skip
def test_demand_takes_the_longest_answer_allowed(fields: dict[str, Any], answer: int, parsed: bool) -> None:
    assert demand_of(call(fields, parsed=parsed)).answer == answer
    assert demand_of(call({"max_tokens": 5}, profile=None)).answer == 5
    assert demand_of(call({}, profile=None)).answer == 0


def test_a_file_counts_a_fixed_number_of_tokens() -> None:
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    sound = {"type": "input_audio", "input_audio": {"data": "B" * 400_000, "format": "wav"}}
    for parts in ([url], [sound], [url, sound, url]):
        body = json.dumps({"messages": [{"role": "user", "content": parts}]}, separators=(",", ":")).encode()
        prompt = demand_of(Call("/chat/completions", "m", body, {})).prompt
        assert len(parts) * FILE_TOKENS <= prompt < len(parts) * FILE_TOKENS + 100
    assert demand_of(Call("/audio/transcriptions", "m", b"--form\r\n" * 1000, {})) == Demand(0, 0)


@pytest.mark.parametrize("parsed", [False, True])
@pytest.mark.parametrize("fields", [
    {"max_tokens": 11},
    {"max_completion_tokens": 10.5},
    {"max_output_tokens": 10**30},
    {"n": 3},
    {"best_of": 3},
    {"max_tokens": "11"},
    {"Max_Tokens": 11},
    {"n": True},
    {"options": {"num_predict": 11}},
    {"options": {"num_predict": -1}},
])  # fmt: skip
def test_a_request_is_refused_above_the_caps_of_its_key(fields: dict[str, Any], parsed: bool) -> None:
    with pytest.raises(BadRequest) as caught:
        check_caps(call(fields, parsed=parsed), 10, 2)
    assert caught.value.status == 400
    assert caught.value.param is not None
    check_caps(call(fields, parsed=parsed), None, None)


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 10, "n": 2}, {"max_tokens": None, "n": None}, {"options": 5}])
def test_a_request_passes_within_the_caps_of_its_key(fields: dict[str, Any]) -> None:
    check_caps(call(fields), 10, 2)
