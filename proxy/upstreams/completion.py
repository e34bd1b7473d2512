"""OpenAI's answer, whole or in chunks, for upstreams that do not speak it themselves."""

import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

import orjson

from proxy.chat import encode
from proxy.chat.errors import BadRequest, PenstockError, Unanswered
from proxy.upstreams.base import Call, Reply

DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"
_MORE = b'"logprobs":null,"finish_reason":null}'
"""The end of the choice in a chunk that is not the last one."""

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON_HEADERS = [(b"content-type", b"application/json")]

Facts = dict[str, Any]


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


async def hold_back(spoken: AsyncGenerator[bytes, None], facts: Facts) -> AsyncGenerator[bytes, None]:
    """Return the events of a stream once there is one, so that an error before it keeps its status. Raises that error.

    A later error is the last event, and the fact `error` its code.
    """
    events = _events(spoken, facts)
    await anext(events)  # a generator that was never begun ignores its closing
    return events


async def _events(spoken: AsyncGenerator[bytes, None], facts: Facts) -> AsyncGenerator[bytes, None]:
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
        facts["error"] = error.code or error.type
        yield b"data: " + error.body() + b"\n\n"


def usage(prompt: int, completion: int, *, cached: int = 0, written: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """Return OpenAI's `usage` object.

    `prompt` includes the tokens that were read from the provider's cache and `written` to it, `completion` the
    `reasoning` ones.
    """
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, **({"cache_write_tokens": written} if written else {})},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


class Completion:
    """One answer to the client, whole or in chunks, which all have the same id, time and model.

    It is made of deltas, as chunks have them; `logprobs` in one stand beside it. None says that the server is at work.
    """

    def __init__(self, call: Call, facts: Facts) -> None:
        rest = {} if call.request is None else call.request.rest
        self.facts = facts
        self.stream = rest.get("stream") is True
        self._show_usage = wants_usage(rest) and not call.hide_usage
        self.finish_reason = "stop"
        self.usage: dict[str, Any] = {}
        self.service_tier: str | None = None
        """Of a whole answer. Like reason and usage it counts once the deltas have ended."""
        self._id, self._created, self._model = f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), call.model
        self._begin = b"data: " + encode(self._head("chat.completion.chunk"))[:-1] + b',"choices":[{"index":0,"delta":'
        """All of a chunk before its delta, encoded once."""

    async def reply(
        self, deltas: AsyncGenerator[Mapping[str, Any] | None, None], headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> Reply:
        """Return the answer. A stream is held back until there is something to say; see `hold_back`."""
        if self.stream:
            events = await hold_back(self._events(deltas), self.facts)
            return Reply(200, [*STREAM_HEADERS, *headers], chunks=events, facts=self.facts)
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        async for delta in deltas:
            message |= delta or {}
        logprobs = message.pop("logprobs", None)
        if calls := message.get("tool_calls"):
            # the index places a call in a stream
            message["tool_calls"] = [{key: part for key, part in call.items() if key != "index"} for call in calls]
        elif message["content"] is None:
            message["content"] = ""
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": self.finish_reason}
        whole = {**self._head("chat.completion"), "choices": [choice], "usage": self.usage}
        if self.service_tier is not None:
            whole["service_tier"] = self.service_tier
        return Reply(200, [*JSON_HEADERS, *headers], body=encode(whole), facts=self.facts)

    async def _events(self, deltas: AsyncGenerator[Mapping[str, Any] | None, None]) -> AsyncGenerator[bytes, None]:
        first = self._chunk({"role": "assistant", "content": "", "refusal": None})
        async with aclosing(deltas):
            async for delta in deltas:
                if delta is None:
                    yield _PING
                    continue
                yield first + self._chunk(delta)
                first = b""
        end = first + self._chunk({}, self.finish_reason)
        if self._show_usage:
            used = {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage}
            end += b"data: " + encode(used) + b"\n\n"
        yield end + DONE

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        end = _MORE
        if finish_reason is not None or "logprobs" in delta:
            end = encode({"logprobs": delta.get("logprobs"), "finish_reason": finish_reason})[1:]
            delta = {name: part for name, part in delta.items() if name != "logprobs"}
        return self._begin + encode(delta) + b"," + end + b"]}\n\n"

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
