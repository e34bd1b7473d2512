"""litellm's answers in OpenAI's exact form: none of its private fields, nothing said twice in a stream."""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.chat import encode
from proxy.models.usage import read_usage
from proxy.upstreams.completion import usage

EXTRAS = ("system_fingerprint", "service_tier")
MESSAGE_KEYS = ("reasoning_content", "thinking_blocks", "annotations", "audio", "images", "function_call")
"""Keys of a message besides role, content, refusal and tool calls. Claude wants `thinking_blocks` back."""

DELTA_KEYS = ("content", "refusal", "reasoning_content", "annotations", "audio", "images", "function_call")
"""The same for a delta. No `thinking_blocks`: the SDKs' accumulators fail on a list whose entries have no index."""


def whole(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a completion with OpenAI's keys only."""
    return {
        **_head(answer, "chat.completion"),
        "choices": [_choice(choice) for choice in answer["choices"]],
        "usage": spent(answer.get("usage") or {}),
        **{key: answer[key] for key in EXTRAS if answer.get(key) is not None},
    }


def spent(used: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's `usage`; the prompt's tokens include those read from and written to the provider's cache."""
    details = {name: count for name, count in (used.get("prompt_tokens_details") or {}).items() if count is not None}
    read = read_usage({**used, "prompt_tokens_details": details})
    counts = {"cached": read.cached or 0, "written": read.written or 0, "reasoning": read.reasoning or 0}
    return usage(read.input or 0, read.output or 0, **counts)


def _head(answer: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": answer["id"], "object": kind, "created": answer["created"], "model": answer["model"]}


def _choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    said = choice["message"]
    message = {"role": "assistant", "content": said.get("content"), "refusal": said.get("refusal")}
    message |= {key: said[key] for key in MESSAGE_KEYS if said.get(key)}
    if said.get("tool_calls"):
        message["tool_calls"] = [_call(call) for call in said["tool_calls"]]
    return {
        "index": choice.get("index", 0),
        "message": message,
        "logprobs": choice.get("logprobs"),
        "finish_reason": choice.get("finish_reason"),
    }


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    # Every call needs an id of its own for its result to name; not every provider gives one.
    return {
        "id": call.get("id") or f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": function.get("name") or "", "arguments": function.get("arguments") or ""},
    }


class ForeignStream:
    """One stream: it turns litellm's chunks into OpenAI's events and gathers the usage."""

    def __init__(self, *, show_usage: bool) -> None:
        self._show_usage = show_usage
        self._begun: set[int] = set()
        self._calls: dict[tuple[int, int], tuple[int, str | None]] = {}
        """By the provider's choice and index: our index of the tool call, and its id."""
        self._calls_made: dict[int, int] = {}
        """The number of tool calls of each choice."""
        self._head: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None

    def events(self, chunk: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events for a chunk; none for one without news."""
        self._head = self._head or _head(chunk, "chat.completion.chunk")
        if chunk.get("usage"):
            self._usage = spent(chunk["usage"])
        choices = [clean for choice in chunk.get("choices") or () if (clean := self._choice(choice))]
        if choices:
            extras = {key: chunk[key] for key in EXTRAS if chunk.get(key) is not None}
            hidden = {"usage": None} if self._show_usage else {}
            yield _event({**self._head, "choices": choices, **extras, **hidden})

    def end(self) -> Iterator[bytes]:
        """Yield the usage event, if the client asked for it."""
        if self._show_usage and self._usage:
            yield _event({**self._head, "choices": [], "usage": self._usage})

    def _choice(self, choice: Mapping[str, Any]) -> dict[str, Any] | None:
        index = choice.get("index", 0)
        delta = self._delta(index, choice.get("delta") or {})
        reason, logprobs = choice.get("finish_reason"), choice.get("logprobs")
        if not delta and reason is None and not logprobs:
            return None
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _delta(self, index: int, source: Mapping[str, Any]) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        if index not in self._begun:
            self._begun.add(index)
            delta = {"role": "assistant", "content": "", "refusal": None}
        delta |= {key: source[key] for key in DELTA_KEYS if source.get(key)}
        if source.get("tool_calls"):
            delta["tool_calls"] = [self._part(index, call) for call in source["tool_calls"]]
        return delta

    def _part(self, choice: int, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a piece of a tool call.

        Only the first has id, type and name, because clients append each piece.
        """
        place, known = (choice, call.get("index") or 0), call.get("id")
        if place in self._calls and known in (None, "", self._calls[place][1]):
            arguments = (call.get("function") or {}).get("arguments") or ""
            return {"index": self._calls[place][0], "function": {"arguments": arguments}}
        index = self._calls_made.get(choice, 0)
        self._calls_made[choice] = index + 1
        self._calls[place] = (index, known)
        return {"index": index, **_call(call)}


def _event(fields: Mapping[str, Any]) -> bytes:
    return b"data: " + encode(fields) + b"\n\n"
