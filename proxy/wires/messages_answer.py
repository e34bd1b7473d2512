"""Answers and errors of Anthropic's Messages."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import orjson

from proxy.chat import encode
from proxy.chat.answer import Answer
from proxy.chat.errors import PenstockError
from proxy.chat.sse import EventSplitter, event_data
from proxy.text.json_values import json_object
from proxy.wires.base import Wire
from proxy.wires.messages import MessagesBody
from proxy.wires.view import MALFORMED

FINISH = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "refusal": "content_filter"}
FINISH |= {"max_tokens": "length", "model_context_window_exceeded": "length"}
"""Chat's finish reasons for Anthropic's stop reasons; others are a `stop`."""

STATUSES = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 403,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "request_too_large": 413,
    "timeout_error": 504,
}
"""The statuses of errors; of two with the same one, the last is the usual one."""
_TYPES = {status: kind for kind, status in STATUSES.items()} | {503: "overloaded_error"}
_TOO_LONG = "context_length_exceeded"


class MessagesWire(Wire):
    """Its clients are Claude Code and Anthropic's SDKs."""

    name: ClassVar = "messages"
    body: ClassVar = MessagesBody

    def answer(self, body: bytes, *, streamed: bool) -> Answer | None:
        message = Blocks()
        if streamed:
            for event in events_of(body):
                message.feed(event)
        else:
            message.take(json_object(body))
        return message.answer()

    def error(self, error: PenstockError) -> bytes:
        """Return the body of an error. Claude Code knows by its words that a prompt is too long."""
        told = f"prompt is too long: {error.message}" if error.code == _TOO_LONG else error.message
        kind = _TYPES.get(error.status) or ("api_error" if error.status >= 500 else "invalid_request_error")
        details = {"details": {"error_code": error.code}} if error.code else {}
        body = {"type": "error", "error": {"type": kind, "message": told, **details}}
        return json.dumps(body, separators=(",", ":")).encode()

    def error_event(self, error: PenstockError) -> bytes:
        return b"event: error\ndata: " + self.error(error)


class Blocks:
    """The blocks of an answer, put together from its events. Nothing here raises."""

    def __init__(self) -> None:
        self.content: list[dict[str, Any]] = []
        """The complete blocks, and the one that is under way."""
        self.usage: dict[str, Any] = {}
        self.stop: str | None = None
        self.begun = False
        self.error = False
        self.arguments: list[str] = []
        """The pieces of the arguments of the last call."""

    def take(self, message: Mapping[str, Any]) -> None:
        """Take in a whole answer."""
        self.begun, self.stop = message.get("type") == "message", message.get("stop_reason")
        content, usage = message.get("content"), message.get("usage")
        self.content[:] = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        self.usage = usage if isinstance(usage, dict) else {}

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        kind, delta = event.get("type"), event.get("delta")
        if kind == "message_start" and isinstance(event.get("message"), dict):
            self.begun = True
            self.usage = dict(event["message"].get("usage") or {})
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            self.content.append(dict(event["content_block"]))
            self.arguments = []
        elif kind == "content_block_delta" and isinstance(delta, dict) and self.content:
            self._more(self.content[-1], delta)
        elif kind == "content_block_stop" and self.content and str(self.content[-1].get("type")).endswith("tool_use"):
            block, text = self.content[-1], "".join(self.arguments)
            block["input"] = json_object(text.encode()) if text else block.get("input") or {}
            if text and not block["input"]:
                block["malformed"] = text
        elif kind == "message_delta" and isinstance(delta, dict):
            self.stop = delta.get("stop_reason") or self.stop
            self.usage |= {name: count for name, count in (event.get("usage") or {}).items() if count is not None}
        elif kind == "error":
            self.error = True

    def _more(self, block: dict[str, Any], delta: Mapping[str, Any]) -> None:
        for name in ("text", "thinking", "signature"):
            if isinstance(delta.get(name), str):
                block[name] = str(block.get(name) or "") + delta[name]
        if isinstance(delta.get("partial_json"), str):
            self.arguments.append(delta["partial_json"])
        if "citation" in delta:
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]

    @property
    def sent_back(self) -> list[dict[str, Any]]:
        """The blocks as they go back to the model, which sees its arguments that are no JSON as it wrote them."""
        return [_without_mark(block) if "malformed" in block else block for block in self.content]

    def answer(self) -> Answer | None:
        """Return what the answer says; None for one that is none."""
        if not self.begun or self.error:
            return None
        texts = [str(block.get("text", "")) for block in self.content if block.get("type") == "text"]
        calls = [block for block in self.content if block.get("type") == "tool_use"]
        said = [(str(call.get("name", "")), encode(call.get("input") or {}).decode()) for call in calls]
        finish = None if self.stop is None else FINISH.get(self.stop, "stop")
        return Answer("".join(texts), calls=said, finish=finish)


def _without_mark(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block whose arguments are no JSON, with an object that quotes them."""
    bare = {name: part for name, part in block.items() if name != "malformed"}
    return {**bare, "input": {MALFORMED: block["malformed"]}}


def read_event(event: bytes) -> dict[str, Any]:
    """Return the data of an event; nothing for one that has none."""
    return json_object(event_data(event))


def written(event: Mapping[str, Any]) -> bytes:
    """Return an event as the bytes of a stream."""
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), orjson.dumps(event))


def events_of(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the data of the events of a whole stream."""
    events = EventSplitter()
    yield from (read_event(event) for event, _ in events.feed(body))
    yield read_event(events.rest())
