"""How a conversation reaches Anthropic: whatever OpenAI's wire allows, the strict stand-in takes."""

from typing import Any

import pytest

from tests.upstreams.anthropic.conftest import (
    MODEL,
    TOOL,
    Client,
    assistant,
    call,
    result,
    system,
    text,
    thinking,
    user,
)
from tests.upstreams.anthropic.stand_in import StandIn

MARK = {"type": "ephemeral"}
NEW = "claude-opus-5"


async def test_a_conversation_with_tools(client: Client, anthropic: StandIn) -> None:
    answered = await client.chat(
        system("Be brief."),
        {"role": "developer", "content": "Really."},
        user("Hi"),
        assistant("I look.", call("toolu_1"), call("toolu_2", "")),
        result("toolu_1", "one"),
        result("toolu_2", [text("two"), text("")]),
        user("Go on"),
        tools=[TOOL],
    )

    assert answered.status == 200
    body = anthropic.bodies[0]
    assert body["system"] == [text("Be brief."), text("Really.")]
    assert body["messages"] == [
        {"role": "user", "content": [text("Hi")]},
        {"role": "assistant", "content": [
            text("I look."),
            {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"key": "a"}},
            {"type": "tool_use", "id": "toolu_2", "name": "look_up", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("one")]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [text("two")]},
            text("Go on"),
        ]},
    ]  # fmt: skip
    schema = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
    assert body["tools"] == [{"name": "look_up", "description": "Look something up.", "input_schema": schema}]


@pytest.mark.parametrize("messages", [
    pytest.param([user("a"), user("b")], id="two of the user"),
    pytest.param([user(""), user("b")], id="an empty text"),
    pytest.param([user([text(" \n"), text("b")])], id="an empty part"),
    pytest.param([user("a"), assistant(""), user("b")], id="an empty answer"),
    pytest.param([user("a"), assistant("", call("c")), result("c", "")], id="an empty result"),
    pytest.param([user("a"), assistant(" ", call("c")), result("c", None)], id="a result without content"),
    pytest.param([user("a"), assistant(None, call("c", "{not json")), result("c")], id="broken arguments"),
    pytest.param([user("a"), assistant(None, call("c", '"text"')), result("c")], id="arguments of another kind"),
    pytest.param([user("a"), assistant(None, call("functions.x:0")), result("functions.x:0")], id="another's id"),
    pytest.param([user("a"), assistant(None, call("c"), call("d")), result("d"), user("x"), result("c")], id="mixed"),
    pytest.param([user("a"), assistant("b ")], id="something to go on with"),
    pytest.param([system("only")], id="a system prompt alone"),
    pytest.param([user("a"), assistant(refusal="no"), user("b")], id="a refusal"),
    pytest.param([user("a"), system("late"), assistant("b"), user("c")], id="a late system message"),
    pytest.param([user("a"), assistant("b"), system("late"), user("c")], id="one before the user"),
    pytest.param([user("a"), assistant("b"), system("late")], id="one at the end"),
    pytest.param([user("a"), assistant(None, call("c")), system("x"), result("c")], id="one before a result"),
    pytest.param([user("a"), assistant(None, call("c")), result("c"), system("x")], id="one behind a result"),
    pytest.param(
        [user("a"), assistant(function_call={"name": "look_up", "arguments": "{}"}),
         {"role": "function", "name": "look_up", "content": "x"}], id="the deprecated form"),
])  # fmt: skip
@pytest.mark.parametrize("model", [MODEL, NEW])
async def test_clients_turns(client: Client, anthropic: StandIn, messages: list[dict[str, Any]], model: str) -> None:
    assert (await client.chat(*messages, model=model, tools=[TOOL])).status == 200
    assert anthropic.refused == []


