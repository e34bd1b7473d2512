"""Given OpenAI, Ollama gets: the translation of requests, field by field."""

from typing import Any

import pytest

from proxy.chat import ChatRequest, Fields, Message, Tool, encode
from proxy.chat.errors import BadRequest
from proxy.testing import chat, tool
from proxy.upstreams.ollama.request import translate

Json = dict[str, Any]
BYTES = "iVBORw0KGgo="
PNG = f"data:image/png;base64,{BYTES}"


def body(request: ChatRequest, num_ctx: int | None = None, keep_alive: str | int | None = None) -> Json:
    return translate(request, num_ctx=num_ctx, keep_alive=keep_alive).body


def of(message: Json, **fields: Any) -> ChatRequest:
    return ChatRequest("m", (Message(message),), rest=Fields(fields))


def said(role: str, content: Any, **more: Any) -> Json:
    return {"role": role, "content": content, **more}


def image(url: Any) -> Json:
    return {"type": "image_url", "image_url": url}


TEXT = {"type": "text", "text": "a"}
WAV = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
CUSTOM = {"id": "c9", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}
SHELL = {"id": "c9", "function": {"index": 0, "name": "sh", "arguments": {"input": "ls -l"}}}
OLD = {"name": "f", "arguments": '{"a":1}'}
NEW = {"id": "call_f", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}
THOUGHT = said("assistant", "a", thinking="hm")


@pytest.mark.parametrize(("given_message", "expected"), [
    pytest.param(said("system", "s"), said("system", "s"), id="system"),
    pytest.param(said("developer", "d"), said("system", "d"), id="developer"),
    pytest.param(said("user", None), said("user", ""), id="no content"),
    pytest.param(said("user", [TEXT, {**TEXT, "text": "b"}]), said("user", "a\nb"), id="text parts are one string"),
    pytest.param(said("user", [TEXT, image({"url": PNG})]), said("user", "a", images=[BYTES]), id="an image"),
    pytest.param(said("user", [image(PNG)]), said("user", "", images=[BYTES]), id="an image as a string"),
    pytest.param(said("user", [WAV]), said("user", "", images=["UklGRg=="]), id="a recording, among the images"),
    pytest.param(said("assistant", "a", reasoning_content="hm"), THOUGHT, id="thoughts"),
    pytest.param(said("assistant", "a", reasoning="hm"), THOUGHT, id="thoughts by their other name"),
    pytest.param(said("assistant", None, refusal="no"), said("assistant", "no"), id="a refusal is what was said"),
    pytest.param(said("assistant", None, function_call=OLD), said("assistant", "", tool_calls=[NEW]), id="a call of the deprecated kind"),
    pytest.param(said("function", "1", name="f"), said("tool", "1", tool_name="f"), id="and its result"),
    pytest.param({"role": "assistant", "tool_calls": [CUSTOM]}, said("assistant", "", tool_calls=[SHELL]), id="a custom call"),
])  # fmt: skip
def test_messages(given_message: Json, expected: Json) -> None:
    assert body(of(given_message))["messages"] == [expected]


@pytest.mark.parametrize(("written", "arguments"), [
    pytest.param('{"b": 1, "a": [2.5, null]}', {"b": 1, "a": [2.5, None]}, id="an object"),
    pytest.param(None, {}, id="absent"),
    pytest.param({"a": 1}, {"a": 1}, id="already an object"),
    pytest.param('{"a": ', {"arguments": '{"a": '}, id="broken JSON"),
    pytest.param("[1]", {"arguments": "[1]"}, id="no object"),
    pytest.param('{"a": "\\ud800"}', {"arguments": '{"a": "\\ud800"}'}, id="half a character"),
    pytest.param("[" * 5000, {"arguments": "[" * 5000}, id="bottomless"),
])  # fmt: skip
def test_arguments_become_an_object(written: Any, arguments: Json) -> None:
    function = {"name": "look_up", "arguments": written}
    made = body(of({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}))

    (called,) = made["messages"][0]["tool_calls"]
    assert called == {"id": "c1", "function": {"index": 0, "name": "look_up", "arguments": arguments}}
    encode(made)


