"""Requests in Anthropic's form: the view that policies see, and what becomes of the client's bytes."""

import json
from typing import Any

import pytest

from proxy.chat import CacheMarks, ChatRequest, Message, legal_cuts
from proxy.chat.cache_marks import find_marks, write_marks
from proxy.chat.errors import BadRequest
from proxy.chat.reasoning import signed_places, without_reasoning
from proxy.chat.splice import items
from proxy.wires.messages import MessagesBody
from proxy.wires.native import Unwritable
from tests.wires.bodies import MARK, Change, Json, edited

AGENT: Json = {
    "model": "claude-opus-5",
    "max_tokens": 100,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc"},
        {"type": "text", "text": "Work.", "cache_control": MARK},
    ],
    "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "cache_control": MARK}],
    "tool_choice": {"type": "tool", "name": "look"},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "s1"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1.50}},
                {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}], "is_error": True},
                {"type": "text", "text": "And now?"},
            ],
        },
    ],
}  # fmt: skip


def read(body: Json | bytes) -> ChatRequest:
    return MessagesBody(body if isinstance(body, bytes) else json.dumps(body).encode()).parse()


def replacing(place: int, content: str) -> Change:
    return lambda messages: messages.__setitem__(place, messages[place].with_changes(content=content))


def written(change: Change) -> Json:
    found: Json = json.loads(edited(read(AGENT), change).encode())
    return found


def test_policies_see_chat_completions() -> None:
    request = read(AGENT)

    assert [each.role for each in request.messages] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert request.messages[0].text == "x-anthropic-billing-header: cc\nWork."
    assert (request.messages[1]["content"], request.messages[2]["content"]) == ("Go.", "I look.")
    assert request.messages[2].called_tools == ("look", "look")
    assert request.messages[4] == {"role": "tool", "tool_call_id": "t2", "content": "two", "is_error": True}
    assert [tool.name for tool in request.tools] == ["look"]
    assert request.rest["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert signed_places(request) == (2,)
    assert len(find_marks(request)) == 2
    assert request.max_output_tokens == 100


def test_results_and_texts_stay_together_and_what_a_policy_adds_has_its_place() -> None:
    body = written(replacing(3, "1"))
    assert body["messages"][2]["content"][0] == {"type": "tool_result", "tool_use_id": "t1", "content": "1"}
    assert body["messages"][2]["content"][1:] == AGENT["messages"][2]["content"][1:]
    assert len(body["messages"]) == 3
    body = written(replacing(4, "2"))
    assert body["messages"][2]["content"][1]["content"] == [{"type": "text", "text": "2"}], "it stays a part"
    body = written(lambda messages: messages.insert(1, Message({"role": "user", "content": "Noted."})))
    assert body["messages"] == [{"role": "user", "content": "Noted."}, *AGENT["messages"]]
    body = written(lambda messages: messages.insert(1, Message({"role": "system", "content": "Be brief."})))
    assert body["system"] == [*AGENT["system"], {"type": "text", "text": "Be brief."}], "behind the client's own"


def test_a_system_message_that_repeats_the_system_prompt_stays_in_its_place() -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    request = read({"model": "m", "max_tokens": 9, "system": "Be brief.", "messages": said})
    *others, last = request.messages
    body = json.loads(request.with_messages([*others, last.with_changes(content="Hello")]).encode())
    assert (body["system"], body["messages"]) == ("Be brief.", [said[0], {"role": "user", "content": "Hello"}])


def test_reasoning_leaves_and_arguments_are_spliced() -> None:
    body = written(lambda messages: messages.__setitem__(2, without_reasoning(messages[2])))
    assert body["messages"][1]["content"] == AGENT["messages"][1]["content"][1:]

    def shorten(messages: list[Message]) -> None:
        messages[2] = messages[2].with_texts(lambda text: '{"at":2}' if text == '{"at":1.5}' else text)

    assert written(shorten)["messages"][1]["content"][2]["input"] == {"at": 2}


@pytest.mark.parametrize(
    "change",
    [
        lambda messages: messages.__setitem__(0, Message({"role": "system", "content": "merged"})),
        lambda messages: messages.pop(0),
        lambda messages: messages.__delitem__(slice(1, 2)),
    ],
    ids=["the system prompt is merged", "it is lost", "the first user message is lost"],
)
def test_a_change_without_a_form_is_refused(change: Change) -> None:
    made = edited(read(AGENT), change)
    assert made.flaw()
    with pytest.raises(Unwritable):
        made.encode()


def test_fields_are_set_in_the_vendors_words_and_marks_stand_on_whole_results() -> None:
    request = read(AGENT)
    assert json.loads(request.with_field("tool_choice", "none").encode())["tool_choice"] == {"type": "none"}
    assert json.loads(request.with_tools(()).encode()).keys().isdisjoint({"tools", "tool_choice"})
    assert json.loads(request.with_shorter_answer(50).encode())["max_tokens"] == 50
    assert json.loads(request.with_model("other").encode())["model"] == "other"
    body = json.loads(write_marks(read(AGENT).with_cache_marks(CacheMarks((1, 3)))).encode())
    assert body["messages"][0]["content"][0]["cache_control"] == MARK
    assert body["messages"][2]["content"][0] == {**AGENT["messages"][2]["content"][0], "cache_control": MARK}


def test_the_next_request_has_the_same_views() -> None:
    known: dict[bytes, Any] = {}

    class Earlier:
        get = staticmethod(known.get)

        @staticmethod
        def put(opening: bytes, parsed: Any, size: int) -> None:
            known[opening] = parsed

    body = {**AGENT, "messages": [{"role": "user", "content": "Go. " * 2000}, *AGENT["messages"][1:]]}
    first = MessagesBody(json.dumps(body).encode(), Earlier()).parse()
    body["messages"] += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
    second = MessagesBody(json.dumps(body).encode(), Earlier()).parse()

    assert all(one is other for one, other in zip(first.messages, second.messages, strict=False))
    assert len(second.messages) == len(first.messages) + 2


@pytest.mark.parametrize(("messages", "place"), [
    ([{"role": 1, "content": "a"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": "a", "x_penstock_task": "t"}], "messages[0].x_penstock_task"),
    ([{"role": "user", "content": [1]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "n"}]}], "messages[0].content[0].input"),
    ([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [[]]}]}], "messages[0].content[0].content[0]"),
    ([], "messages"),
])  # fmt: skip
def test_wrong_shapes_are_refused_with_their_place(messages: Any, place: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read({"model": "m", "max_tokens": 1, "system": "s", "messages": messages})
    assert refused.value.param == place


def test_a_member_twice_is_not_rewritten_and_items_are_bytes() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}'
    request = read(raw)
    assert request.encode() == raw
    assert request.with_messages([each.with_changes(content="c") for each in request.messages]).flaw()
    assert items(b'[ {"a": 1.0},\n"x" ]') == [b'{"a": 1.0}', b'"x"']