async def test_no_words_of_ours_enter_the_conversation(client: Client, anthropic: StandIn) -> None:
    await client.chat(user("one"), assistant(""), user(""), assistant(None, call("c")), result("c", ""), tools=[TOOL])

    assert anthropic.bodies[0]["messages"] == [
        {"role": "user", "content": [text("one")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look_up", "input": {"key": "a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
    ]


async def test_calls_are_taken_without_tools_and_broken_arguments_say_so(client: Client, anthropic: StandIn) -> None:
    assert (await client.chat(user("a"), assistant(None, call("c", '{"key": ')), result("c"))).status == 200
    assert anthropic.bodies[0]["tool_choice"] == {"type": "none"}
    assert anthropic.bodies[0]["messages"][1]["content"][0]["input"] == {"malformed_arguments": '{"key": '}


async def test_a_late_system_message_stays_in_its_place(client: Client, anthropic: StandIn) -> None:
    begun = [system("s"), user("a"), assistant("b"), system("late"), user("c")]
    await client.chat(*begun, model=NEW)
    await client.chat(*begun, assistant("d"), user("e"), model=NEW)

    first, second = (body["messages"] for body in anthropic.bodies)
    assert first[-2:] == [{"role": "user", "content": [text("c")]}, {"role": "system", "content": [text("late")]}]
    assert second[: len(first)] == first
    assert anthropic.bodies[0]["system"] == anthropic.bodies[1]["system"] == [text("s")]


async def test_a_late_system_message_joins_the_users_turn_of_older_models(client: Client, anthropic: StandIn) -> None:
    await client.chat(system("s"), user("a"), assistant("b"), system("late"), user("c"))

    assert anthropic.bodies[0]["system"] == [text("s")]
    assert anthropic.bodies[0]["messages"][-1] == {"role": "user", "content": [text("late"), text("c")]}


async def test_marks_of_the_cache_reach_the_wire(client: Client, anthropic: StandIn) -> None:
    await client.chat(
        system([{**text("s"), "cache_control": {**MARK, "ttl": "1h"}}]),
        user("a"),
        assistant("I look.", call("c"), cache_control=MARK),
        result("c", [{**text("found"), "cache_control": MARK}]),
        tools=[{**TOOL, "cache_control": {**MARK, "ttl": "1h"}}],
    )

    body = anthropic.bodies[0]
    assert anthropic.refused == []
    assert body["system"][0]["cache_control"] == body["tools"][0]["cache_control"] == {**MARK, "ttl": "1h"}
    answer, results = body["messages"][1]["content"], body["messages"][2]["content"]
    assert [block.get("cache_control") for block in answer] == [None, MARK]
    assert results == [{"type": "tool_result", "tool_use_id": "c", "content": [text("found")], "cache_control": MARK}]


async def test_a_mark_never_stands_on_thinking(client: Client, anthropic: StandIn) -> None:
    anthropic.say(thinking(), text("b"))
    said = (await client.chat(user("a"))).message

    assert (await client.chat(user("a"), {**said, "cache_control": MARK}, user("c"))).status == 200
    assert anthropic.bodies[1]["messages"][1]["content"][1]["cache_control"] == MARK


async def test_top_level_marks_and_fields_of_anthropics_own(client: Client, anthropic: StandIn) -> None:
    assert (await client.chat(cache_control=MARK, top_k=5, container=None, inference_geo="us")).status == 200

    body = anthropic.bodies[0]
    assert (body["cache_control"], body["top_k"], body["inference_geo"]) == (MARK, 5, "us")
    assert "container" not in body


async def test_images_files_and_native_parts(client: Client, anthropic: StandIn) -> None:
    pdf = {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"}
    plain = {"file_data": "data:text/plain;base64,aGk=", "filename": "a.txt"}
    native = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"},
              "citations": {"enabled": True}}  # fmt: skip
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}, "cache_control": MARK},
        *({"type": "file", "file": file} for file in (pdf, plain, {"file_id": "file_1"})),
        native,
    ]
    await client.chat(user(parts))

    assert anthropic.refused == []
    assert anthropic.bodies[0]["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}, "cache_control": MARK},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
         "title": "a.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}, "title": "a.txt"},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        native,
    ]  # fmt: skip


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}},
    {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
])  # fmt: skip
async def test_parts_without_a_form_are_a_clear_400(client: Client, anthropic: StandIn, part: dict[str, Any]) -> None:
    answered = await client.chat(user([part]))

    assert answered.status == 400
    assert answered.error["param"].startswith("messages[0].content[0]")
    assert answered.error["code"] == "unsupported_parameter"
    assert anthropic.bodies == []
