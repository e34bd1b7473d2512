"""An answer of the model, as observers see it. Pure; nothing here raises."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_CALLS = 128


@dataclass(slots=True)
class Answer:
    """The content of an answer's first choice."""

    text: str = ""
    refusal: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """The names and arguments of tool calls."""
    finish: str | None = None
    """Why it ended; None where it did not say."""
    other: bool = False
    """True for content other than text, such as audio."""

    @classmethod
    def of(cls, message: Mapping[str, Any], finish: Any) -> "Answer":
        calls, other = list[tuple[str, str]](), any(message.get(name) for name in ("audio", "function_call", "images"))
        listed = message.get("tool_calls")
        for call in listed[:_MOST_CALLS] if isinstance(listed, list) else ():
            inner = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
            if isinstance(inner, Mapping):
                calls.append((_text(inner.get("name")), _text(inner.get("arguments", inner.get("input")))))
            else:
                other = True
        text, refusal = _text(message.get("content")), _text(message.get("refusal"))
        return cls(text, refusal, calls, finish if isinstance(finish, str) else None, other)

    @property
    def is_empty(self) -> bool:
        return not (self.text.strip() or self.refusal.strip() or self.calls or self.other)


def _text(value: Any) -> str:
    if isinstance(value, list):  # some servers answer in parts
        return "".join(_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return value if isinstance(value, str) else ""
