"""OpenAI's answer, whole or in chunks, for upstreams that do not speak it themselves."""

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any

import orjson

from proxy.chat import encode
from proxy.chat.errors import BadRequest, PenstockError, Unanswered

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON_HEADERS = [(b"content-type", b"application/json")]


def nonsense(server: str) -> Unanswered:
    """Return the error for an answer that is not of this server's form."""
    return Unanswered(f"the upstream sent something that is no answer of {server}'s")


def parsed(text: bytes, server: str) -> dict[str, Any]:
    """Return a body, a line or the data of an event. Raise `Unanswered` for anything but a JSON object."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise nonsense(server)
    return found


async def hold_back(
    spoken: AsyncGenerator[bytes, None], facts: dict[str, Any], is_over: Callable[[], bool] = lambda: False
) -> AsyncGenerator[bytes, None]:
    """Return the events of a stream once there is one, so that an error before it keeps its status. Raises that error.

    A later error is the last event, and the fact `error` its code; unless the answer `is_over` by then.
    """
    events = _events(spoken, facts, is_over)
    await anext(events)  # a generator that was never begun ignores its closing
    return events


async def _events(
    spoken: AsyncGenerator[bytes, None], facts: dict[str, Any], is_over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """Yield an empty chunk once there is an event, then the events."""
    begun = False
    try:
        async with aclosing(spoken):
            async for event in spoken:
                if not begun:
                    begun = True
                    yield b""
                yield event
    except PenstockError as error:
        if not begun:
            raise
        if not is_over():
            facts["error"] = error.code or error.type
            yield b"data: " + error.body() + b"\n\n"


def usage(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """Return OpenAI's `usage` object; `prompt` includes the `cached` tokens, `completion` the `reasoning` ones."""
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

    def whole(
        self,
        message: Mapping[str, Any],
        finish_reason: str,
        used: Mapping[str, Any],
        logprobs: Any = None,
        **extra: Any,
    ) -> bytes:
        """Return the body of an answer that is not streamed."""
        said = {"role": "assistant", "content": None, "refusal": None, **message}
        choice = {"index": 0, "message": said, "logprobs": logprobs, "finish_reason": finish_reason}
        return encode({**self._head("chat.completion"), "choices": [choice], "usage": used, **extra})

    def first(self) -> bytes:
        """Return the first chunk, which names the role; no later one may."""
        return self.chunk({"role": "assistant", "content": "", "refusal": None})

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None, logprobs: Any = None) -> bytes:
        """Return a chunk with more of the answer, or with its end (`delta` empty, `finish_reason` set)."""
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return self._event({"choices": [choice]})

    def usage_chunk(self, used: Mapping[str, Any]) -> bytes:
        """Return the chunk behind the last one, for clients that asked for `include_usage`."""
        return self._event({"choices": [], "usage": used})

    def _event(self, fields: Mapping[str, Any]) -> bytes:
        return b"data: " + encode({**self._head("chat.completion.chunk"), **fields}) + b"\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return a translated body as JSON. Raise `BadRequest` where it is nested too deeply."""
    try:
        return encode(body)
    except RecursionError:
        raise BadRequest("the body is nested too deeply", code="invalid_json") from None


def timestamp(date: Any) -> int:
    """Return the seconds since 1970 of a date in a list of models; 0 for what is none."""
    try:
        return int(datetime.fromisoformat(date).timestamp())
    except (TypeError, ValueError, OverflowError):
        return 0


def wants_usage(rest: Mapping[str, Any]) -> bool:
    """Return whether the client asked for usage at the end of its stream."""
    options = rest.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True
