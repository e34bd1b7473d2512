"""What leaves a request, and how calls are translated to and fro."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Message, Tool
from proxy.chat.wire import damage
from proxy.testing import chat, tool
from proxy.tools.deferral import OURS, Misfit, deferrable, deferred, unwrapped
from tests.talk import result

TOOLS = (tool("one"), tool("two"), tool("three"))


def call(name: str, arguments: Any, id: str = "c1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(*calls: dict[str, Any], tools: tuple[Tool, ...] = TOOLS, **rest: Any) -> ChatRequest:
    request = chat("s u1", tools=tools, **rest)
    called = Message({"role": "assistant", "content": "so", "tool_calls": list(calls)})
    return request.with_messages([*request.messages, called, *(result("done", one["id"]) for one in calls)])


def test_two_tools_stand_in_place_of_those_that_leave() -> None:
    request = chat("s u1 a1! t1 u2", tools=[tool("a"), tool("look_up"), tool("b")])
    made = deferred(request, {"look_up", "b"})

    assert [each.name for each in made.tools] == ["a", "search_tools", "call_tool"]
    assert made.tools[0] is request.tools[0]
    assert [one is other for one, other in zip(made.messages, request.messages, strict=True)] == [1, 1, 0, 1, 1]
    (through,) = made.messages[2]["tool_calls"]
    assert through["id"] == "1"
    assert through["function"] == {"name": "call_tool", "arguments": '{"name":"look_up","arguments":{"key":"1"}}'}
    assert not damage(request, made)


def test_where_nothing_leaves_or_it_was_applied_already_nothing_changes() -> None:
    request = asked(call("one", "{}"))
    assert deferred(request, set()) is request
    assert deferred(request, {"nobody"}) is request
    request = asked(call("one", "{}"))
    assert deferred(request, {"three"}).messages is request.messages
    request = asked(call("one", '{"key":"1"}'), call("two", "{}", "c2"))
    made = deferred(request, {"one", "three"})
    assert deferred(made, {"one", "three"}) is made
    assert deferrable(made, made.tools) == (TOOLS[1],)


def test_only_calls_of_what_left_are_translated_with_all_that_they_carry() -> None:
    custom = {"id": "c3", "type": "custom", "custom": {"name": "three", "input": "x"}}
    request = asked(call("one", "{}"), call("two", "{}", "c2"), custom, call("gone", "{}", "c4"))
    made = deferred(request, {"one", "three"})
    first, *others = made.messages[2]["tool_calls"]
    assert first["function"]["name"] == "call_tool"
    assert others == request.messages[2]["tool_calls"][1:]
    signed = {**call("one", "{}"), "extra_content": {"signature": "s"}}
    made = deferred(asked(signed), {"one"})
    assert made.messages[2]["tool_calls"][0]["extra_content"] == {"signature": "s"}
    assert made.messages[2]["content"] == "so"


@pytest.mark.parametrize(
    ("given_", "inner"),
    [
        ('{ "key" : 1.0 }', '{ "key" : 1.0 }'),
        ("", "{}"),
        (" ", "{}"),
        (None, "{}"),
        ({"key": "é"}, '{"key":"é"}'),
        ('{"key":', '"{\\"key\\":"'),
        ("[1]", '"[1]"'),
        ('{"n":NaN}', '"{\\"n\\":NaN}"'),
    ],
)
def test_arguments_of_any_kind_are_json_behind_it(given_: Any, inner: str) -> None:
    made = deferred(asked(call("one", given_)), {"one"})
    arguments = made.messages[2]["tool_calls"][0]["function"]["arguments"]
    assert arguments == f'{{"name":"one","arguments":{inner}}}'
    assert json.loads(arguments)["name"] == "one"


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.dictionaries(st.text(), values), st.sampled_from(["one", "a.b/c", 'q"uote', "naïve"]), st.booleans())
def test_there_and_back_are_the_same_bytes(arguments: Any, name: str, ascii_: bool) -> None:
    text = json.dumps(arguments, ensure_ascii=ascii_)
    if "\\ud" in text:  # half a character: no JSON for others
        return
    made = deferred(asked(call(name, text), tools=(tool(name), tool("x"))), {name})
    wanted = unwrapped(made.messages[2]["tool_calls"][0]["function"]["arguments"])
    assert wanted == (name, text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"name": "one", "arguments": {"a": 1.0}}', ("one", '{"a": 1.0}')),
        ('{"arguments":{"big":12345678901234567890},"name":" one "}', ("one", '{"big":12345678901234567890}')),
        ('{"name":"one"}', ("one", "{}")),
        ('{"name":"one","arguments":"{\\"a\\":1}"}', ("one", '{"a":1}')),
    ],
)
def test_what_a_call_asks_for(text: str, wanted: tuple[str, str]) -> None:
    assert unwrapped(text) == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no JSON object"),
        ("[]", "no JSON object"),
        ('{"name":"one","arguments":{"a":', "no JSON object"),
        ('{"arguments":{}}', 'no "name"'),
        ('{"name":"","arguments":{}}', 'no "name"'),
        ('{"name":3}', 'no "name"'),
        ('{"name":"one","city":"Lima"}', 'belongs into "arguments", an object: city'),
        ('{"name":"one","arguments":[1]}', "must be a JSON object"),
        ('{"name":"one","arguments":"Lima"}', "must be a JSON object"),
    ],
)
def test_what_a_call_cannot_mean_is_told(text: str, told: str) -> None:
    with pytest.raises(Misfit, match=told):
        unwrapped(text)


CUSTOM = Tool({"type": "custom", "custom": {"name": "shell", "format": {"type": "text"}}})
HOSTED = Tool({"type": "web_search"})
NAMED: Any = {"type": "function", "function": {"name": "two"}}
ALLOWED: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}


@pytest.mark.parametrize(
    ("tools", "choice", "may"),
    [
        pytest.param(TOOLS, None, ["one", "two", "three"], id="functions"),
        pytest.param(TOOLS, NAMED, ["one", "three"], id="a forced one stays"),
        pytest.param(TOOLS, ALLOWED, ["one", "three"], id="an allowed one stays"),
        pytest.param((*TOOLS, CUSTOM, HOSTED), None, ["one", "two", "three"], id="custom and hosted ones stay"),
        pytest.param((*TOOLS, tool("one", "again")), None, ["two", "three"], id="names that clash stay"),
        pytest.param((*TOOLS, tool("call_tool")), None, [], id="the client has a call_tool"),
        pytest.param((*TOOLS, *OURS), None, ["one", "two", "three"], id="ours are there already"),
    ],
)
def test_what_may_leave(tools: tuple[Tool, ...], choice: Any, may: list[str]) -> None:
    request = chat("u1", tools=tools, tool_choice=choice)
    assert [each.name for each in deferrable(request, tools)] == may
