"""The stand-in itself: what it refuses, and how its cache counts. Tests that pass against it mean nothing otherwise."""

from typing import Any

import pytest

from tests.upstreams.anthropic.prompt_cache import PromptCache
from tests.upstreams.anthropic.rules import Body, Refusal, check, signature, tokens

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
USE = {"type": "tool_use", "id": "c", "name": "look_up", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "x"}
TOOLS = [{"name": "look_up", "input_schema": {"type": "object"}}]


def body(*messages: tuple[str, Any], model: str = "claude-opus-5", **fields: Any) -> Body:
    said = [{"role": role, "content": content} for role, content in messages or [("user", "Hi")]]
    return {"model": model, "max_tokens": 2000, "messages": said, **fields}


def marked(text: str, mark: Any = MARK) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": mark}


@pytest.mark.parametrize(
    "refused",
    [
        body(seed=1),
        body(max_tokens=10**6),
        body(("user", "")),
        body(("user", [{"type": "text", "text": " "}])),
        body(("user", "a"), ("assistant", "b ")),
        body(("user", "a"), ("assistant", [USE]), ("user", "b"), tools=TOOLS),
        body(("user", "a"), ("assistant", [USE]), ("user", [{"type": "text", "text": "b"}, RESULT]), tools=TOOLS),
        body(("user", [RESULT]), tools=TOOLS),
        body(
            ("user", "a"),
            ("assistant", [{**USE, "id": "a:b"}]),
            ("user", [{**RESULT, "tool_use_id": "a:b"}]),
            tools=TOOLS,
        ),
        body(("user", "a"), ("assistant", [USE]), ("user", [RESULT])),
        body(("user", "a"), ("system", "b"), ("user", "c")),
        body(("user", "a"), ("system", "b"), model="claude-opus-4-7"),
        body(("user", [marked("a")] * 5)),
        body(("user", [marked("a")] * 4), cache_control=MARK),
        body(("user", [marked("a"), marked("b", HOUR)])),
        body(tools=[{**TOOLS[0], "defer_loading": True, "cache_control": MARK}]),
        body(thinking={"type": "enabled", "budget_tokens": 1024}),
        body(thinking={"type": "enabled", "budget_tokens": 100}, model="claude-opus-4-5"),
        body(thinking={"type": "enabled", "budget_tokens": 2000}, model="claude-opus-4-5"),
        body(thinking={"type": "disabled"}, model="claude-opus-5-5"),
        body(tools=TOOLS, tool_choice={"type": "any"}, model="claude-opus-5-5"),
        body(temperature=0.5),
        body(("user", "a"), ("assistant", [{"type": "thinking", "thinking": "t", "signature": "s"}]), ("user", "b")),
    ],
)
def test_what_it_refuses(refused: Body) -> None:
    with pytest.raises(Refusal):
        check(refused)


@pytest.mark.parametrize(("model", "holds"), [("claude-opus-4-5", True), ("claude-opus-5-5", False)])
def test_newer_models_bind_a_signature_to_what_stood_before_it(model: str, holds: bool) -> None:
    asked = body(("user", "a"), model=model)
    block = {"type": "thinking", "thinking": "t"}
    block["signature"] = signature(asked, [["user", {"type": "text", "text": "a"}]], "t")
    check(body(("user", "a"), ("assistant", [block]), ("user", "b"), model=model))
    changed = body(("user", "changed"), ("assistant", [block]), ("user", "b"), model=model)
    if holds:
        check(changed)
    else:
        with pytest.raises(Refusal):
            check(changed)


def test_the_cache_writes_at_marks_and_looks_back_twenty_blocks() -> None:
    cache, long = PromptCache(), "word " * 2000
    first = body(system=[marked(long)])
    size = tokens({"type": "text", "text": long})
    assert cache.used(first)["cache_creation_input_tokens"] == size
    assert cache.used(first)["cache_read_input_tokens"] == size
    few, many = ([{"type": "text", "text": str(n)} for n in range(count)] for count in (18, 25))
    plain = [{"type": "text", "text": long}]
    assert cache.used(body(("user", [*few, marked("end")]), system=plain))["cache_read_input_tokens"] == size
    assert cache.used(body(("user", [*many, marked("end")]), system=plain))["cache_read_input_tokens"] == 0
    cache.now = 301
    assert cache.used(first)["cache_read_input_tokens"] == 0


def test_the_cache_keeps_nothing_that_is_too_short() -> None:
    cache, short = PromptCache(), body(system=[marked("short")])
    cache.used(short)
    assert cache.used(short)["cache_read_input_tokens"] == 0