def test_results_name_their_call_and_its_tool() -> None:
    said = body(chat("u1 a1!x,y tx ty a2!x tx"))["messages"]

    assert [message.get("tool_call_id") for message in said] == [None, None, "x", "y", None, "x"]
    assert [message.get("tool_name") for message in said if message["role"] == "tool"] == ["look_up"] * 3
    assert [called["function"]["index"] for called in said[1]["tool_calls"]] == [0, 1]


SAME: Json = {
    "temperature": 0, "top_p": 0.5, "seed": 7, "top_k": 5, "min_p": 0.1, "repeat_penalty": 1.1, "frequency_penalty": 0.5,
    "presence_penalty": -1, "stop": ["a", "b"],
}  # fmt: skip


@pytest.mark.parametrize(("fields", "options"), [
    pytest.param(SAME, SAME, id="the same names"),
    pytest.param({"stop": "END"}, {"stop": ["END"]}, id="one stop text"),
    pytest.param({"stop": []}, None, id="none: the model keeps its own"),
    pytest.param({"max_tokens": 9}, {"num_predict": 9}, id="max_tokens"),
    pytest.param({"max_tokens": 9, "max_completion_tokens": 5}, {"num_predict": 5}, id="the newer name wins"),
    pytest.param({"options": {"temperature": 1, "num_predict": 3, "stop": "x"}, "temperature": 0.2},
                 {"temperature": 0.2, "num_predict": 3, "stop": ["x"]}, id="OpenAI's own fields win over options"),
    pytest.param({"options": {"num_ctx": 99, "num_gpu": 0, "num_batch": 1}}, None, id="nothing that reloads"),
    pytest.param({"temperature": None, "stop": None, "options": None}, None, id="nulls"),
])  # fmt: skip
def test_options(fields: Json, options: Json | None) -> None:
    assert body(chat("u1", **fields)).get("options") == options


def test_the_context_size_and_the_time_to_stay_are_the_operators() -> None:
    request = chat("u1", num_ctx=1, keep_alive="9h", options={"num_ctx": 2})

    made = translate(request, num_ctx=8192, keep_alive="5m")

    assert made.body["options"] == {"num_ctx": 8192}
    assert made.body["keep_alive"] == "5m"
    assert made.ignored == ("keep_alive", "num_ctx", "options.num_ctx")


@pytest.mark.parametrize(("model", "fields", "think"), [
    ("qwen3:8b", {}, None),
    ("qwen3:8b", {"reasoning_effort": "none"}, False),
    ("qwen3:8b", {"reasoning_effort": "minimal"}, True),
    ("qwen3:8b", {"reasoning_effort": "max"}, True),
    ("gpt-oss:20b", {"reasoning_effort": "none"}, False),
    ("gpt-oss:20b", {"reasoning_effort": "minimal"}, "low"),
    ("me/gpt-oss-mine", {"reasoning_effort": "medium"}, "medium"),
    ("gpt-oss:20b", {"reasoning_effort": "xhigh"}, "high"),
    ("gpt-oss:20b", {"reasoning": {"effort": "low"}}, "low"),
    ("gpt-oss:20b", {"reasoning_effort": "low", "think": "max"}, "max"),
    ("qwen3:8b", {"reasoning_effort": "high", "think": False}, False),
])  # fmt: skip
def test_thinking(model: str, fields: Json, think: bool | str | None) -> None:
    made = body(chat("u1", model=model, **fields))

    assert made.get("think") is think if isinstance(think, bool) else made.get("think") == think
    assert ("think" in made) == (think is not None)


@pytest.mark.parametrize(("wanted", "form"), [
    ({"type": "text"}, None),
    ({"type": "json_object"}, "json"),
    ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}}, {"type": "array"}),
    ({"type": "json_schema", "json_schema": {"name": "x"}}, "json"),
])  # fmt: skip
def test_the_form_of_the_answer(wanted: Json, form: Any) -> None:
    assert body(chat("u1", response_format=wanted)).get("format") == form


