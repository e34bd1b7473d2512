"""The request value: what its fields say, how another is made from it, fidelity to the client's bytes."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Tool, encode, listed
from proxy.testing import chat, message
from tests.chat.parsing import parse, thorough

# --- lists of messages and tools --------------------------------------------------------------------------------------


def test_a_list_derives_each_result_once_and_keeps_the_latest_ones() -> None:
    request, made = chat("u1").with_tools([Tool.function("look_up", "")]), list[int]()

    def derive(key: int) -> None:
        for same in (request, request.with_messages(request.messages)):
            listed(same.with_tools(same.tools).tools).derive(key, lambda: made.append(key))

    for key in (0, *range(40), 0, 39):
        derive(key)

    assert made == [0, *range(1, 40), 0]


# --- fields -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        pytest.param({}, None, id="nothing said"),
        pytest.param({"max_tokens": 10}, 10, id="the old name"),
        pytest.param({"max_completion_tokens": 20, "max_tokens": 10}, 20, id="the new name wins"),
        pytest.param({"max_completion_tokens": None, "max_tokens": 10}, 10, id="null says nothing"),
        pytest.param({"max_tokens": 0}, None, id="zero"),
        pytest.param({"max_tokens": -1}, None, id="negative"),
        pytest.param({"max_tokens": True}, None, id="a boolean is no number"),
        pytest.param({"max_tokens": "10"}, None, id="a string is no number"),
        pytest.param({"max_tokens": 1.5}, None, id="half a token"),
    ],
)
def test_the_output_that_a_client_reserves(fields: dict[str, Any], tokens: int | None) -> None:
    assert chat("u1", **fields).max_output_tokens == tokens


@pytest.mark.parametrize(
    ("value", "stream"), [(True, True), (False, False), (None, False), ("true", False), (1, False)]
)
def test_only_true_asks_for_a_stream(value: Any, stream: bool) -> None:
    assert chat("u1", stream=value).stream is stream


# --- building a request -----------------------------------------------------------------------------------------------


RAW = (
    b'{"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}],'
    b'"temperature":1.0,"model":"m","tool_choice":"auto","parallel_tool_calls":true,"x":{"a":1e5}}'
)


WITHOUT_TOOLS = b'{"messages":[{"role":"user","content":"hi"}],"temperature":1.0,"model":"m","x":{"a":1e5}}'
G = Tool({"type": "function", "function": {"name": "g"}})


@pytest.mark.parametrize(("build", "sent"), [
    pytest.param(lambda r: r.with_messages([message("u1")]), RAW.replace(b'"hi"', b'"u1"'), id="other messages"),
    pytest.param(lambda r: r.with_tools([G]), RAW.replace(b'"name":"f"', b'"name":"g"'), id="other tools"),
    pytest.param(lambda r: r.with_tools([]), WITHOUT_TOOLS, id="without tools, what only makes sense beside them leaves too"),
    pytest.param(lambda r: r.with_model("caf\xe9"), RAW.replace(b'"m"', b'"caf\xc3\xa9"'), id="another model"),
    pytest.param(lambda r: r.with_field("temperature", 0), RAW.replace(b"1.0", b"0"), id="a field keeps its place"),
    pytest.param(lambda r: r.with_field("stop", None), RAW[:-1] + b',"stop":null}', id="a new field comes last, null counts"),
    pytest.param(lambda r: r.without("x", "absent"), RAW.replace(b',"x":{"a":1e5}', b""), id="without a field"),
    pytest.param(lambda r: r.with_field("x", 1).with_field("x", 2), RAW.replace(b'{"a":1e5}', b"2"), id="set twice"),
    pytest.param(lambda r: r.without("x").with_field("x", 7), RAW.replace(b'{"a":1e5}', b"7"), id="gone, and back without its bytes"),
])  # fmt: skip
def test_a_new_request_differs_in_one_place_alone(build: Callable[[ChatRequest], ChatRequest], sent: bytes) -> None:
    def parts() -> tuple[Any, ...]:
        return request.model, request.messages, request.tools, dict(request.rest), request.order

    request = parse(RAW)
    before = parts()
    assert build(request).encode() == sent
    assert request.encode() == RAW
    assert parts() == before


def test_a_request_is_written_with_model_and_messages_first_and_unchanged_the_same() -> None:
    assert chat("u1", stream=True, seed=7).encode() == (
        b'{"model":"test-model","messages":[{"role":"user","content":"u1"}],"stream":true,"seed":7}'
    )
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}], "model": "m", "x": 1}
    added = parse(encode(fields)).with_tools([Tool({"name": "f"})])
    assert json.loads(added.encode()) == fields | {"tools": [{"name": "f"}]}
    request = parse(RAW)
    assert request.with_model("m") is request
    assert request.without("absent") is request


@pytest.mark.parametrize("tools", [b"[]", b"null"])
def test_empty_tools_go_out_as_they_came(tools: bytes) -> None:
    raw = b'{"model":"m","tools":' + tools + b',"messages":[{"role":"user","content":"a"}]}'
    assert parse(raw).encode() == raw
    assert parse(raw).with_tools([Tool({"name": "f"})]).encode() == raw.replace(tools, b'[{"name":"f"}]')


# --- fidelity ---------------------------------------------------------------------------------------------------------


texts = st.text(max_size=12)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)


def extras(*taken: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts.filter(lambda key: key not in taken), values, max_size=3)


@st.composite
def shuffled(draw: st.DrawFn, fields: dict[str, Any]) -> dict[str, Any]:
    return {key: fields[key] for key in draw(st.permutations(list(fields)))}


@st.composite
def wire_messages(draw: st.DrawFn) -> dict[str, Any]:
    fixed = {"role": draw(st.sampled_from(["system", "user", "assistant"])), "content": draw(texts)}
    return draw(shuffled(draw(extras("role", "content", "tool_calls")) | fixed))


@st.composite
def wire_bodies(draw: st.DrawFn) -> dict[str, Any]:
    fixed = {
        "model": draw(texts.filter(bool)),
        "messages": draw(st.lists(wire_messages(), min_size=1, max_size=4)),
        "tools": draw(st.lists(extras("function", "custom"), max_size=2)),
    }
    return draw(shuffled(draw(extras(*fixed)) | fixed))


@given(wire_bodies())
@thorough
def test_a_compact_body_that_nobody_changed_is_encoded_byte_for_byte(body: dict[str, Any]) -> None:
    raw = encode(body)
    assert parse(raw).encode() == raw


@given(wire_bodies(), st.sampled_from([None, 1]), st.booleans())
@thorough
def test_other_spellings_of_a_body_give_equal_json(body: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    raw = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode()
    assert json.loads(parse(raw).encode()) == body
    assert list(json.loads(parse(raw).encode())) == list(body)


SPELLINGS = [
    b'{ "content" : "caf\\u00e9 \\/ \\ud83d\\ude00" , "role" : "user" }',
    b'{"role":"assistant","content":"b","n":[1.0,1e5,-0,1E-7,1180591620717411303424,0.1000]}',
    b'{"role":"user","content":"first","content":"second"}',
    b'{"role":"assistant","content":null,"tool_calls":[{"id":"x","function":{"name":"f","arguments":"{ }"}}]}',
    b'{"tool_call_id":"x",\r\n\t"role":"tool","content":"caf\xc3\xa9"}',
    b'{"role":"\\u0075ser","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}',
]


@pytest.mark.parametrize("place", range(len(SPELLINGS)))
def test_rewriting_one_message_leaves_the_bytes_of_all_others_alone(place: int) -> None:
    tools = b'[ { "type":"function", "function":{"name":"f","parameters":{"maximum":1e5}} } ]'
    raw = b'{"model":"m","messages":[' + b" , ".join(SPELLINGS) + b'], "seed":1.0 ,"tools":' + tools + b"}"
    request = parse(raw)

    changed = request.messages[place].with_changes(content="new")
    rewritten = request.with_messages([*request.messages[:place], changed, *request.messages[place + 1 :]])

    written = [*SPELLINGS[:place], changed.raw, *SPELLINGS[place + 1 :]]
    assert rewritten.encode() == (
        b'{"model":"m","messages":[' + b",".join(written) + b'],"seed":1.0,"tools":' + b"[" + tools[2:-2] + b"]}"
    )
