"""OpenAI's answer, whole or in chunks, for upstreams that do not speak it themselves."""

import secrets
import time
from collections.abc import Mapping
from typing import Any

from proxy.chat import encode

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON_HEADERS = [(b"content-type", b"application/json")]


def usage(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """OpenAI's `usage` object; `prompt` includes the `cached` tokens, `completion` the `reasoning` ones."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


class Completion:
    """One answer under way: its id, time and model are the same in all its chunks."""

    def __init__(self, model: str) -> None:
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._model = model

    def whole(self, message: Mapping[str, Any], finish_reason: str, used: Mapping[str, Any], **extra: Any) -> bytes:
        """The body of an answer that is not streamed."""
        said = {"role": "assistant", "content": None, "refusal": None, **message}
        choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": finish_reason}
        return encode({**self._head("chat.completion"), "choices": [choice], "usage": used, **extra})

    def first(self) -> bytes:
        """The first chunk, which names the role; no later one may."""
        return self.chunk({"role": "assistant", "content": "", "refusal": None})

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        """A chunk with more of the answer, or with its end (`delta` empty, `finish_reason` set)."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._event({"choices": [choice]})

    def usage_chunk(self, used: Mapping[str, Any]) -> bytes:
        """The chunk behind the last one, for clients that asked for `include_usage`."""
        return self._event({"choices": [], "usage": used})

    def _event(self, fields: Mapping[str, Any]) -> bytes:
        return b"data: " + encode({**self._head("chat.completion.chunk"), **fields}) + b"\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


def wants_usage(rest: Mapping[str, Any]) -> bool:
    """Whether the client asked for usage at the end of its stream."""
    options = rest.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True
