"""The wire rules: what makes a request unsound, and what a rewrite damages."""

from typing import Any

import pytest

from proxy.chat import ChatRequest, Message, chosen_tools
from proxy.chat.wire import damage, flaws
from proxy.testing import chat, message, tool


def with_choice(choice: Any, *names: str) -> ChatRequest:
    return chat("u1", tools=[tool(name) for name in names], tool_choice=choice)


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def answered(**fields: Any) -> ChatRequest:
    return ChatRequest("m", (Message({"role": "assistant", **fields}),))


UNREAD = {"a tool result that the model has not read yet was lost or moved"}


CALLED = chat("u1 ax! tx u2", tools=[tool("look_up"), tool("other")])


@pytest.mark.parametrize("request_", [
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
    pytest.param(with_choice({"allowed_tools": {"tools": [function("f")]}}, "f"), id="allowed tools that are offered"),
    pytest.param(answered(content=None, refusal="no"), id="a refusal"),
    pytest.param(answered(audio={"id": "a"}), id="an answer in sound"),
    pytest.param(answered(function_call={"name": "f"}), id="the old call"),
    pytest.param(ChatRequest("m", (Message({"role": "function", "name": "f", "content": "x"}),)), id="old result"),
])  # fmt: skip
def test_a_sound_request_has_no_flaw(request_: ChatRequest) -> None:
    assert flaws(request_) == set()


@pytest.mark.parametrize(("request_", "found"), [
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
])  # fmt: skip
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
        pytest.param("u1 a!x,y tx ty s2", "s2 u1 a!x,y tx ty", id="a system message leaves from behind unread results"),
        pytest.param("s1 a1", "s2 a1", id="there is no user message to keep"),
        pytest.param("u1 tz u2", "tz u2", id="a flaw of the client's own is not the rewrite's"),
    ],
)
def test_a_rewrite_without_damage(before: str, after: str) -> None:
    assert damage(chat(before, tools=[tool()]), chat(after, tools=[tool()])) == set()


@pytest.mark.parametrize(("before", "after", "broken"), [
    pytest.param("u1 a1 u2", "u1 a1", {"the last user message was changed or lost"}, id="last user message lost"),
    pytest.param("u1 a1 u2", "u1 a1 u3", {"the last user message was changed or lost"}, id="and changed"),
    pytest.param("u1 ax! tx a1", "u1 tx a1", {"tool result 'x' does not follow its call"}, id="a call lost"),
    pytest.param("u1 ax! tx a1", "u1 ax! a1", {"tool call 'x' has no result"}, id="a result lost"),
    pytest.param("u1 a!x,y tx ty", "u1 a!x,y tx", UNREAD, id="an unread result lost"),
    pytest.param("u1 a!x,y tx ty", "u1 a!x,y ty tx", UNREAD, id="unread results moved"),
    pytest.param("u1 ax! tx", "u1 ax! tx a1", UNREAD, id="an answer put behind"),
    pytest.param("s", "", {"messages is empty"}, id="nothing left"),
])  # fmt: skip
def test_what_a_rewrite_damages(before: str, after: str, broken: set[str]) -> None:
    assert damage(chat(before, tools=[tool()]), chat(after, tools=[tool()])) == broken


SAID = message("u2")
LOST = "the last user message was lost; change it by with_changes()"
CHANGED = SAID.with_changes(content="shorter")


@pytest.mark.parametrize(
    ("sent", "broken"),
    [
        pytest.param(CHANGED, set(), id="a changed copy"),
        pytest.param(CHANGED.with_changes(content="still shorter"), set(), id="a copy of the copy"),
        pytest.param(SAID.with_changes(role="system"), {LOST}, id="of another role"),
        pytest.param(message("u3"), {LOST}, id="another message"),
    ],
)
def test_a_step_that_may_change_the_last_user_message_sends_a_copy_of_it(sent: Message, broken: set[str]) -> None:
    before = ChatRequest("m", (message("u1"), SAID))
    after = before.with_messages([message("u1"), sent])
    assert damage(before, after, changes_last_user_message=True) == broken
    assert damage(before, after) == {"the last user message was changed or lost"}


def test_an_unread_result_may_change_and_a_called_tool_may_leave_with_its_calls() -> None:
    before = chat("u1 ax! tx")
    after = before.with_messages([*before.messages[:-1], before.messages[-1].with_changes(content="shorter")])
    assert damage(before, after) == set()
    assert damage(CALLED, CALLED.with_tools([tool("other")]).with_messages([message("u2")])) == set()


@pytest.mark.parametrize(("before", "left", "broken"), [
    pytest.param(CALLED, "look_up", set(), id="a tool that was not called leaves"),
    pytest.param(CALLED, "other", {"tool 'look_up' is called in the history and no longer offered"}, id="a called one"),
    pytest.param(chat("u1 ax! tx u2", tools=[tool("a"), tool("b")]), "a", set(), id="what was called was never offered"),
    pytest.param(with_choice(function("f"), "f", "g"), "f", set(), id="the chosen tool stays"),
    pytest.param(with_choice(function("f"), "f", "g"), "g", {"tool_choice names 'f', which is not offered"}, id="the chosen tool leaves"),
])  # fmt: skip
def test_a_called_or_chosen_tool_must_stay_on_offer(before: ChatRequest, left: str, broken: set[str]) -> None:
    assert damage(before, before.with_tools([tool(left)])) == broken
