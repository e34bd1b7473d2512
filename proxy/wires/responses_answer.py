"""Answers and errors of OpenAI's Responses."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from proxy.chat import encode
from proxy.chat.answer import Answer
from proxy.chat.errors import PenstockError
from proxy.text.json_values import json_object
from proxy.wires.base import Wire
from proxy.wires.messages_answer import events_of
from proxy.wires.responses import ResponsesBody

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesWire(Wire):
    """Its clients are Codex and the newer frameworks."""

    name: ClassVar = "responses"
    body: ClassVar = ResponsesBody

    @staticmethod
    def response(body: bytes, *, streamed: bool) -> Mapping[str, Any]:
        """Return the response in a body, or as the end of a stream has it; empty where there is none."""
        return _last(body) if streamed else json_object(body)

    def answer(self, body: bytes, *, streamed: bool) -> Answer | None:
        response = self.response(body, streamed=streamed)
        output = response.get("output")
        if not isinstance(output, list) or response.get("error"):
            return None
        texts, calls, reasons = list[str](), list[tuple[str, str]](), response.get("incomplete_details")
        for item in output:
            if not isinstance(item, dict):
                continue
            if item.get("type") == "message" and isinstance(item.get("content"), list):
                texts += [str(part["text"]) for part in item["content"] if isinstance(part.get("text"), str)]
            elif item.get("type") in ("function_call", "custom_tool_call"):
                calls.append((str(item.get("name", "")), str(item.get("arguments", item.get("input", "")))))
        finish = "length" if reasons else "tool_calls" if calls else "stop"
        return Answer("".join(texts), calls=calls, finish=finish)

    def error_event(self, error: PenstockError) -> bytes:
        told = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return b"event: error\ndata: " + encode({**told, "sequence_number": 0})


def _last(body: bytes) -> Mapping[str, Any]:
    """Return the response as the end of a stream tells it."""
    found: Iterator[Any] = (event.get("response") for event in events_of(body) if event.get("type") in _ENDS)
    return next((each for each in found if isinstance(each, dict)), {})
