"""Messages and tools: objects that nobody changes, which keep the bytes that the client sent."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from proxy.chat import JsonObject, Message, Tool

# --- objects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda item: item.__setitem__("a", 2), id="setting a key"),
        pytest.param(lambda item: item.pop("a"), id="pop"),
        pytest.param(lambda item: item.update({"a": 2}), id="update"),
        pytest.param(pickle.dumps, id="pickling"),
        pytest.param(copy.deepcopy, id="a deep copy"),
    ],
)
@pytest.mark.parametrize("kind", [JsonObject, Message, Tool])
def test_an_object_refuses_every_change(kind: type[JsonObject], change: Callable[[Any], object]) -> None:
    item = kind({"a": 1})
    with pytest.raises(TypeError, match=kind.__name__):
        change(item)
    assert item == {"a": 1}
    assert item.raw == b'{"a":1}'


def test_raw_is_compact_utf8_in_its_own_order_and_a_changed_copy_keeps_places() -> None:
    made = Message({"role": "user", "content": 'caf\xe9 "\u65e5\u672c" \U0001f600', "a": [1, 1.0, None, True]})
    assert (
        made.raw == '{"role":"user","content":"caf\xe9 \\"\u65e5\u672c\\" \U0001f600","a":[1,1.0,null,true]}'.encode()
    )
    sent = Message({"role": "user", "content": "a", "name": "x"}, b"bytes")
    changed = sent.with_changes(content="b", extra=None)
    assert type(changed) is Message
    assert changed.raw == b'{"role":"user","content":"b","name":"x","extra":null}'
    assert sent.without("content", "absent").raw == b'{"role":"user","name":"x"}'
    assert sent == {"role": "user", "content": "a", "name": "x"}
    assert sent.raw == b"bytes"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"content": "a"}, {"content": "A"}, id="a string"),
        pytest.param({"content": None, "name": "a"}, {"content": None, "name": "a"}, id="no text"),
        pytest.param(
            {"content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "a"}}]},
            {"content": [{"type": "text", "text": "A"}, {"type": "image_url", "image_url": {"url": "a"}}]},
            id="parts",
        ),
        pytest.param(
            {"content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "a"}]}]},
            {"content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "A"}]}]},
            id="parts in parts",
        ),
        pytest.param(
            {"tool_calls": [{"id": "a", "function": {"name": "a", "arguments": '{"b":"a"}'}}]},
            {"tool_calls": [{"id": "a", "function": {"name": "a", "arguments": '{"B":"A"}'}}]},
            id="arguments",
        ),
        pytest.param(
            {"tool_calls": [{"id": "a", "custom": {"name": "a", "input": {"b": ["a", 1]}}}]},
            {"tool_calls": [{"id": "a", "custom": {"name": "a", "input": {"b": ["A", 1]}}}]},
            id="input that is no string",
        ),
        pytest.param({"reasoning_content": "a", "refusal": "a"}, {"reasoning_content": "A", "refusal": "A"}, id="more"),
        pytest.param(
            {"thinking_blocks": [{"type": "thinking", "thinking": "a", "signature": "a"}]},
            {"thinking_blocks": [{"type": "thinking", "thinking": "a", "signature": "a"}]},
            id="signed reasoning is left alone",
        ),
    ],
)
def test_texts_are_changed_wherever_they_stand(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    sent = Message({"role": "assistant", **fields})
    changed = sent.with_texts(str.upper)
    assert changed == {"role": "assistant", **expected}
    assert (changed is sent) == (fields == expected)
    assert sent == {"role": "assistant", **fields}
    assert changed is sent or changed.made_of is sent


# --- messages and tools -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("content", "text", "parts"), [
    pytest.param("hello", "hello", 1, id="a string is one text part"),
    pytest.param("", "", 1, id="an empty string is a part too"),
    pytest.param(None, "", 0, id="null has no part"),
    pytest.param([], "", 0, id="an empty list has no part"),
    pytest.param([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb", 2, id="texts are joined"),
    pytest.param([{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "b"}], "b", 2, id="an image"),
    pytest.param([{"type": "refusal", "refusal": "no"}], "", 1, id="a part without text"),
])  # fmt: skip
def test_text_and_parts_of_a_message(content: Any, text: str, parts: int) -> None:
    item = Message({"role": "user", "content": content})
    assert item.text == text
    assert len(item.parts) == parts


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
