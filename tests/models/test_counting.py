"""What a message and a tool cost: published figures where there are any, the rules written out where there are none."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.models.counting import Tally, count_tool
from proxy.models.encodings import Encoder, load_encoder
from proxy.models.families import family
from tests.models.test_images import GIF, PNG, url
from tests.talk import calls, result, system, user

TALK: tuple[tuple[str, dict[str, str]], ...] = (
    ("You are a helpful, pattern-following assistant that translates corporate jargon into plain English.", {}),
    ("New synergies will help drive top-line growth.", {"name": "example_user"}),
    ("Things working well together will increase revenue.", {"name": "example_assistant"}),
    ("Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage.",
     {"name": "example_user"}),
    ("Let's talk later when we're less busy about how to do better.", {"name": "example_assistant"}),
)  # fmt: skip
COOKBOOK = [
    *({"role": "system", **name, "content": text} for text, name in TALK),
    user("This late pivot means we don't have time to boil the ocean for the client deliverable."),
]
"""OpenAI cookbook, How to count tokens with tiktoken: 129 tokens for gpt-4, 124 for gpt-4o, the reply's three too."""

WEATHER_TALK = [
    system("You are a helpful assistant that can answer to questions about the weather."),
    user("What's the weather like in San Francisco?"),
]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                "unit": {"type": "string", "description": "The unit of temperature to return",
                         "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["location"],
        },
    },
}  # fmt: skip
"""The same page, section 7: 105 tokens for gpt-4 with its conversation, 101 for gpt-4o."""


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def assistant(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", **fields}


SEALED = "gAAA" * 100


def opaque(**item: Any) -> dict[str, Any]:
    """An item of Responses that no message has."""
    return {"role": "opaque", "content": [item]}


def letters(text: str) -> int:
    """An encoder by which the rules can be counted by hand."""
    return len(text)


def of_message(message: dict[str, Any], encode: Encoder = letters, model: str = "gpt-4o") -> Tally:
    tally = Tally(encode, family(model))
    tally.message(message)
    return tally


def of_tool(tool: dict[str, Any], encode: Encoder = letters, model: str = "gpt-4o") -> Tally:
    tally = Tally(encode, family(model))
    count_tool(tally, tool)
    return tally


@pytest.mark.parametrize(("message", "tokens", "estimated"), [
    pytest.param(user("hello"), 3 + 4 + 5, False, id="role and text"),
    pytest.param({"role": "user", "name": "ann", "content": "hi"}, 3 + 4 + 3 + 1 + 2, False, id="a name"),
    pytest.param(result("ok", call="call_123"), 3 + 4 + 2, False, id="ids are not"),
    pytest.param(calls("c", name="look", arguments='{"a":1}'), 3 + 9 + 3 + 4 + 7, True, id="a tool call"),
    pytest.param(assistant(tool_calls=[{"custom": {"name": "sh", "input": "ls -l"}}]), 3 + 9 + 3 + 2 + 5, True,
                 id="a custom tool call"),
    pytest.param(assistant(function_call={"name": "f", "arguments": {"a": [1, 2]}}), 3 + 9 + 3 + 1 + 11, True,
                 id="arguments that are no string"),
    pytest.param(assistant(thinking_blocks=[{"type": "thinking", "thinking": "hm", "signature": "x" * 99}]), 3 + 9 + 2,
                 True, id="signatures are not"),
    pytest.param(user([{"type": "tool_result", "content": [said("in")]}]), 3 + 4 + 2, True, id="nested content"),
    pytest.param(assistant(tool_calls=None, content=[]), 3 + 9, False, id="nothing in it"),
    pytest.param(assistant(reasoning_items=[{"type": "reasoning", "summary": [said("hm")], "encrypted_content": SEALED}]),
                 3 + 9 + 2 + 75, True, id="sealed reasoning is text of as many bytes at most"),
    pytest.param(assistant(content=[{"type": "redacted_thinking", "data": SEALED}]), 3 + 9 + 75, True, id="in content"),
    pytest.param(opaque(type="compaction", id="c_1", encrypted_content=SEALED), 3 + 6 + 75, True, id="a sealed summary"),
    pytest.param(opaque(type="file_search_call", status="completed", queries=["who"], results=[{"text": "Ann"}]),
                 3 + 6 + 3 + 3, True, id="all texts of an unknown item"),
    pytest.param(user([{"type": "resource", "resource": {"uri": "f", "blob": SEALED}}]), 3 + 4 + 1 + 75, True, id="base64"),
    pytest.param(opaque(type="x", file=f"data:application/pdf;base64,{SEALED[:372]}"), 3 + 6 + 75, True, id="a data URL"),
])  # fmt: skip
def test_messages(message: dict[str, Any], tokens: int, estimated: bool) -> None:
    tally = of_message(message)
    assert (tally.text, tally.media, tally.estimated) == (tokens, 0, estimated)


@pytest.mark.parametrize(("part", "media"), [
    pytest.param({"type": "image_url", "image_url": {"url": url(GIF)}}, 85 + 170, id="an image"),
    pytest.param({"type": "image_url", "image_url": {"url": url(PNG), "detail": "low"}}, 85, id="low detail"),
    pytest.param({"type": "image", "source": {"type": "base64", "data": url(GIF).partition(",")[2]}}, 85 + 170,
                 id="as Anthropic has it"),
    pytest.param({"type": "image_url"}, 765, id="an image without anything"),
    pytest.param({"type": "screenshot", "image_url": url(GIF)}, 85 + 170, id="an image of an unknown kind"),
    pytest.param({"type": "input_audio", "input_audio": {"data": "A" * 213_334, "format": "mp3"}}, 100, id="mp3"),
    pytest.param({"type": "input_audio", "input_audio": None}, 300, id="sound without data"),
    pytest.param({"type": "file", "file": {"file_id": "file-1"}}, 2000, id="a file by id"),
    pytest.param({"type": "file", "file": {"file_data": "A" * 400_000}}, 6 * 2000, id="a file of 300 KB"),
    pytest.param({"type": "file", "file": {"file_data": "A" * 40_000_000}}, 200_000, id="a huge file"),
])  # fmt: skip
def test_media_are_estimated_and_never_read_as_text(part: dict[str, Any], media: int) -> None:
    tally = of_message({"role": "user", "content": [part]})
    assert (tally.text, tally.media, tally.estimated) == (7, media, True)


def test_a_wav_lasts_as_long_as_its_header_says() -> None:
    header = b"RIFF" + bytes(4) + b"WAVEfmt " + bytes(12) + (48_000).to_bytes(4, "little") + bytes(12)
    data = base64.b64encode(header + bytes(480_000)).decode()
    assert of_message({"content": [{"type": "input_audio", "input_audio": {"data": data}}]}).media == 101


def one(schema: dict[str, Any]) -> dict[str, Any]:
    """A tool with one parameter, `a`."""
    parameters = {"type": "object", "properties": {"a": schema}}
    return {"function": {"name": "f", "description": "d.", "parameters": parameters}}


HEAD = 7 + len("f:d")
ONE = HEAD + 3 + 3
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}


