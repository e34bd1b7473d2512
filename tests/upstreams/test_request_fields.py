"""The fields of a request on its way to an upstream; whatever comes there is a request, or an error for the client."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Fields, Message, Tool, encode
from proxy.chat.errors import BadRequest, NotFound
from proxy.testing import CharTokens, chat, tool
from proxy.upstreams.anthropic import request as anthropic
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.completion import JSON_HEADERS, STREAM_HEADERS, wants_usage
from proxy.upstreams.echo import Echo
from proxy.upstreams.ollama import request as ollama
from proxy.upstreams.request_fields import FIELDS as TABLE
from proxy.upstreams.request_fields import check_fields
from tests.upstreams.streams import assembled, events

FIELDS = [name for name in TABLE["types"]["request"] if name not in ("messages", "tools")]


def check(fields: dict[str, Any], *messages: dict[str, Any]) -> None:
    check_fields(ChatRequest("m", tuple(map(Message, messages)), rest=Fields(fields)))


NEAR_MISSES = [("stream", "true"), ("stream", 1), ("max_tokens", 1.5), ("max_tokens", True), ("n", 0), ("n", -1)]


@pytest.mark.parametrize("name", FIELDS)
def test_null_is_as_good_as_absent_and_unknown_fields_are_left_alone(name: str) -> None:
    check({name: None, "x_anything": object(), "top_k": "many"})


def said(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*parts], **more}


@pytest.mark.parametrize(("value", "place"), [
    *(({name: wrong}, name) for name, wrong in [*((name, object()) for name in FIELDS), *NEAR_MISSES]),
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
def test_a_wrong_value_is_named_by_its_place(value: dict[str, Any], place: str) -> None:
    """`value` is the fields of a request, or a message of it."""
    fields, messages, place = ({}, [said(), value], f"messages[1].{place}") if "role" in value else (value, [], place)
    with pytest.raises(BadRequest) as caught:
        check(fields, *messages)
    assert (caught.value.param, caught.value.code) == (place, "invalid_type")


@pytest.mark.parametrize(("fields", "wanted"), [
    pytest.param({"stream_options": {"include_usage": True}}, True, id="asked for"),
    pytest.param({"stream_options": {"include_usage": "true"}}, False, id="a word for true"),
    pytest.param({"stream_options": None}, False, id="null"),
    pytest.param({"include_usage": True}, False, id="in the wrong place"),
])  # fmt: skip
def test_whether_a_client_wants_usage(fields: dict[str, Any], wanted: bool) -> None:
    assert wants_usage(fields) is wanted


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_WORDS = st.sampled_from([
    "function", "custom", "text", "image_url", "input_audio", "file", "document", "json_schema", "any", "tool",
    "data:text/plain;base64,aGk=", "allowed_tools", "low",
])  # fmt: skip
_NAMES = st.sampled_from([
    "type", "function", "name", "arguments", "custom", "input", "text", "image_url", "url", "json_schema", "schema",
    "allowed_tools", "tools", "effort", "parameters", "id", "input_audio", "data", "stop", "file", "file_data", "file_id", "mode", "user_id", "cache_control", "format", *ollama.OPTIONS,
])  # fmt: skip
_VALUES = st.recursive(
    _SCALARS | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)
_KEYS = [
    "role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "reasoning_content",
    "reasoning", "thinking_blocks", "cache_control", "audio", "is_error",
]  # fmt: skip
_MESSAGES = st.builds(
    lambda role, fields: Message({**role, **fields}),
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool", "function"])}),
    st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=5),
)
_TOOLS = st.builds(Tool, st.dictionaries(_NAMES, _VALUES, max_size=3))
_FIELDS = st.sampled_from(
    [*sorted(ollama.READ | anthropic.READ), "n", "tool_choice", "logit_bias", "parallel_tool_calls"]
)


@given(st.lists(_MESSAGES, max_size=3), st.lists(_TOOLS, max_size=2), st.dictionaries(_FIELDS, _VALUES, max_size=4))
def test_whatever_comes_there_is_a_request_or_an_error_for_the_client(
    given_messages: list[Message], tools: list[Tool], fields: dict[str, Any]
) -> None:
    request = ChatRequest("m", tuple(given_messages), tuple(tools), Fields(fields))
    with suppress(BadRequest):
        encode(ollama.translate(request, num_ctx=None, keep_alive=None).body)
    with suppress(BadRequest):
        encode(anthropic.AnthropicRequest(request, most=4096, room=4096).translation().body)


ECHO = Echo("echo")


async def asked(request: ChatRequest) -> Reply:
    call = Call("/chat/completions", request.model, request.encode(), {}, request=request, tokens=CharTokens())
    return await ECHO.send(call)


async def test_it_reports_what_reached_it() -> None:
    request = chat("s u1 ax! tx u2", model="echo-1", tools=[tool("look_up"), tool("search")])
    count = await CharTokens().count(request)

    reply = await asked(request)

    assert (reply.status, reply.headers, reply.chunks) == (200, JSON_HEADERS, None)
    answer = json.loads(reply.body or b"")
    text = answer["choices"][0]["message"]["content"]
    assert answer["model"] == "echo-1"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert text.splitlines() == [
        "5 messages (1 system, 2 user, 1 assistant, 1 tool), 2 tools",
        f"about {count.total} tokens: {count.system} system, {count.tools} tools, {count.messages} conversation",
        "tools: look_up, search",
    ]
    assert "a1" not in text, "it repeats nothing that was said"
    assert "tools:" not in str((await asked(chat("u1"))).body)
    assert answer["usage"]["prompt_tokens"] == count.total
    assert answer["usage"]["completion_tokens"] == len(text.split())


async def test_it_streams_the_same_report_and_refuses_a_request_without_messages() -> None:
    request = chat("s u1", tools=[tool()])
    whole = json.loads((await asked(request)).body or b"")["choices"][0]["message"]["content"]

    reply = await asked(request.with_field("stream", True))
    *chunks, done = await events(reply)

    assert (reply.status, reply.headers, done) == (200, STREAM_HEADERS, "[DONE]")
    assert assembled(chunks)["content"] == whole
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    with pytest.raises(BadRequest) as caught:
        await asked(chat(""))

    assert (caught.value.param, caught.value.code) == ("messages", "empty_array")


@pytest.mark.parametrize("path", ["/embeddings", "/models", "/responses", "/nowhere"])
async def test_every_other_path_is_not_found(path: str) -> None:
    with pytest.raises(NotFound, match=f"/v1{path}"):
        await ECHO.send(Call(path, "", b"{}", {}))
