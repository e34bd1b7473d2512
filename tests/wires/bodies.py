"""Bodies in Anthropic's form, made up, and what Anthropic refuses in one."""

import json
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

MARK: Json = {"type": "ephemeral"}
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(str.strip)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


marks = optional(cache_control=st.just(MARK))
text_block = st.builds(lambda text, more: {"type": "text", "text": text, **more}, texts, marks)
image_block = st.just({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0="}})
parts = st.lists(st.one_of(text_block, image_block), min_size=1, max_size=3)
thinking = st.one_of(
    st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, st.text(max_size=9), texts),
    st.builds(lambda data: {"type": "redacted_thinking", "data": data}, texts),
)
numbers = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
inputs = st.dictionaries(texts, st.one_of(texts, numbers), max_size=3)
server_call = st.builds(
    lambda text: {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": text}}, texts
)
TOOLS = [
    {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}},
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
]


@st.composite
def loops(draw: st.DrawFn, name: str) -> list[Json]:
    """One round of calls and their results."""
    ids = [f"toolu_{name}_{n}" for n in range(draw(st.integers(1, 3)))]
    said = draw(st.lists(st.one_of(thinking, text_block, server_call), max_size=3))
    calls = [{"type": "tool_use", "id": each, "name": "look", "input": draw(inputs)} for each in ids]
    results = []
    for each in ids:
        content = draw(st.one_of(st.just(""), texts, parts))
        result = {"type": "tool_result", "tool_use_id": each, "content": content}
        results.append(result | draw(optional(is_error=st.booleans())))
    behind = draw(st.lists(text_block, max_size=1))
    return [{"role": "assistant", "content": [*said, *calls]}, {"role": "user", "content": [*results, *behind]}]


@st.composite
def bodies(draw: st.DrawFn) -> Json:
    messages: list[Json] = []
    for turn in range(draw(st.integers(1, 4))):
        messages.append({"role": "user", "content": draw(st.one_of(texts, parts))})
        for loop in range(draw(st.integers(0, 2))):
            messages += draw(loops(f"{turn}_{loop}"))
        answer = draw(st.one_of(texts, st.lists(text_block, min_size=1, max_size=2)))
        messages.append({"role": "assistant", "content": answer})
    messages.append({"role": "user", "content": draw(texts)})
    system = st.one_of(texts, st.lists(text_block, min_size=1, max_size=3))
    more = optional(
        system=system,
        thinking=st.just({"type": "adaptive"}),
        x_new=inputs,
        stream=st.booleans(),
        tools=st.just(TOOLS),
        metadata=st.just({"user_id": "u"}),
    )
    return {"model": "claude-opus-5", "max_tokens": 100, "messages": messages, **draw(more)}


dumped = st.builds(
    lambda body, indent, ascii_: json.dumps(body, indent=indent, ensure_ascii=ascii_).encode(),
    bodies(),
    st.sampled_from([None, 1]),
    st.booleans(),
)


def blocks(body: Json) -> list[str]:
    """All blocks of its messages."""
    contents = [message["content"] for message in body["messages"]]
    return [json.dumps(each) for content in contents if isinstance(content, list) for each in content]


def refusals(body: Json) -> list[str]:
    """What Anthropic refuses: calls without results right behind them, results without calls, another order."""
    broken, waiting = list[str](), set[str]()
    for place, message in enumerate(body["messages"]):
        content = message["content"] if isinstance(message["content"], list) else []
        results = [each["tool_use_id"] for each in content if each["type"] == "tool_result"]
        first = [each["type"] == "tool_result" for each in content[: len(results)]]
        if {*results} != waiting or not all(first) or (waiting and message["role"] != "user"):
            broken.append(f"messages[{place}]")
        waiting = {each["id"] for each in content if each["type"] == "tool_use"}
    return broken + (["messages[0]"] if body["messages"][0]["role"] != "user" else [])
