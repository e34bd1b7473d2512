"""An answer of the model, read back from the bytes that went to the client. Pure; nothing here raises."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.text.json_values import json_object

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

    @property
    def is_empty(self) -> bool:
        """True if there is nothing in it for the client."""
        return not (self.text.strip() or self.refusal.strip() or self.calls or self.other)


def read_answer(body: bytes, *, streamed: bool) -> Answer | None:
    """Return the answer in a body or a whole stream; None where there is none, such as in an error."""
    if not streamed:
        choice = _choice(json_object(body))
        message = choice.get("message") if choice is not None else None
        if choice is None or not isinstance(message, Mapping):
            return None
        answer = Answer(finish=_word(choice.get("finish_reason")))
        _take(answer, message, {})
        return answer
    answer, parts, begun = Answer(), dict[int, list[str]](), False
    for event in _events(body):
        if "error" in event:
            return None
        choice = _choice(event)
        if choice is None:
            continue
        begun = True
        answer.finish = _word(choice.get("finish_reason")) or answer.finish
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            _take(answer, delta, parts)
    answer.calls = [(name, arguments) for name, arguments in parts.values()]
    return answer if begun else None


def _take(answer: Answer, message: Mapping[str, Any], parts: dict[int, list[str]]) -> None:
    """Add what a message or a piece of one says; pieces of calls are collected in `parts`, by their index."""
    answer.text += _text(message.get("content"))
    answer.refusal += _text(message.get("refusal"))
    answer.other |= bool(message.get("audio") or message.get("function_call") or message.get("images"))
    calls = message.get("tool_calls")
    for place, call in enumerate(calls[:_MOST_CALLS] if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            answer.other = True
            continue
        name, arguments = _text(function.get("name")), _text(function.get("arguments"))
        index = call.get("index")
        if not isinstance(index, int):
            index = place
        if (known := parts.get(index)) is not None:
            known[0] += name
            known[1] += arguments
        elif len(parts) < _MOST_CALLS:
            parts[index] = [name, arguments]
    answer.calls = [(name, arguments) for name, arguments in parts.values()]


def _events(body: bytes) -> Iterator[Mapping[str, Any]]:
    for line in body.splitlines():
        if line.startswith(b"data:") and (event := json_object(line[5:])):
            yield event


def _choice(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first choice, by its index; of several only this one is looked at."""
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, Mapping) and choice.get("index", 0) == 0:
            return choice
    return None


def _text(value: Any) -> str:
    if isinstance(value, list):  # some servers answer in parts
        return "".join(_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return value if isinstance(value, str) else ""


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None