def test_tools_are_offered_with_whole_schemas() -> None:
    bare = Tool({"type": "function", "function": {"name": "now", "strict": True}})

    offered = body(chat("u1", tools=(tool(), bare)))["tools"]

    assert offered[0] == dict(tool())
    assert offered[1]["function"] == {"name": "now", "strict": True, "parameters": {"type": "object", "properties": {}}}


NAMED_A = {"type": "function", "function": {"name": "a"}}


@pytest.mark.parametrize(("choice", "names", "ignored"), [
    ("auto", ["a", "b"], ()),
    ("none", None, ()),
    ("required", ["a", "b"], ("tool_choice",)),
    ({"type": "function", "function": {"name": "b"}}, ["b"], ("tool_choice",)),
    ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED_A]}}, ["a"], ("tool_choice",)),
])  # fmt: skip
def test_a_choice_of_tools(choice: Any, names: list[str] | None, ignored: tuple[str, ...]) -> None:
    made = translate(chat("u1", tools=(tool("a"), tool("b")), tool_choice=choice), num_ctx=None, keep_alive=None)

    offered = made.body.get("tools")
    assert (offered and [each["function"]["name"] for each in offered]) == names
    assert made.ignored == ignored


def test_what_cannot_be_had_is_told_and_probabilities_are_asked_for() -> None:
    lost = {"n": 2, "logit_bias": {"1": 5}, "parallel_tool_calls": False, "user": "me", "verbosity": "low", "new": 1}
    told = translate(of(said("user", "u", name="ann"), **lost), num_ctx=None, keep_alive=None).ignored
    neutral: Json = {"n": 1, "logit_bias": {}, "parallel_tool_calls": True, "modalities": ["text"], "store": True}

    assert told == ("logit_bias", "messages[].name", "n", "new", "parallel_tool_calls", "verbosity")
    assert translate(chat("u1", **neutral), num_ctx=None, keep_alive=None).ignored == ()
    assert body(chat("u1")) == {"model": "test-model", "messages": [{"role": "user", "content": "u1"}], "stream": False}
    made = body(chat("u1", stream=True, logprobs=True, top_logprobs=3))
    assert (made["stream"], made["logprobs"], made["top_logprobs"]) == (True, True, 3)


def refused(request: ChatRequest) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        body(request)
    return caught.value


@pytest.mark.parametrize(("part", "place", "code"), [
    ({"type": "image_url", "image_url": {"url": "https://h/a.png"}}, ".image_url.url", "unsupported_parameter"),
    ({"type": "image_url", "image_url": {"url": "data:image/svg+xml,<svg/>"}}, ".image_url.url", "invalid_type"),
    ({"type": "image_url", "image_url": {"url": "data:base64,eHh4"}}, ".image_url.url", "invalid_type"),
    ({"type": "file", "file": {"file_id": "f"}}, "", "unsupported_parameter"),
])  # fmt: skip
def test_parts_that_ollama_cannot_take_are_named(part: Json, place: str, code: str) -> None:
    error = refused(of(said("user", [TEXT, part])))

    assert (error.param, error.code) == (f"messages[0].content[1]{place}", code)


def test_custom_tools_and_an_unknown_role_which_templates_would_leave_out_are_refused() -> None:
    custom = Tool({"type": "custom", "custom": {"name": "sh"}})

    assert refused(chat("u1", tools=(tool(), custom))).param == "tools[1].type"
    assert "tools" not in body(chat("u1", tools=(custom,), tool_choice="none"))
    assert refused(of(said("critic", "x"))).param == "messages[0].role"


@pytest.mark.parametrize(("fields", "param"), [
    ({"temperature": float("inf")}, "temperature"),
    ({"seed": 2**70}, "seed"),
    ({"stop": [1]}, "stop[0]"),
    ({"options": 5}, "options"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"reasoning_effort": "some"}, "reasoning_effort"),
    ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
])  # fmt: skip
def test_wrong_types_are_refused_and_named(fields: Json, param: str) -> None:
    assert refused(chat("u1", tools=(tool(),), **fields)).param == param
