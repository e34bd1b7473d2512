"""The blocks of an answer of Anthropic's Messages, and the events of streams."""

from collections.abc import Mapping
from typing import Any

from proxy.text.json_values import json_object, json_objects
from proxy.text.tables import table
from proxy.wires.view import MALFORMED

_WORDS = table("wires")["messages"]
FINISH: Mapping[str, str] = _WORDS["finish"]
"""Chat's finish reasons for Anthropic's stop reasons."""
STOPS: Mapping[str, str] = _WORDS["stops"]
"""Anthropic's stop reasons for chat's finish reasons."""
STATUSES: Mapping[str, int] = _WORDS["statuses"]
"""The statuses of errors."""
_TYPES = {status: kind for kind, status in STATUSES.items()} | {503: "overloaded_error"}


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
        self.begun, self.stop = message.get("type") == "message", message.get("stop_reason")
        self.content[:], self.usage = json_objects(message.get("content")), _object(message.get("usage"))

    def feed(self, event: Mapping[str, Any]) -> None:
        kind, delta = event.get("type"), event.get("delta")
        if kind == "message_start" and isinstance(event.get("message"), dict):
            self.begun = True
            self.usage = dict(_object(event["message"].get("usage")))
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
            self.usage |= {name: count for name, count in _object(event.get("usage")).items() if count is not None}
        elif kind == "error":
            self.error = True

    def _more(self, block: dict[str, Any], delta: Mapping[str, Any]) -> None:
        for name in ("text", "thinking", "signature"):
            if isinstance(delta.get(name), str):
                block[name] = str(block.get(name) or "") + delta[name]
        if isinstance(delta.get("partial_json"), str):
            self.arguments.append(delta["partial_json"])
        if "citation" in delta:
            earlier = block.get("citations")
            block["citations"] = [*(earlier if isinstance(earlier, list) else ()), delta["citation"]]

    @property
    def sent_back(self) -> list[dict[str, Any]]:
        """The blocks as they go back to the model, which sees its arguments that are no JSON as it wrote them."""
        return [_without_mark(block) if "malformed" in block else block for block in self.content]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _without_mark(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block whose arguments are no JSON, with an object that quotes them."""
    bare = {name: part for name, part in block.items() if name != "malformed"}
    return {**bare, "input": {MALFORMED: block["malformed"]}}


def error_type(status: int) -> str:
    """Return the type of an error with a status."""
    return _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
