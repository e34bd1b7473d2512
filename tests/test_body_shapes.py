"""Bodies of a wrong shape: what no upstream can read is a 400 that names the place, and never anything else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat import encode
from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body
from proxy.chat.wire import flaws
from tests.refused_bodies import HI, refusal


@pytest.mark.parametrize("model", [
    b"", b'"model":null,', b'"model":"",', b'"model":1,', b'"model":true,', b'"model":["m"],', b'"model":{"a":1},',
], ids=["missing", "null", "empty", "a number", "a boolean", "a list", "an object"])  # fmt: skip
def test_the_model_must_be_a_name(model: bytes) -> None:
    error = refusal(b"{" + model + b'"messages":' + HI + b"}")

    assert (error.param, error.code) == ("model", "invalid_type")
    assert "must be a string" in error.message


BLANKS = b" " * 200


@pytest.mark.parametrize(("messages", "code", "told"), [
    *((messages, "invalid_type", "messages must be a list") for messages in (
        b"", b',"messages":null', b',"messages":"hi"', b',"messages":7', b',"messages":{"role":"user"}')),
    *((b',"messages":' + messages, "empty_array", "messages is empty") for messages in (
        b"[]", b"[ ]", b" [\n\t]", b"[" + BLANKS + b"]", BLANKS + b"[]")),
])  # fmt: skip
def test_messages_must_be_a_list_that_is_not_empty(messages: bytes, code: str, told: str) -> None:
    raw = b'{"model":"m"' + messages + b"}"
    error = refusal(raw)

    assert (error.param, error.code) == ("messages", code)
    with pytest.raises(BadRequest, match=told):
        Body(raw).check_messages()


CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(("message", "param"), [
    pytest.param(None, "messages[1]", id="a message that is null"),
    pytest.param("hi", "messages[1]", id="a message that is a string"),
    pytest.param({}, "messages[1].role", id="no role"),
    pytest.param({"role": ["user"]}, "messages[1].role", id="a role that is a list"),
    pytest.param({"role": "user", "content": {"type": "text"}}, "messages[1].content", id="content, an object"),
    pytest.param({"role": "user", "content": False}, "messages[1].content", id="content that is false"),
    pytest.param({"role": "user", "content": ["a"]}, "messages[1].content[0]", id="a part that is a string"),
    pytest.param({"role": "user", "content": [{"text": "a"}]}, "messages[1].content[0]", id="a part, no type"),
    pytest.param({"role": "user", "content": [{"type": "x"}, {"type": 1}]}, "messages[1].content[1]", id="type 1"),
    pytest.param({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text", id="no text"),
    pytest.param({"role": "user", "content": [{"type": "text", "text": []}]}, "messages[1].content[0].text",
                 id="a text that is a list"),
    pytest.param({"role": "tool", "tool_call_id": 1}, "messages[1].tool_call_id", id="a call that is a number"),
    pytest.param({"role": "assistant", "tool_calls": {}}, "messages[1].tool_calls", id="calls, an object"),
    pytest.param({"role": "assistant", "tool_calls": 0}, "messages[1].tool_calls", id="calls, zero"),
    pytest.param({"role": "assistant", "tool_calls": [None]}, "messages[1].tool_calls[0]", id="a call, null"),
    pytest.param({"role": "assistant", "tool_calls": [CALL, {"id": 1}]}, "messages[1].tool_calls[1].id", id="id 1"),
    pytest.param({"role": "assistant", "tool_calls": [{"id": "x", "function": {}}]},
                 "messages[1].tool_calls[0].function", id="a function without a name"),
    pytest.param({"role": "assistant", "tool_calls": [{"id": "x", "custom": {"name": 1}}]},
                 "messages[1].tool_calls[0].custom", id="a custom tool called 1"),
])  # fmt: skip
def test_a_message_of_a_wrong_shape_is_named_by_its_place(message: Any, param: str) -> None:
    error = refusal(encode({"model": "m", "messages": [{"role": "user", "content": "hi"}, message]}))

    assert (error.param, error.code) == (param, "invalid_type")
    assert error.message.startswith(f"{param} must be ")


@pytest.mark.parametrize(("tools", "param"), [
    pytest.param("f", "tools", id="a string"),
    pytest.param({"name": "f"}, "tools", id="an object"),
    pytest.param(False, "tools", id="false"),
    pytest.param([None], "tools[0]", id="a tool that is null"),
    pytest.param([{"type": "function", "function": {"name": 7}}], "tools[0].function", id="a name that is 7"),
    pytest.param([{"type": "x"}, {"type": "custom", "custom": []}], "tools[1].custom", id="a custom tool, a list"),
])  # fmt: skip
def test_a_tool_of_a_wrong_shape_is_named_by_its_place(tools: Any, param: str) -> None:
    error = refusal(encode({"model": "m", "messages": [{"role": "user"}], "tools": tools}))

    assert (error.param, error.code) == (param, "invalid_type")


@pytest.mark.parametrize("fields", [
    pytest.param({"messages": [{"role": "robot", "content": "x"}]}, id="a role that nobody knows"),
    pytest.param({"messages": [{"role": "user", "content": [{"type": "new_kind", "a": 1}]}]}, id="a new part"),
    pytest.param({"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "type": "new"}]}]}, id="new call"),
    pytest.param({"messages": [{"role": "tool", "tool_call_id": "x", "content": []}]}, id="an orphan result"),
    pytest.param({"tools": []}, id="no tools"),
    pytest.param({"tools": [{"type": "web_search", "user_location": {"type": "approximate"}}]}, id="a new tool"),
    pytest.param({"temperature": "hot", "n": -1, "stop": {}, "extra": [[[{}]]]}, id="what the proxy does not know"),
])  # fmt: skip
def test_what_the_proxy_does_not_understand_is_the_upstreams_to_judge(fields: dict[str, Any]) -> None:
    raw = encode({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields})

    assert Body(raw).parse().encode() == raw


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["role", "content", "type", "text", "id", "name", "function", "custom", "tool_calls", "tools",
                         "tool_call_id", "allowed_tools"]), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
words = st.text(max_size=3)
named = {"function": st.fixed_dictionaries({"name": words}), "custom": st.fixed_dictionaries({"name": words})}
parts = st.lists(st.fixed_dictionaries({"type": words}, optional={"text": words}), max_size=2)
calls = st.lists(st.fixed_dictionaries({"id": words}, optional=named), max_size=2)
tools = st.lists(st.fixed_dictionaries({"type": words}, optional=named), max_size=2)
roles = st.sampled_from(["user", "assistant", "tool", "system"])
sound_messages = st.fixed_dictionaries({"role": roles}, optional={"content": words | parts, "tool_calls": calls})
odd_messages = st.fixed_dictionaries(
    {"role": roles | anything},
    optional={"content": anything, "tool_calls": anything, "tool_call_id": anything, "refusal": anything},
)


@given(
    st.fixed_dictionaries(
        {"model": st.just("m") | anything, "messages": st.lists(sound_messages | odd_messages, max_size=3) | anything},
        optional={"tools": tools | anything, "tool_choice": anything, "max_tokens": anything},
    )
)
@settings(max_examples=120, deadline=None)
def test_arbitrary_json_in_any_place_is_refused_or_readable(body: dict[str, Any]) -> None:
    raw = encode(body)
    try:
        request = Body(raw).parse()
    except BadRequest as error:
        assert error.code
        return

    assert request.encode() == raw
    for item in request.messages:
        assert isinstance(item.text, str)
        assert all(isinstance(part.get("type"), str) for part in item.parts)
        assert all(isinstance(text, str) for text in (*item.call_ids, *item.called_tools, item.role))
    assert all(isinstance(item.name, str) for item in request.tools)
    assert request.max_output_tokens is None or request.max_output_tokens > 0
    if not isinstance(body.get("tool_choice"), dict):
        assert all(isinstance(flaw, str) for flaw in flaws(request))


@pytest.mark.parametrize("raw", [
    pytest.param(b'{"model":"m","messages":[{"role":"user","content":"hunter2 said it', id="cut off"),
    pytest.param(b'{"model":"m","messages":[{"role":"user","content":"hunter2 said it\xff"}]}', id="not UTF-8"),
    pytest.param(b'{"model":"m","messages":"hunter2 said it"}', id="messages"),
    pytest.param(b'{"model":["hunter2 said it"],"messages":[]}', id="model"),
    pytest.param(b'{"model":"m","messages":["hunter2 said it"]}', id="a message"),
    pytest.param(b'{"model":"m","messages":[{"role":["hunter2 said it"]}]}', id="role"),
    pytest.param(b'{"model":"m","messages":[{"role":"user","content":{"hunter2 said it":1}}]}', id="content"),
    pytest.param(b'{"model":"m","messages":[{"role":"user","content":["hunter2 said it"]}]}', id="a part"),
    pytest.param(b'{"model":"m","messages":[{"role":"a","tool_calls":[{"id":["hunter2 said it"]}]}]}', id="a call"),
    pytest.param(b'{"a":"hunter2 said it","a":"hunter2 said it"}', id="twice"),
    pytest.param(b'"hunter2 said it"', id="no object"),
])  # fmt: skip
def test_an_error_never_quotes_the_body(raw: bytes) -> None:
    assert "hunter2" not in refusal(raw).body().decode() + str(refusal(raw))


TEXT = {"type": "text", "text": "x"}
TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(("fields", "param"), [
    pytest.param({"messages": [{"role": "user", "content": "x"}] * 4}, "messages", id="messages"),
    pytest.param({"messages": [{"role": "user", "content": [TEXT] * 4}]}, "messages", id="parts"),
    pytest.param({"messages": [{"role": "user", "content": [TEXT] * 2}] * 2}, "messages", id="parts of several"),
    pytest.param({"messages": [{"role": "assistant", "tool_calls": [CALL] * 4}]}, "messages", id="calls"),
    pytest.param({"tools": [TOOL] * 4}, "tools", id="tools"),
])  # fmt: skip
def test_what_would_take_too_long_to_read_is_refused(fields: dict[str, Any], param: str) -> None:
    body = Body(encode({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}))
    with pytest.raises(BadRequest) as caught:
        body.parse(3)
    assert (caught.value.param, caught.value.code) == (param, "array_above_max_length")
    body.parse(4)
    body.parse()