ASKED = {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {}}
CALLED = {"type": "tool_use", "id": "t1", "name": "get", "input": {}, "caller": {"type": "code", "tool_id": "s1"}}
ROWS = {"type": "tool_result", "tool_use_id": "t1", "content": "rows"}
FOUND = {"type": "code_execution_tool_result", "tool_use_id": "s1", "content": {"stdout": "4"}}
MCP = ({"type": "mcp_tool_use", "id": "s1", "name": "x"}, {"type": "mcp_tool_result", "tool_use_id": "s1"})


@pytest.mark.parametrize(
    ("said", "cuts"),
    [
        ([("assistant", [ASKED, FOUND]), ("user", "b")], {0, 1, 2, 3}),
        ([("assistant", [ASKED]), ("assistant", [FOUND]), ("user", "b")], {0, 1, 3, 4}),
        ([("assistant", [ASKED, CALLED]), ("user", [ROWS]), ("assistant", [FOUND])], {0, 1, 4}),
        ([("assistant", [MCP[0]]), ("user", [MCP[1]]), ("assistant", "b")], {0, 1, 3, 4}),
        ([("assistant", [FOUND]), ("user", "b"), ("assistant", [ASKED])], {0, 1, 2, 3, 4}),
    ],
    ids=["in one answer", "in two", "a call between them", "of an MCP server", "no pair"],
)
def test_no_cut_parts_the_call_of_a_vendors_tool_from_its_result(said: list[Any], cuts: set[int]) -> None:
    messages = [{"role": role, "content": content} for role, content in [("user", "a"), *said]]
    assert legal_cuts(read({"model": "m", "max_tokens": 9, "messages": messages}).messages) == cuts


def test_new_fields_are_written_in_the_order_in_which_they_came() -> None:
    names = [f"x_{number}" for number in range(9)]
    request = read(AGENT)
    for name in names:
        request = request.with_field(name, 1)

    assert [*json.loads(request.encode())] == [*AGENT, *names]
