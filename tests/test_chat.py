"""The request value: fidelity to the client's bytes, the structure of a conversation, the wire rules."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.body import Body
from proxy.chat import (
    ChatRequest,
    JsonObject,
    Message,
    Tool,
    chosen_tools,
    encode,
    exchanges,
    legal_cuts,
    split_head,
    turns,
)
from proxy.testing import chat, message, script, tool
from proxy.wire import damage, flaws

thorough = settings(max_examples=150, deadline=None)


def parse(raw: bytes) -> ChatRequest:
    return Body(raw).parse()


def words(messages: tuple[Message, ...]) -> str:
    return script(ChatRequest("m", messages))


# --- objects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda item: item.__setitem__("a", 2), id="setting a key"),
        pytest.param(lambda item: item.__delitem__("a"), id="deleting a key"),
        pytest.param(lambda item: item.__ior__({"a": 2}), id="merging in place"),
        pytest.param(lambda item: item.clear(), id="clear"),
        pytest.param(lambda item: item.pop("a"), id="pop"),
        pytest.param(lambda item: item.popitem(), id="popitem"),
        pytest.param(lambda item: item.setdefault("b", 2), id="setdefault"),
        pytest.param(lambda item: item.update({"a": 2}), id="update"),
        pytest.param(lambda item: item.update(a=2), id="update by keyword"),
        pytest.param(pickle.dumps, id="pickling"),
    ],
)
@pytest.mark.parametrize("kind", [JsonObject, Message, Tool])
def test_an_object_refuses_every_change(kind: type[JsonObject], change: Callable[[Any], object]) -> None:
    item = kind({"a": 1})

    with pytest.raises(TypeError, match=kind.__name__):
        change(item)

    assert item == {"a": 1}
    assert item.raw == b'{"a":1}'


def test_raw_is_what_the_client_sent() -> None:
    assert Message({"role": "user"}, b'{ "role" : "user" }').raw == b'{ "role" : "user" }'


def test_raw_of_a_new_object_is_compact_utf8_in_its_own_order() -> None:
    made = Message({"role": "user", "content": 'caf\xe9 "\u65e5\u672c" \U0001f600', "a": [1, 1.0, None, True]})

    assert (
        made.raw == '{"role":"user","content":"caf\xe9 \\"\u65e5\u672c\\" \U0001f600","a":[1,1.0,null,true]}'.encode()
    )


def test_a_changed_copy_keeps_the_places_of_keys_and_forgets_the_bytes() -> None:
    sent = Message({"role": "user", "content": "a", "name": "x"}, b"bytes")

    changed = sent.with_changes(content="b", extra=None)

    assert type(changed) is Message
    assert changed.raw == b'{"role":"user","content":"b","name":"x","extra":null}'
    assert sent.without("content", "absent").raw == b'{"role":"user","name":"x"}'
    assert sent == {"role": "user", "content": "a", "name": "x"}
    assert sent.raw == b"bytes"


def test_a_copy_is_the_object_and_a_deep_copy_shares_nothing() -> None:
    sent = Message({"role": "user", "content": [{"type": "text", "text": "a"}]})

    assert copy.copy(sent) is sent
    deep = copy.deepcopy(sent)
    assert deep == sent
    assert type(deep) is Message
    assert deep["content"] is not sent["content"]
    assert deep["content"][0] is not sent["content"][0]


def test_a_deep_copy_equals_its_original_whatever_numbers_it_has() -> None:
    sent = parse(b'{"model":"m","messages":[{"role":"user","n":[1.0,1e5,1180591620717411303424,-0.0]}]}').messages[0]

    deep = copy.deepcopy(sent)

    assert deep.raw == sent.raw
    assert [(type(value), value) for value in deep["n"]] == [(type(value), value) for value in sent["n"]]


# --- messages and tools -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text", "parts"),
    [
        pytest.param("hello", "hello", 1, id="a string is one text part"),
        pytest.param("", "", 1, id="an empty string is a part too"),
        pytest.param(None, "", 0, id="null has no part"),
        pytest.param([], "", 0, id="an empty list has no part"),
        pytest.param([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb", 2, id="texts are joined"),
        pytest.param(
            [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "b"}], "b", 2, id="an image"
        ),
        pytest.param([{"type": "refusal", "refusal": "no"}], "", 1, id="a part without text"),
    ],
)
def test_text_and_parts_of_a_message(content: Any, text: str, parts: int) -> None:
    item = Message({"role": "user", "content": content})

    assert item.text == text
    assert len(item.parts) == parts


def test_a_message_without_content_has_no_text() -> None:
    assert Message({"role": "assistant"}).text == ""
    assert Message({}).role == ""


@pytest.mark.parametrize(
    ("role", "is_system"),
    [
        ("system", True),
        ("developer", True),
        ("user", False),
        ("assistant", False),
        ("tool", False),
        ("function", False),
    ],
)
def test_system_and_developer_have_the_operators_authority(role: str, is_system: bool) -> None:
    assert Message({"role": role}).is_system is is_system


def test_calls_are_read_in_order_whatever_kind_of_tool_they_are_of() -> None:
    calls = [
        {"id": "b", "type": "function", "function": {"name": "search", "arguments": "{}"}},
        {"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
        {"id": "c", "type": "new_kind"},
    ]
    item = Message({"role": "assistant", "tool_calls": calls})

    assert item.call_ids == ("b", "a", "c")
    assert item.called_tools == ("search", "shell", "")
    assert Message({"role": "assistant", "tool_calls": None}).call_ids == ()


@pytest.mark.parametrize(
    ("definition", "name"),
    [
        pytest.param({"type": "function", "function": {"name": "search"}}, "search", id="a function"),
        pytest.param({"type": "custom", "custom": {"name": "shell"}}, "shell", id="a custom tool"),
        pytest.param({"type": "web_search", "name": "web"}, "web", id="a flat definition"),
        pytest.param({"type": "web_search"}, "", id="one without a name"),
    ],
)
def test_a_tool_knows_its_name(definition: dict[str, Any], name: str) -> None:
    assert Tool(definition).name == name


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


@pytest.mark.parametrize(
    ("build", "sent"),
    [
        pytest.param(
            lambda r: r.with_messages([message("u1")]),
            RAW.replace(b'{"role":"user","content":"hi"}', b'{"role":"user","content":"u1"}'),
            id="other messages",
        ),
        pytest.param(
            lambda r: r.with_tools([Tool({"type": "function", "function": {"name": "g"}})]),
            RAW.replace(b'"name":"f"', b'"name":"g"'),
            id="other tools",
        ),
        pytest.param(
            lambda r: r.with_tools([]),
            b'{"messages":[{"role":"user","content":"hi"}],"temperature":1.0,"model":"m","x":{"a":1e5}}',
            id="without tools, what only makes sense beside them leaves too",
        ),
        pytest.param(lambda r: r.with_model("caf\xe9"), RAW.replace(b'"m"', b'"caf\xc3\xa9"'), id="another model"),
        pytest.param(lambda r: r.with_field("temperature", 0), RAW.replace(b"1.0", b"0"), id="a field keeps its place"),
        pytest.param(
            lambda r: r.with_field("stop", None), RAW[:-1] + b',"stop":null}', id="a new field comes last, null counts"
        ),
        pytest.param(lambda r: r.without("x", "absent"), RAW.replace(b',"x":{"a":1e5}', b""), id="without a field"),
    ],
)
def test_a_new_request_differs_in_one_place_and_leaves_the_old_one_alone(
    build: Callable[[ChatRequest], ChatRequest], sent: bytes
) -> None:
    request = parse(RAW)
    before = (request.model, request.messages, request.tools, dict(request.rest), dict(request.raw_rest), request.order)

    built = build(request)

    assert built.encode() == sent
    assert request.encode() == RAW
    assert before == (
        request.model, request.messages, request.tools, dict(request.rest), dict(request.raw_rest), request.order,
    )  # fmt: skip


def test_changing_nothing_gives_the_same_request() -> None:
    request = parse(RAW)

    assert request.with_model("m") is request
    assert request.without("absent") is request


def test_a_field_set_twice_has_its_last_value() -> None:
    assert parse(RAW).with_field("x", 1).with_field("x", 2).rest["x"] == 2
    assert b'"x":2' in parse(RAW).with_field("x", 1).with_field("x", 2).encode()


def test_a_field_that_left_and_came_back_does_not_have_its_old_bytes() -> None:
    assert parse(RAW).without("x").with_field("x", 7).encode() == RAW.replace(b'{"a":1e5}', b"7")


def test_a_request_made_here_is_written_with_model_and_messages_first() -> None:
    assert chat("u1", stream=True, seed=7).encode() == (
        b'{"model":"test-model","messages":[{"role":"user","content":"u1"}],"stream":true,"seed":7}'
    )


def test_tools_that_a_policy_adds_are_written() -> None:
    request = parse(b'{"messages":[{"role":"user","content":"a"}],"model":"m","x":1}')

    added = request.with_tools([Tool({"name": "f"})])

    assert json.loads(added.encode()) == {
        "messages": [{"role": "user", "content": "a"}], "model": "m", "tools": [{"name": "f"}], "x": 1,
    }  # fmt: skip


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
def test_any_other_spelling_of_a_body_is_encoded_to_equal_json(
    body: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
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


def test_reordered_and_dropped_messages_keep_their_bytes() -> None:
    request = parse(b'{"model":"m","messages":[' + b",".join(SPELLINGS) + b"]}")

    assert request.with_messages(reversed(request.messages[:3])).encode() == (
        b'{"model":"m","messages":[' + b",".join(reversed(SPELLINGS[:3])) + b"]}"
    )


def test_every_tool_but_the_dropped_one_keeps_its_bytes() -> None:
    first, second = b'{ "name":"a","n":1.0 }', b'{"name" :"b","s":"\\u00e9"}'
    raw = b'{"model":"m","messages":[{"role":"user"}],"tools":[' + first + b"," + second + b"]}"
    request = parse(raw)

    assert request.with_tools(request.tools[1:]).encode() == raw.replace(first + b",", b"")


# --- structure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conversation", "head", "rest"),
    [
        pytest.param("s1 d2 u1 s3 a1", "s1 d2", "u1 s3 a1", id="only leading system messages"),
        pytest.param("u1 s1", "", "u1 s1", id="no head"),
        pytest.param("s1 s2", "s1 s2", "", id="nothing else"),
        pytest.param("", "", "", id="nothing at all"),
    ],
)
def test_the_head_is_split_off(conversation: str, head: str, rest: str) -> None:
    first, second = split_head(chat(conversation).messages)

    assert (words(first), words(second)) == (head, rest)


@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        pytest.param("u1 a1 u2 a2", ["u1 a1", "u2 a2"], id="a turn starts at each user message"),
        pytest.param("a0 u1", ["a0", "u1"], id="what comes before the first is a turn of its own"),
        pytest.param("u1 u2 a2", ["u1", "u2 a2"], id="two user messages in a row are two turns"),
        pytest.param("u1 ax! tx a1 u2", ["u1 ax! tx a1", "u2"], id="tool calls stay in their turn"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_turns(conversation: str, expected: list[str]) -> None:
    assert [words(turn) for turn in turns(chat(conversation).messages)] == expected


@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        pytest.param("s u1 a1", ["s", "u1", "a1"], id="a plain message stands alone"),
        pytest.param("u1 ax! tx a1", ["u1", "ax! tx", "a1"], id="a call with its result"),
        pytest.param("a!x,y tx ty a1", ["a!x,y tx ty", "a1"], id="parallel calls with all their results"),
        pytest.param("a!x,y ty tx a1", ["a!x,y ty tx", "a1"], id="results in another order"),
        pytest.param("a!x,y tx a1 ty u2", ["a!x,y tx a1 ty", "u2"], id="a late result takes along what is between"),
        pytest.param("ax! ay! tx ty u1", ["ax! ay! tx ty", "u1"], id="interleaved calls are one"),
        pytest.param("ax! ay! ty tx u1", ["ax! ay! ty tx", "u1"], id="nested calls are one"),
        pytest.param("ax! u1 a1 u2 a2 u3 a3 u4 a4 tx u5", ["ax! u1 a1 u2 a2 u3 a3 u4 a4 tx", "u5"], id="far away"),
        pytest.param("tx u1", ["tx", "u1"], id="an orphan result stands alone"),
        pytest.param("tx ax! u1", ["tx", "ax!", "u1"], id="a result before its call is an orphan"),
        pytest.param("ax! u1", ["ax!", "u1"], id="an open call stands alone"),
        pytest.param("a!x,y tx u1", ["a!x,y tx", "u1"], id="a half answered call"),
        pytest.param("ax! tx tx u1", ["ax! tx tx", "u1"], id="two results of one call leave together"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_exchanges(conversation: str, expected: list[str]) -> None:
    messages = chat(conversation).messages

    assert [words(group) for group in exchanges(messages)] == expected
    starts = [sum(len(group.split()) for group in expected[:n]) for n in range(len(expected) + 1)]
    assert legal_cuts(messages) == set(starts)


def test_an_id_that_is_used_again_belongs_to_the_call_before_it() -> None:
    messages = chat("u1 ax! tx a1 u2 ax! tx a2").messages

    assert not flaws(chat("u1 ax! tx a1 u2 ax! tx a2"))
    assert [words(group) for group in exchanges(messages)] == ["u1", "ax! tx", "a1", "u2", "ax! tx", "a2"]


call_lists = st.lists(st.sampled_from("wxyz"), min_size=1, max_size=3).map(lambda ids: "a!" + ",".join(ids))
any_words = st.sampled_from(["s", "d", "u1", "a1", "tw", "tx", "ty", "tz"]) | call_lists
conversations = st.lists(any_words, max_size=14).map(" ".join)


@given(conversations)
@thorough
def test_exchanges_are_the_conversation_cut_into_pieces(conversation: str) -> None:
    messages = chat(conversation).messages
    groups = exchanges(messages)

    together = [item for group in groups for item in group]
    assert [id(item) for item in together] == [id(item) for item in messages]
    assert all(groups)


@given(conversations)
@thorough
def test_no_cut_separates_a_call_from_its_results(conversation: str) -> None:
    messages = chat(conversation).messages
    cuts = legal_cuts(messages)

    made: dict[str, int] = {}
    assert {0, len(messages)} <= cuts
    for index, item in enumerate(messages):
        made |= dict.fromkeys(item.call_ids, index)
        if item.role == "tool" and item["tool_call_id"] in made:
            call = made[item["tool_call_id"]]
            assert not any(call < cut <= index for cut in cuts)


@st.composite
def sound_conversations(draw: st.DrawFn) -> str:
    """Calls with ids of their own, each answered in some order before the next message."""
    said: list[str] = []
    for number in range(draw(st.integers(1, 8))):
        calls = [f"{number}{letter}" for letter in "pqr"[: draw(st.integers(0, 3))]]
        if calls:
            said += ["a!" + ",".join(calls), *(f"t{call}" for call in draw(st.permutations(calls)))]
        else:
            said.append(draw(st.sampled_from(["u", "a", "s"])) + str(number))
    return " ".join(said)


@given(sound_conversations())
@thorough
def test_both_sides_of_a_legal_cut_are_sound(conversation: str) -> None:
    request = chat(conversation)

    assert not flaws(request)
    for cut in legal_cuts(request.messages) - {0, len(request.messages)}:
        assert not flaws(request.with_messages(request.messages[:cut]))
        assert not flaws(request.with_messages(request.messages[cut:]))


@given(sound_conversations())
@thorough
def test_a_conversation_that_is_cut_anywhere_else_is_not_sound(conversation: str) -> None:
    request = chat(conversation)

    for cut in set(range(1, len(request.messages))) - legal_cuts(request.messages):
        assert flaws(request.with_messages(request.messages[cut:]))


@given(sound_conversations(), st.data())
@thorough
def test_leaving_out_whole_exchanges_before_the_last_user_message_does_no_damage(
    conversation: str, data: st.DataObject
) -> None:
    request = chat(f"{conversation} u-last")
    groups = exchanges(request.messages)
    kept = [group for group in groups[:-1] if data.draw(st.booleans())] + groups[-1:]

    assert not damage(request, request.with_messages(item for group in kept for item in group))


# --- wire rules -------------------------------------------------------------------------------------------------------


def with_choice(choice: Any, *names: str) -> ChatRequest:
    return chat("u1", tools=[tool(name) for name in names], tool_choice=choice)


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(chat("s u1 a1 u2"), id="a plain conversation"),
        pytest.param(chat("u1 a!x,y ty tx a1"), id="parallel calls, answered in any order"),
        pytest.param(chat("u1 ax!"), id="an open call at the end is the client's to answer"),
        pytest.param(chat("u1 a!x,y tx"), id="a half answered one at the end too"),
        pytest.param(chat("u1 ax! tx ay! ty"), id="one call after the other"),
        pytest.param(chat("u1 ax! tx u2 ax! tx"), id="an id may be used again in a later exchange"),
        pytest.param(with_choice("auto"), id="auto without tools"),
        pytest.param(with_choice("none"), id="none without tools"),
        pytest.param(with_choice(None), id="null without tools"),
        pytest.param(with_choice("required", "f"), id="required with tools"),
        pytest.param(with_choice(function("f"), "f"), id="a choice that is offered"),
        pytest.param(
            with_choice({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("f")]}}, "f"),
            id="allowed tools that are offered",
        ),
        pytest.param(
            ChatRequest("m", (Message({"role": "assistant", "content": None, "refusal": "no"}),)), id="a refusal"
        ),
        pytest.param(
            ChatRequest("m", (Message({"role": "assistant", "audio": {"id": "a"}}),)), id="an answer in sound"
        ),
        pytest.param(
            ChatRequest("m", (Message({"role": "assistant", "function_call": {"name": "f"}}),)), id="the old call"
        ),
        pytest.param(ChatRequest("m", (Message({"role": "function", "name": "f", "content": "x"}),)), id="old result"),
    ],
)
def test_a_sound_request_has_no_flaw(request_: ChatRequest) -> None:
    assert flaws(request_) == set()


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        pytest.param(chat(""), {"messages is empty"}, id="no messages"),
        pytest.param(chat("u1 tx"), {"tool result 'x' does not follow its call"}, id="an orphan result"),
        pytest.param(chat("ax! u1 tx"), {"tool call 'x' has no result", "tool result 'x' does not follow its call"},
                     id="a message between a call and its result"),
        pytest.param(chat("ax! u1"), {"tool call 'x' has no result"}, id="a call without a result"),
        pytest.param(chat("a!x,y tx u1"), {"tool call 'y' has no result"}, id="one of two parallel calls unanswered"),
        pytest.param(chat("ax! tx tx"), {"tool call 'x' has two results"}, id="two results"),
        pytest.param(chat("ax! tx a1 tx"), {"tool result 'x' does not follow its call"}, id="a second result, later"),
        pytest.param(chat("tx ax!"), {"tool result 'x' does not follow its call"}, id="a result before its call"),
        pytest.param(with_choice("required"), {"tool_choice is set and no tool is offered"}, id="required, no tools"),
        pytest.param(with_choice(function("g"), "f"), {"tool_choice names 'g', which is not offered"},
                     id="a choice that is not offered"),
        pytest.param(with_choice({"allowed_tools": {"tools": [function("f"), function("g")]}}, "f"),
                     {"tool_choice names 'g', which is not offered"}, id="one allowed tool is not offered"),
        pytest.param(ChatRequest("m", (Message({"role": "robot"}),)), {"role 'robot' is unknown"}, id="unknown role"),
        pytest.param(ChatRequest("m", (Message({"role": "assistant", "content": ""}),)),
                     {"an assistant message is empty"}, id="an empty answer"),
    ],
)  # fmt: skip
def test_a_broken_wire_rule_is_a_flaw(request_: ChatRequest, found: set[str]) -> None:
    assert flaws(request_) == found


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param({"allowed_tools": {"tools": 5}}, id="a number of tools"),
        pytest.param({"allowed_tools": {"tools": "all"}}, id="a word for tools"),
        pytest.param({"allowed_tools": {"tools": [None, 1, "x"]}}, id="tools that are no objects"),
        pytest.param({"allowed_tools": []}, id="a list"),
        pytest.param({"function": "f"}, id="a word for a function"),
        pytest.param({"function": {"name": ["f"]}}, id="a list for a name"),
        pytest.param({}, id="an empty object"),
        pytest.param([], id="an empty list"),
        pytest.param(7, id="a number"),
    ],
)
def test_a_nonsense_choice_of_tools_never_fails(choice: Any) -> None:
    assert all(isinstance(name, str) for name in chosen_tools(choice))
    assert all(isinstance(flaw, str) for flaw in flaws(with_choice(choice, "f")))


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        pytest.param("auto", (), id="a mode"),
        pytest.param(None, (), id="nothing"),
        pytest.param(function("f"), ("f",), id="one function"),
        pytest.param({"type": "custom", "custom": {"name": "c"}}, ("c",), id="one custom tool"),
        pytest.param({"allowed_tools": {"tools": [function("a"), function("b")]}}, ("a", "b"), id="allowed tools"),
    ],
)
def test_the_tools_that_a_choice_names(choice: Any, names: tuple[str, ...]) -> None:
    assert chosen_tools(choice) == names


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("s u1 a1 u2", "s u1 a1 u2", id="nothing changed"),
        pytest.param("s u1 a1 u2", "s u2", id="old turns leave"),
        pytest.param("u1 ax! tx u2", "u1 u2", id="a whole exchange leaves"),
        pytest.param("u1 ax! tx u2", "s u1 ax! tx a9 u2", id="something is added"),
        pytest.param("u1 ax! tx ay! ty", "u1 ay! ty", id="results that were read leave"),
        pytest.param("s1 a1", "s2 a1", id="there is no user message to keep"),
        pytest.param("u1 tz u2", "tz u2", id="a flaw of the client's own is not the rewrite's"),
    ],
)
def test_a_rewrite_without_damage(before: str, after: str) -> None:
    assert damage(chat(before, tools=[tool()]), chat(after, tools=[tool()])) == set()


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        pytest.param("u1 a1 u2", "u1 a1", {"the last user message was changed or lost"}, id="last user message lost"),
        pytest.param("u1 a1 u2", "u1 a1 u3", {"the last user message was changed or lost"}, id="and changed"),
        pytest.param("u1 ax! tx a1", "u1 tx a1", {"tool result 'x' does not follow its call"}, id="a call lost"),
        pytest.param("u1 ax! tx a1", "u1 ax! a1", {"tool call 'x' has no result"}, id="a result lost"),
        pytest.param("u1 a!x,y tx ty", "u1 a!x,y tx",
                     {"a tool result that the model has not read yet was lost or moved"}, id="an unread result lost"),
        pytest.param("u1 a!x,y tx ty", "u1 a!x,y ty tx",
                     {"a tool result that the model has not read yet was lost or moved"}, id="unread results moved"),
        pytest.param("u1 ax! tx", "u1 ax! tx a1",
                     {"a tool result that the model has not read yet was lost or moved"}, id="an answer put behind"),
        pytest.param("s", "", {"messages is empty"}, id="nothing left"),
    ],
)  # fmt: skip
def test_what_a_rewrite_damages(before: str, after: str, broken: set[str]) -> None:
    assert damage(chat(before, tools=[tool()]), chat(after, tools=[tool()])) == broken


def test_the_content_of_an_unread_result_may_change() -> None:
    before = chat("u1 ax! tx")
    after = before.with_messages([*before.messages[:-1], before.messages[-1].with_changes(content="shorter")])

    assert damage(before, after) == set()


def test_a_tool_that_the_history_calls_must_stay_on_offer() -> None:
    before = chat("u1 ax! tx u2", tools=[tool("look_up"), tool("other")])

    assert damage(before, before.with_tools([tool("look_up")])) == set()
    assert damage(before, before.with_tools([tool("other")])) == {
        "tool 'look_up' is called in the history and no longer offered"
    }
    assert damage(before, before.with_tools([tool("other")]).with_messages([message("u2")])) == set()


def test_a_called_tool_that_the_client_never_offered_is_not_missed() -> None:
    before = chat("u1 ax! tx u2", tools=[tool("a"), tool("b")])

    assert damage(before, before.with_tools([tool("a")])) == set()


def test_a_chosen_tool_must_stay_on_offer() -> None:
    before = with_choice(function("f"), "f", "g")

    assert damage(before, before.with_tools([tool("f")])) == set()
    assert damage(before, before.with_tools([tool("g")])) == {"tool_choice names 'f', which is not offered"}