@pytest.mark.parametrize(("tool", "tokens", "estimated"), [
    pytest.param({"function": {"name": "f"}}, 7 + 2, False, id="a name alone"),
    pytest.param(one({"type": "string", "description": "x."}), ONE + len("a:string:x"), False, id="one"),
    pytest.param(one({"type": "string", "description": "x", "enum": ["on", "off"]}),
                 ONE - 3 + 3 + 2 + 3 + 3 + len("a:string:x"), False, id="an enumeration"),
    pytest.param(one({}), ONE + len("a:any:"), True, id="no type, no description"),
    pytest.param(one({"type": ["string", "null"], "description": "x"}), ONE + len("a:string|null:x"), True,
                 id="a union of types"),
    pytest.param(one({"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}}),
                 ONE + len("a:array:") + len("object") + 3 + 3 + len("b:string:"), True, id="an array of objects"),
    pytest.param(one({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/Thing"}]}),
                 ONE + len("a:any:") + len("string") + len("Thing"), True, id="anyOf and a reference"),
    pytest.param(one({"type": "integer", "description": "x", "enum": [1, 20], "default": 1}),
                 ONE + len("a:integer:x") - 3 + 3 + 1 + 3 + 2 + 1, True, id="an enumeration of numbers, a default"),
    pytest.param({"type": "custom", "custom": {"name": "f", "description": "d", "format": GRAMMAR}},
                 HEAD + len(json.dumps(GRAMMAR, separators=(",", ":"))), True, id="a custom tool with a grammar"),
    pytest.param({"name": "f", "description": "d", "parameters": {}}, HEAD, False, id="a deprecated function"),
    pytest.param({"type": "web_search"}, 8 + len('{"type":"web_search"}'), True, id="a tool of another kind"),
])  # fmt: skip
def test_tools(tool: dict[str, Any], tokens: int, estimated: bool) -> None:
    tally = of_tool(tool)
    assert (tally.text, tally.estimated) == (tokens, estimated)


def test_other_families_get_their_tools_as_json() -> None:
    tally = of_tool(WEATHER, model="claude-sonnet-4-5")
    assert tally.text == 8 + len(json.dumps(WEATHER["function"], separators=(",", ":")))
    assert tally.estimated


def test_depth_has_no_limit() -> None:
    content: Any = "x"
    properties: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        content = [{"type": "odd", "content": content if isinstance(content, list) else [content]}]
        properties = {"type": "object", "properties": {"a": properties}}
    assert of_message({"content": content}).text == 3 + 1
    assert of_tool({"function": {"name": "f", "parameters": properties}}).text > 0
    assert of_tool({"function": {"name": "f", "parameters": properties}}, model="qwen3").text > 0
    assert of_message({"tool_calls": [{"function": {"arguments": properties}}], "audio": content}).text > 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
MESSAGE_KEYS = ("role", "content", "name", "tool_calls", "function_call", "refusal", "audio", "thinking_blocks", "x")
PART_KEYS = ("type", "text", "image_url", "input_audio", "file", "content", "input", "source", "detail", "url", "data")
PART_TYPES = st.sampled_from(
    ("text", "image_url", "image", "input_audio", "file", "document", "tool_use", "tool_result")
)
SCHEMA_KEYS = (
    *("type", "properties", "description", "enum", "items", "anyOf", "allOf", "$ref", "$defs", "default"),
    *("additionalProperties", "function", "custom", "name", "parameters", "format"),
)
parts = st.dictionaries(st.sampled_from(PART_KEYS), json_values | PART_TYPES, max_size=5)
schemas = st.recursive(
    json_values,
    lambda inner: st.dictionaries(st.sampled_from(SCHEMA_KEYS), inner | st.dictionaries(st.text(max_size=3), inner)),
    max_leaves=12,
)
values = json_values | parts | st.lists(parts | json_values, max_size=3)


ANYTHING = settings(max_examples=30, deadline=None)
"""No time limits: this is about what is accepted, on machines that are busy."""


@ANYTHING
@given(st.dictionaries(st.sampled_from(MESSAGE_KEYS), values), st.sampled_from(("gpt-4o", "claude-3-opus", "odd")))
def test_no_message_raises(message: dict[str, Any], model: str) -> None:
    tally = of_message(message, model=model)
    assert tally.text >= 3
    assert tally.media >= 0


@ANYTHING
@given(st.dictionaries(st.sampled_from(SCHEMA_KEYS), schemas), st.sampled_from(("gpt-4o", "gpt-4", "odd")))
def test_no_tool_raises(tool: dict[str, Any], model: str) -> None:
    assert isinstance(of_tool(tool, model=model).text, int)
    assert isinstance(of_tool({"function": tool}, model=model).text, int)


@pytest.mark.parametrize(("model", "digits", "letters"), [
    pytest.param("gpt-4o", 100, 0, id="OpenAI"),
    pytest.param("llama-3.3-70b", 100, 0, id="three digits a token"),
    pytest.param("Qwen/Qwen2.5-7B-Instruct", 300, 0, id="a token a digit"),
    pytest.param("smollm2:135m", 300, 25, id="a small vocabulary"),
    pytest.param("my-own-model", 300, 25, id="an unknown one"),
])  # fmt: skip
def test_digits_and_scripts_are_counted_by_family(model: str, digits: int, letters: int) -> None:
    encode = load_encoder("o200k_base")

    def counted(text: str) -> int:
        tally = Tally(encode, family(model))
        tally.add(text)
        return tally.text

    assert counted("123456789" * 33 + "123") == digits
    assert counted("Plain words, and 1 digit: 7.") == encode("Plain words, and 1 digit: 7.")
    for text in ("日" * 100, "Я" * 100, "한" * 100, "א" * 100):
        assert counted(text) == encode(text) + letters
    assert counted("¿Qué año? 👍") == encode("¿Qué año? 👍")
