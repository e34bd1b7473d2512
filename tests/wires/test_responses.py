"""Requests in the form of Responses: the view that policies see, and what becomes of the client's bytes."""

import json
from typing import Any

import pytest

from proxy.chat import ChatRequest, Message, chosen_tools
from proxy.chat.errors import BadRequest
from proxy.chat.reasoning import signed_places, without_reasoning
from proxy.wires.responses import ITEMS, ResponsesBody
from tests.wires.bodies import Change, Json, edited

TOOLS = [
    {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": None},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
    {"type": "web_search"},
]


AGENT: Json = {
    "model": "gpt-5.6",
    "instructions": "Work.",
    "tools": TOOLS,
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
    "max_output_tokens": 100,
    "input": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": '{"at":1.50}'},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "configuration_update", "reasoning": {"effort": "high"}},
        {"role": "user", "content": "And now?"},
    ],
}  # fmt: skip


def read(body: Json | bytes) -> ChatRequest:
    return ResponsesBody(body if isinstance(body, bytes) else json.dumps(body).encode()).parse()


def written(change: Change) -> list[Json]:
    found: list[Json] = json.loads(edited(read(AGENT), change).encode())["input"]
    return found


def test_policies_see_chat_completions() -> None:
    request = read(AGENT)

    roles = ["system", "developer", "user", "assistant", "tool", "tool", "control", "user"]
    assert [each.role for each in request.messages] == roles
    assert (request.messages[2]["content"], request.messages[3]["content"]) == ("Go.", "I look.")
    assert request.messages[3].called_tools == ("look", "patch")
    assert request.messages[5] == {"role": "tool", "tool_call_id": "c2", "content": "two"}
    assert [tool.name for tool in request.tools] == ["look", "patch", ""]
    assert chosen_tools(request.rest["tool_choice"]) == ("look",)
    assert signed_places(request) == (3,)
    assert request.max_output_tokens == 100


CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}


@pytest.mark.parametrize(
    ("items", "roles"),
    [
        ([CALL, {"type": "web_search_call", "id": "ws_1"}], ["assistant"]),
        ([{"type": "web_search_call", "id": "ws_1"}, CALL], ["opaque", "assistant"]),
        ([CALL, {"type": "computer_call_output", "call_id": "c1"}], ["assistant", "tool"]),
        ([CALL, {"type": "computer_call_output", "call_id": "c2"}], ["assistant", "opaque"]),
        ([CALL, {"type": "compaction", "encrypted_content": "sealed"}], ["assistant", "control"]),
        ([CALL, {"id": "fc_1"}], ["assistant", "control"]),
    ],
)
def test_an_item_of_the_vendor_is_said_behind_what_the_model_said(items: list[Json], roles: list[str]) -> None:
    assert [each.role for each in read({"model": "m", "input": items}).messages] == roles


def test_a_result_is_spliced_and_reasoning_leaves_with_the_ids_of_its_followers() -> None:
    found = written(lambda messages: messages.__setitem__(5, messages[5].with_changes(content="2")))
    assert found[7] == {**AGENT["input"][7], "output": [{"type": "input_text", "text": "2"}]}
    assert [*found[:7], *found[8:]] == [*AGENT["input"][:7], *AGENT["input"][8:]]
    found = written(lambda messages: messages.__setitem__(3, without_reasoning(messages[3])))
    followers = [{key: value for key, value in item.items() if key != "id"} for item in AGENT["input"][3:6]]
    assert found == [*AGENT["input"][:2], *followers, *AGENT["input"][6:]]


@pytest.mark.parametrize("thoughts", [[], [{"type": "reasoning", "id": "rs_2", "summary": []}]])
def test_the_items_of_a_round_keep_their_ids_unless_their_reasoning_leaves(thoughts: list[Json]) -> None:
    said = {
        "type": "message",
        "id": "msg_2",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I see."}],
    }
    hidden = Message({"role": "assistant", "content": "I see.", ITEMS: [*thoughts, said]})
    (item,) = written(lambda messages: messages.insert(2, hidden))[1:2]
    assert item == {key: value for key, value in said.items() if key != "id" or not thoughts}


def test_an_exchange_leaves_whole_and_a_message_of_a_policy_is_written_in_its_place() -> None:
    found = written(lambda messages: messages.__delitem__(slice(3, 6)))
    assert found == [*AGENT["input"][:2], *AGENT["input"][8:]]
    found = written(lambda messages: messages.insert(2, Message({"role": "user", "content": "Noted."})))
    noted = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Noted."}]}
    assert found == [AGENT["input"][0], noted, *AGENT["input"][1:]]


def test_instructions_of_null_stay_where_messages_change() -> None:
    request = read({"model": "m", "instructions": None, "input": "Go."})
    sent = json.loads(request.with_messages([Message({"role": "user", "content": "Stop."})]).encode())
    assert (sent["instructions"], [item["role"] for item in sent["input"]]) == (None, ["user"])


def test_an_attachment_in_a_message_of_a_policy_keeps_its_type() -> None:
    image = {"type": "input_image", "image_url": "https://x.test/wall.png"}
    recalled = Message({"role": "user", "content": [{"type": "text", "text": "As before."}, image]})
    content = written(lambda messages: messages.insert(-1, recalled))[-2]["content"]
    assert content == [{"type": "input_text", "text": "As before."}, image]


@pytest.mark.parametrize(
    "change",
    [lambda messages: messages.pop(0), lambda messages: messages.pop(6)],
    ids=["the instructions are lost", "an opaque item is lost"],
)
def test_a_change_without_a_form_is_refused(change: Change) -> None:
    assert edited(read(AGENT), change).flaw()


def test_fields_are_set_in_the_vendors_words() -> None:
    request = read(AGENT)
    narrowed = {"type": "function", "function": {"name": "look"}}
    made = json.loads(request.with_field("tool_choice", narrowed).encode())
    assert made["tool_choice"] == {"type": "function", "name": "look"}
    assert json.loads(request.with_shorter_answer(50).encode())["max_output_tokens"] == 50


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (7, "input"),
        ([{"type": 1}], "input[0].type"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "user", "content": "a", "x_penstock_task": "t"}], "input[0].x_penstock_task"),
        ([{"type": "function_call", "call_id": "c", "name": "n"}], "input[0].arguments"),
        ([{"type": "function_call_output", "call_id": "c", "output": [1]}], "input[0].output"),
        ([{"role": "user", "content": [{"type": [], "text": "a"}]}], "input[0].content"),
    ],
)
def test_wrong_shapes_are_refused_with_their_place(given: Any, place: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read({"model": "m", "instructions": "s", "input": given})
    assert refused.value.param == place
