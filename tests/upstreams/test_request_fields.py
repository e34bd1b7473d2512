"""The types of request fields, and the fields that say how to answer."""

from typing import Any

import pytest

from proxy.chat import ChatRequest, Fields, Message
from proxy.chat.errors import BadRequest
from proxy.upstreams.completion import wants_usage
from proxy.upstreams.request_fields import FIELDS as TABLE
from proxy.upstreams.request_fields import check_fields

FIELDS = [name for name in TABLE["types"]["request"] if name not in ("messages", "tools")]


def check(fields: dict[str, Any], *messages: dict[str, Any]) -> None:
    check_fields(ChatRequest("m", tuple(map(Message, messages)), rest=Fields(fields)))


NEAR_MISSES = [("stream", "true"), ("stream", 1), ("max_tokens", 1.5), ("max_tokens", True), ("n", 0), ("n", -1)]


@pytest.mark.parametrize(("name", "wrong"), [*((name, object()) for name in FIELDS), *NEAR_MISSES])
def test_a_wrong_value_is_named_by_its_place(name: str, wrong: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        check({name: wrong})
    assert (caught.value.param, caught.value.code) == (name, "invalid_type")


@pytest.mark.parametrize("name", FIELDS)
def test_null_is_as_good_as_absent_and_unknown_fields_are_left_alone(name: str) -> None:
    check({name: None, "x_anything": object(), "top_k": "many"})


def said(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*parts], **more}


@pytest.mark.parametrize(("message", "place"), [
    (said({"type": "image_url", "image_url": {"url": 5}}), "content[0].image_url.url"),
    (said({"type": "text", "text": "a"}, {"type": "image_url", "image_url": 5}), "content[1].image_url"),
    (said({"type": "image_url"}), "content[0].image_url"),
    (said({"type": "document", "text": 5}), "content[0].text"),
    (said({"type": "input_audio", "input_audio": {}}), "content[0].input_audio.data"),
    (said(name=5), "name"),
    ({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": 5}}]}, "tool_calls[0].function.name"),
    ({"role": "assistant", "thinking_blocks": 5}, "thinking_blocks"),
    ({"role": "tool", "tool_call_id": [], "content": "x"}, "tool_call_id"),
])  # fmt: skip
def test_a_wrong_value_in_the_conversation_is_named_by_its_place(message: dict[str, Any], place: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check({}, said(), message)
    assert (caught.value.param, caught.value.code) == (f"messages[1].{place}", "invalid_type")


@pytest.mark.parametrize(("fields", "wanted"), [
    pytest.param({"stream_options": {"include_usage": True}}, True, id="asked for"),
    pytest.param({"stream_options": {"include_usage": "true"}}, False, id="a word for true"),
    pytest.param({"stream_options": None}, False, id="null"),
    pytest.param({"include_usage": True}, False, id="in the wrong place"),
])  # fmt: skip
def test_whether_a_client_wants_usage(fields: dict[str, Any], wanted: bool) -> None:
    assert wants_usage(fields) is wanted
