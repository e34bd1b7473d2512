"""Which messages carry signed reasoning, and what stays of them without it."""

from typing import Any

import pytest

from proxy.chat import ChatRequest, Message
from proxy.chat.reasoning import is_signed, may_be_signed, signed_places, without_reasoning

THINKING = {"type": "thinking", "thinking": "Veamos.", "signature": "s1g"}
TEXT = {"type": "text", "text": "¡Hola!"}


@pytest.mark.parametrize(
    ("fields", "bare"),
    [
        ({"thinking_blocks": [THINKING], "reasoning_content": "Veamos."}, {"content": "¡Hola!"}),
        ({"thinking_blocks": [{**THINKING, "thinking": ""}]}, {"content": "¡Hola!"}),
        ({"thinking_blocks": [{"type": "redacted_thinking", "data": "x"}]}, {"content": "¡Hola!"}),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s"}]}, {"content": "¡Hola!"}),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, {"content": "¡Hola!"}),
        ({"reasoning_items": [{"type": "reasoning", "encrypted_content": "x"}]}, {"content": "¡Hola!"}),
        ({"reasoning": {"type": "reasoning", "encrypted_content": "x"}}, {"content": "¡Hola!"}),
        ({"encrypted_content": "x"}, {"content": "¡Hola!"}),
        ({"content": [THINKING, TEXT]}, {"content": [TEXT]}),
        ({"content": [{"type": "redacted_thinking", "data": "x"}, TEXT]}, {"content": [TEXT]}),
    ],
)
def test_signed_reasoning_is_found_and_leaves(fields: dict[str, Any], bare: dict[str, Any]) -> None:
    message = Message({"role": "assistant", "content": "¡Hola!", **fields})
    assert is_signed(message)
    assert may_be_signed(message.raw)
    assert without_reasoning(message) == {"role": "assistant", **bare}
    assert without_reasoning(message).made_of is not None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reasoning_content": "Let me see."},
        {"reasoning": "Let me see."},
        {"thinking_blocks": [{"type": "thinking", "thinking": "no signature"}]},
        {"thinking_blocks": None, "reasoning_details": "text", "content": None},
        {"thinking_blocks": [{"type": {}}], "content": [{"type": []}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "short"}]},
    ],
)
def test_what_nobody_signed_stays(fields: dict[str, Any]) -> None:
    message = Message({"role": "assistant", "content": "Hi!", **fields})
    assert not is_signed(message)
    assert without_reasoning(message) is message


def test_only_answers_carry_it() -> None:
    messages = [
        Message({"role": role, "content": "x", "thinking_blocks": [THINKING]}) for role in ("user", "assistant")
    ]
    assert signed_places(ChatRequest("m", tuple(messages))) == (1,)
