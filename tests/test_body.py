"""Bodies: what no upstream can read is a 400 that names the place, and never anything else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.body import Body
from proxy.chat import encode
from proxy.errors import BadRequest
from proxy.wire import flaws

thorough = settings(max_examples=200, deadline=None)

HI = b'[{"role":"user","content":"hi"}]'


def refusal(raw: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        Body(raw).parse()
    assert caught.value.status == 400
    json.loads(caught.value.body())
    return caught.value


def with_value(value: bytes) -> bytes:
    return b'{"model":"m","messages":' + HI + b',"x":' + value + b"}"


# --- bytes that are no JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"   ", id="blanks"),
        pytest.param(b"\x00", id="a NUL byte"),
        pytest.param(b"hello", id="text"),
        pytest.param(b"model=m&messages=x", id="a form"),
        pytest.param(b"\xef\xbb\xbf" + with_value(b"1"), id="a byte order mark"),
        pytest.param("\ufeff{}".encode("utf-16-le"), id="UTF-16"),
        pytest.param(with_value(b"1")[:-1], id="the last brace is missing"),
        pytest.param(with_value(b"1") + b"}", id="one brace too many"),
        pytest.param(with_value(b"1") + b" {}", id="a second object behind"),
        pytest.param(with_value(b"1") + b"\x00", id="a NUL byte behind"),
        pytest.param(b"{'model':'m'}", id="single quotes"),
        pytest.param(b"{model:1}", id="a bare key"),
        pytest.param(b'{"model":"m",}', id="a trailing comma"),
        pytest.param(b'{"model":"m" // why\n}', id="a comment"),
        pytest.param(b'{"model" "m"}', id="no colon"),
        pytest.param(b'{1:"m"}', id="a number for a key"),
        pytest.param(b'{"\xff":1}', id="a key that is not UTF-8"),
        pytest.param(b'{"\\ud800":1}', id="a lone surrogate in a key"),
        pytest.param(b'{"\\q":1}', id="an unknown escape in a key"),
        pytest.param(b"[" * 100_000, id="100,000 open brackets"),
        pytest.param(b'{"x":' * 100_000, id="100,000 open braces"),
        pytest.param(with_value(b"[" * 100_000 + b"]" * 100_000), id="100,000 brackets, closed"),
        pytest.param(b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="100,000 in messages"),
        pytest.param(with_value(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), id="100,000 braces, closed"),
        pytest.param(with_value(b"NaN"), id="NaN"),
        pytest.param(with_value(b"Infinity"), id="Infinity"),
        pytest.param(with_value(b"-Infinity"), id="minus Infinity"),
        pytest.param(with_value(b"nul"), id="half a null"),
        pytest.param(with_value(b"01"), id="a leading zero"),
        pytest.param(with_value(b"+1"), id="a plus sign"),
        pytest.param(with_value(b"1."), id="a point without digits"),
        pytest.param(with_value(b"0x10"), id="a hexadecimal number"),
        pytest.param(with_value(b'"\x00"'), id="a NUL byte in a string"),
        pytest.param(with_value(b'"a\nb"'), id="a line break in a string"),
        pytest.param(with_value(b'"\\x41"'), id="an unknown escape"),
        pytest.param(with_value(b'"\\ud800"'), id="a lone surrogate"),
        pytest.param(with_value(b'"\\udc00\\ud800"'), id="surrogates the wrong way round"),
    ],
)
def test_bytes_that_are_no_json_are_refused(raw: bytes) -> None:
    error = refusal(raw)

    assert error.code == "invalid_json"
    assert "not valid JSON" in error.message


@pytest.mark.parametrize(
    "raw",
    [b"[]", b'["model"]', b'"model"', b"1", b"null", b"true", HI],
    ids=["an empty list", "a list", "a string", "a number", "null", "a boolean", "only the messages"],
)
def test_json_that_is_no_object_is_refused(raw: bytes) -> None:
    error = refusal(raw)

    assert error.code == "invalid_json"
    assert "must be an object" in error.message


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(b'"\xff\xfe"', "UTF-8", id="invalid UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', "UTF-8", id="a surrogate in UTF-8"),
        pytest.param(b'"\xc0\x80"', "UTF-8", id="an overlong NUL"),
        pytest.param(b"1" * 5000, "infinity", id="an integer of 5000 digits"),
        pytest.param(b"1e999", "infinity", id="a number beyond all numbers"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_by_its_field(value: bytes, why: str) -> None:
    error = refusal(with_value(value))

    assert (error.code, error.param) == ("invalid_json", "x")
    assert error.message.startswith("x is not valid JSON: ")
    assert why in error.message


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        pytest.param(b'{"model":"m","messages":[{"role":"user"},{"role":"user","content":"\xff"}]}', "messages[1]",
                     id="a message"),
        pytest.param(b'{"model":"m","messages":' + HI + b',"tools":[{"name":"\xff"}]}', "tools[0]", id="a tool"),
        pytest.param(b'{"model":"\xff","messages":' + HI + b"}", "model", id="the model"),
    ],
)  # fmt: skip
def test_invalid_utf8_is_named_by_its_place(raw: bytes, param: str) -> None:
    error = refusal(raw)

    assert (error.code, error.param) == ("invalid_json", param)


@given(st.binary(max_size=60))
@thorough
def test_arbitrary_bytes_are_refused_or_read(raw: bytes) -> None:
    try:
        Body(raw).parse()
    except BadRequest as error:
        assert error.status == 400


@given(st.integers(0, 200), st.binary(max_size=3))
@thorough
def test_a_body_that_is_cut_off_or_damaged_is_refused_or_read(place: int, damage: bytes) -> None:
    whole = b'{"model": "m", "messages": [{"role": "user", "content": "caf\\u00e9 \xc3\xa9"}], "seed": 1.5e3}'
    place = min(place, len(whole))

    for raw in (whole[:place], whole[:place] + damage + whole[place + len(damage) :]):
        try:
            Body(raw).parse()
        except BadRequest as error:
            assert error.code


# --- fields that come twice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"model":"a","messages":' + HI + b',"model":"b"}', id="two models"),
        pytest.param(b'{"model":"a","model":"a"}', id="side by side, the same value"),
        pytest.param(b'{"a":12,"a":1}', id="the second value is the beginning of the first"),
        pytest.param(b'{"a":1,"a":12}', id="the first value is the beginning of the second"),
        pytest.param(b'{"a":1,"b":2,"a":1}', id="the same value, another field between"),
        pytest.param(b'{"model":"a","\\u006dodel":"b"}', id="the second one spelled with an escape"),
        pytest.param(b'{"\\u006dodel":"a","model":"b"}', id="the first one spelled with an escape"),
        pytest.param(b'{"a\\/b":1,"a/b":2}', id="an escaped slash"),
        pytest.param(b'{"caf\\u00e9":1,"caf\xc3\xa9":2}', id="an escaped letter"),
        pytest.param(b'{"":1,"":2}', id="an empty name"),
        pytest.param(b'{ "a" : 1 , "a" : 1 }', id="with blanks"),
        pytest.param(b'{"a":{},"a":[]}', id="empty values"),
        pytest.param(b'{"a":"}","a":"}"}', id="braces in strings"),
    ],
)
def test_a_field_that_comes_twice_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="twice") as caught:
        Body(raw)

    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"{}", id="nothing"),
        pytest.param(b'{"a":{"a":1,"a":2}}', id="twice, but deeper"),
        pytest.param(b' {\n\t"a" : 1 ,\r\n "b" : [ ] } \n', id="blanks everywhere"),
        pytest.param(b'{"\\u0061":1,"b\\"":2,"c\\\\":3}', id="escapes in names"),
        pytest.param(b'{"caf\xc3\xa9":"\xe6\x97\xa5","a":"\\ud83d\\ude00"}', id="letters beyond ASCII"),
        pytest.param(b'{"a":"}","b":"\\"}","c":"{\\"a\\":1}"}', id="braces and quotes in strings"),
        pytest.param(b'{"a":1.0,"A":1e5,"":-0}', id="names that differ in case"),
    ],
)
def test_a_field_that_comes_once_is_read(raw: bytes) -> None:
    body = Body(raw)

    assert all(body.get(key) == value for key, value in json.loads(raw).items())


keys = st.text(max_size=4)


@given(
    st.dictionaries(keys, st.integers() | st.text(max_size=4) | st.lists(st.none(), max_size=2), max_size=5), st.data()
)
@thorough
def test_fields_twice_are_found_in_every_spelling(fields: dict[str, Any], data: st.DataObject) -> None:
    def blank() -> str:
        return data.draw(st.sampled_from(["", " ", "\n\t"]))

    def spelled(items: list[tuple[str, Any]]) -> bytes:
        written = [
            f"{blank()}{json.dumps(key, ensure_ascii=data.draw(st.booleans()))}{blank()}:{blank()}{json.dumps(value)}"
            for key, value in items
        ]
        return f"{blank()}{{{','.join(f'{item}{blank()}' for item in written)}}}{blank()}".encode()

    once = list(fields.items())
    assert Body(spelled(once)).raw
    if once:
        repeated = data.draw(st.sampled_from(once))[0]
        place = data.draw(st.integers(0, len(once)))
        with pytest.raises(BadRequest, match="twice"):
            Body(spelled([*once[:place], (repeated, data.draw(st.integers(0, 9))), *once[place:]]))


# --- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [b"", b'"model":null,', b'"model":"",', b'"model":1,', b'"model":true,', b'"model":["m"],', b'"model":{"a":1},'],
    ids=["missing", "null", "empty", "a number", "a boolean", "a list", "an object"],
)
def test_the_model_must_be_a_name(model: bytes) -> None:
    error = refusal(b"{" + model + b'"messages":' + HI + b"}")

    assert (error.param, error.code) == ("model", "invalid_type")
    assert "must be a string" in error.message


@pytest.mark.parametrize(
    "messages",
    [b"", b',"messages":null', b',"messages":"hi"', b',"messages":7', b',"messages":{"role":"user"}'],
    ids=["missing", "null", "a string", "a number", "an object"],
)
def test_messages_must_be_a_list(messages: bytes) -> None:
    raw = b'{"model":"m"' + messages + b"}"
    error = refusal(raw)

    assert (error.param, error.code) == ("messages", "invalid_type")
    with pytest.raises(BadRequest, match="messages must be a list"):
        Body(raw).check_messages()


@pytest.mark.parametrize(
    "messages", [b"[]", b"[ ]", b" [\n\t]", b"[" + b" " * 200 + b"]", b" " * 200 + b"[]"],
    ids=["empty", "a blank", "blanks around", "very many blanks inside", "very many blanks before"],
)  # fmt: skip
def test_at_least_one_message_is_needed(messages: bytes) -> None:
    raw = b'{"model":"m","messages":' + messages + b"}"
    error = refusal(raw)

    assert (error.param, error.code) == ("messages", "empty_array")
    with pytest.raises(BadRequest, match="messages is empty"):
        Body(raw).check_messages()


CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        pytest.param(None, "messages[1]", id="a message that is null"),
        pytest.param("hi", "messages[1]", id="a message that is a string"),
        pytest.param([], "messages[1]", id="a message that is a list"),
        pytest.param({}, "messages[1].role", id="no role"),
        pytest.param({"role": None}, "messages[1].role", id="a role that is null"),
        pytest.param({"role": ["user"]}, "messages[1].role", id="a role that is a list"),
        pytest.param({"role": "user", "content": 1}, "messages[1].content", id="content that is a number"),
        pytest.param({"role": "user", "content": {"type": "text"}}, "messages[1].content", id="content, an object"),
        pytest.param({"role": "user", "content": False}, "messages[1].content", id="content that is false"),
        pytest.param({"role": "user", "content": ["a"]}, "messages[1].content[0]", id="a part that is a string"),
        pytest.param({"role": "user", "content": [{"text": "a"}]}, "messages[1].content[0]", id="a part, no type"),
        pytest.param({"role": "user", "content": [{"type": "x"}, {"type": 1}]}, "messages[1].content[1]", id="type 1"),
        pytest.param({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text", id="no text"),
        pytest.param({"role": "user", "content": [{"type": "text", "text": []}]}, "messages[1].content[0].text",
                     id="a text that is a list"),
        pytest.param({"role": "tool", "content": "a"}, "messages[1].tool_call_id", id="a result without its call"),
        pytest.param({"role": "tool", "tool_call_id": 1}, "messages[1].tool_call_id", id="a call that is a number"),
        pytest.param({"role": "assistant", "tool_calls": {}}, "messages[1].tool_calls", id="calls, an object"),
        pytest.param({"role": "assistant", "tool_calls": "x"}, "messages[1].tool_calls", id="calls, a string"),
        pytest.param({"role": "assistant", "tool_calls": 0}, "messages[1].tool_calls", id="calls, zero"),
        pytest.param({"role": "assistant", "tool_calls": [None]}, "messages[1].tool_calls[0]", id="a call, null"),
        pytest.param({"role": "assistant", "tool_calls": [CALL, {}]}, "messages[1].tool_calls[1]", id="no id"),
        pytest.param({"role": "assistant", "tool_calls": [{"id": "x", "function": "f"}]},
                     "messages[1].tool_calls[0].function", id="a function that is a string"),
        pytest.param({"role": "assistant", "tool_calls": [{"id": "x", "function": {}}]},
                     "messages[1].tool_calls[0].function", id="a function without a name"),
        pytest.param({"role": "assistant", "tool_calls": [{"id": "x", "custom": {"name": 1}}]},
                     "messages[1].tool_calls[0].custom", id="a custom tool called 1"),
    ],
)  # fmt: skip
def test_a_message_of_a_wrong_shape_is_named_by_its_place(message: Any, param: str) -> None:
    error = refusal(encode({"model": "m", "messages": [{"role": "user", "content": "hi"}, message]}))

    assert (error.param, error.code) == (param, "invalid_type")
    assert error.message.startswith(f"{param} must be ")


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        pytest.param("f", "tools", id="a string"),
        pytest.param({"name": "f"}, "tools", id="an object"),
        pytest.param(False, "tools", id="false"),
        pytest.param([None], "tools[0]", id="a tool that is null"),
        pytest.param([{"type": "function", "function": None}], "tools[0].function", id="a function that is null"),
        pytest.param([{"type": "function", "function": {"name": 7}}], "tools[0].function", id="a name that is 7"),
        pytest.param([{"type": "x"}, {"type": "custom", "custom": []}], "tools[1].custom", id="a custom tool, a list"),
    ],
)
def test_a_tool_of_a_wrong_shape_is_named_by_its_place(tools: Any, param: str) -> None:
    error = refusal(encode({"model": "m", "messages": [{"role": "user"}], "tools": tools}))

    assert (error.param, error.code) == (param, "invalid_type")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"messages": [{"role": "robot", "content": "x"}]}, id="a role that nobody knows"),
        pytest.param({"messages": [{"role": "user"}]}, id="no content"),
        pytest.param({"messages": [{"role": "user", "content": [{"type": "new_kind", "a": 1}]}]}, id="a new part"),
        pytest.param({"messages": [{"role": "user", "content": "\x00"}]}, id="an escaped NUL"),
        pytest.param({"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "type": "new"}]}]}, id="new call"),
        pytest.param({"messages": [{"role": "tool", "tool_call_id": "x", "content": []}]}, id="an orphan result"),
        pytest.param({"tools": None}, id="tools that are null"),
        pytest.param({"tools": []}, id="no tools"),
        pytest.param({"tools": [{"type": "web_search", "user_location": {"type": "approximate"}}]}, id="a new tool"),
        pytest.param({"temperature": "hot", "n": -1, "stop": {}, "extra": [[[{}]]]}, id="what the proxy does not know"),
    ],
)
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
odd_roles = st.sampled_from(["user", "assistant", "tool", "system"]) | anything
odd_messages = st.fixed_dictionaries(
    {"role": odd_roles},
    optional={"content": anything, "tool_calls": anything, "tool_call_id": anything, "refusal": anything},
)


@given(
    st.fixed_dictionaries(
        {"model": st.just("m") | anything, "messages": st.lists(odd_messages | anything, max_size=3) | anything},
        optional={"tools": st.lists(anything, max_size=2) | anything, "tool_choice": anything, "max_tokens": anything},
    )
)
@settings(max_examples=400, deadline=None)
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


SECRET = "hunter2 said it"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"model":"m","messages":[{"role":"user","content":"hunter2 said it', id="cut off"),
        pytest.param(b'{"model":"m","messages":[{"role":"user","content":"hunter2 said it\xff"}]}', id="not UTF-8"),
        pytest.param(b'{"model":"m","messages":[{"role":"user","content":"hunter2 said it\\ud800"}]}', id="surrogate"),
        pytest.param(b'{"model":"m","messages":"hunter2 said it"}', id="messages"),
        pytest.param(b'{"model":["hunter2 said it"],"messages":[]}', id="model"),
        pytest.param(b'{"model":"m","messages":["hunter2 said it"]}', id="a message"),
        pytest.param(b'{"model":"m","messages":[{"role":["hunter2 said it"]}]}', id="role"),
        pytest.param(b'{"model":"m","messages":[{"role":"user","content":{"hunter2 said it":1}}]}', id="content"),
        pytest.param(b'{"model":"m","messages":[{"role":"user","content":["hunter2 said it"]}]}', id="a part"),
        pytest.param(b'{"model":"m","messages":[{"role":"a","tool_calls":[{"id":["hunter2 said it"]}]}]}', id="a call"),
        pytest.param(b'{"a":"hunter2 said it","a":"hunter2 said it"}', id="twice"),
        pytest.param(b'{"a":"hunter2 said it"} hunter2 said it', id="behind the end"),
        pytest.param(b'"hunter2 said it"', id="no object"),
    ],
)
def test_an_error_never_quotes_the_body(raw: bytes) -> None:
    assert SECRET not in refusal(raw).body().decode()
    assert "hunter2" not in str(refusal(raw))


# --- looking without parsing ------------------------------------------------------------------------------------------


def test_a_body_that_only_passes_through_is_looked_at_shallowly() -> None:
    body = Body(b'{"model":"m","messages":[{"role":7,"content":{}}],"stream":true,"stream_options":{"a":1}}')

    body.check_messages()
    assert body.model == "m"
    assert body.stream is True
    assert body.get("stream_options") == {"a": 1}
    assert body.get("absent") is None


@pytest.mark.parametrize(
    ("value", "stream"), [(b"true", True), (b"false", False), (b"null", False), (b'"true"', False)]
)
def test_only_true_is_a_stream(value: bytes, stream: bool) -> None:
    assert Body(b'{"stream":' + value + b"}").stream is stream


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        pytest.param({}, b'{"a":1.0,"model":"m","z":{ "b":1e5 }}', id="nothing but blanks leaves"),
        pytest.param({"model": "caf\xe9"}, b'{"a":1.0,"model":"caf\xc3\xa9","z":{ "b":1e5 }}', id="in its place"),
        pytest.param({"new": [1]}, b'{"a":1.0,"model":"m","z":{ "b":1e5 },"new":[1]}', id="a new field comes last"),
    ],
)
def test_some_fields_are_set_and_the_others_keep_their_bytes(changes: dict[str, Any], sent: bytes) -> None:
    body = Body(b'{ "a" : 1.0 , "model":"m", "z":{ "b":1e5 } }')

    assert body.encoded(changes) == sent
    assert body.raw == b'{ "a" : 1.0 , "model":"m", "z":{ "b":1e5 } }'
