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
from proxy.models.usage import read_usage
from proxy.upstreams.base import Call, Reply
from proxy.wires.chat_round import merge

DONE = b"data: [DONE]\n\n"
_PING = b": ping\n\n"

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


def spent(*reports: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's `usage` of the rounds of one answer, from a provider's report on each."""
    rounds = [read_usage(report) for report in reports]
    names = ("input", "output", "cached", "written", "reasoning")
    counts = {name: sum(getattr(each, name) or 0 for each in rounds) for name in names}
    return usage(counts.pop("input"), counts.pop("output"), **counts)


Deltas = AsyncGenerator[Mapping[str, Any] | None, None]
"""Additions to a message, as chunks have them; None says that the server is at work.

Beside the parts of a message stand the `index` of its choice, where there are several, `logprobs`, and in the last one
of a choice `finish_reason`.
"""

_BESIDE: Mapping[str, Any] = {"index": 0, "logprobs": None, "finish_reason": None}
_FIRST = {"role": "assistant", "content": "", "refusal": None}


class Completion:
    """One answer to the client, made of deltas: in chunks, or whole as the stream that is put together."""

    def __init__(self, call: Call, facts: Facts) -> None:
        rest = {} if call.request is None else call.request.rest
        self.facts = facts
        self.stream = rest.get("stream") is True
        self._show_usage = wants_usage(rest) and not call.hide_usage
        self.usage: dict[str, Any] = {}
        """It counts once the deltas have ended."""
        self.head: dict[str, Any] = {
            "id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": call.model
        }  # fmt: skip
        """The fields that all chunks have in common."""

    async def reply(self, deltas: Deltas, headers: Sequence[tuple[bytes, bytes]] = ()) -> Reply:
        """Return the answer. A stream waits for its first event, so that an error before it keeps its status.

        A later error is the last event.
        """
        if self.stream:
            events = self._events(deltas)
            await anext(events)  # a generator that was never begun ignores its closing
            return Reply(200, [*STREAM_HEADERS, *headers], chunks=events, facts=self.facts)
        choices: dict[int, dict[str, Any]] = {}
        async for delta in deltas:
            if delta is not None:
                choice = _choice(delta)
                merge(choices.setdefault(choice["index"], {"delta": {**_FIRST, "content": None}}), choice)
        whole = {
            "object": "chat.completion",
            "choices": [_whole(choices[index]) for index in sorted(choices)],
            "usage": self.usage or usage(0, 0),
        }
        return Reply(200, [*JSON_HEADERS, *headers], body=encode(self.head | whole), facts=self.facts)

    async def _events(self, deltas: Deltas) -> AsyncGenerator[bytes, None]:
        """Yield an empty chunk once the server has said something, then the events."""
        is_held, begun = True, set[int]()
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    if is_held:
                        is_held = False
                        yield b""
                    yield _PING if delta is None else self._event(_choice(delta), begun)
        except PenstockError as error:
            if is_held:
                raise
            yield b"data: " + error.body() + b"\n\n"
            return
        if is_held:
            yield b""
        yield (self._chunk(choices=[], usage=self.usage) if self._show_usage and self.usage else b"") + DONE

    def _event(self, choice: Mapping[str, Any], begun: set[int]) -> bytes:
        """Return the chunk for a choice; in front of its first one stands that of its role."""
        first = b""
        if choice["index"] not in begun:
            begun.add(choice["index"])
            first = self._chunk(choices=[{**_BESIDE, "index": choice["index"], "delta": _FIRST}])
        return first + self._chunk(choices=[choice])

    def _chunk(self, **fields: Any) -> bytes:
        return b"data: " + encode({**self.head, "object": "chat.completion.chunk", **fields}) + b"\n\n"


def _choice(delta: Mapping[str, Any]) -> dict[str, Any]:
    beside = {name: delta.get(name, usual) for name, usual in _BESIDE.items()}
    return {**beside, "delta": {name: part for name, part in delta.items() if name not in _BESIDE}}


def _whole(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.pop("delta")
    for name in ("tool_calls", "thinking_blocks"):
        if parts := message.get(name):
            # the index places a part in a stream
            message[name] = [{key: value for key, value in part.items() if key != "index"} for part in parts]
    if message["content"] is None and "tool_calls" not in message:
        message["content"] = ""
    if choice.get("logprobs"):
        choice["logprobs"] = {"content": None, "refusal": None, **choice["logprobs"]}
    return {**_BESIDE, **choice, "message": message}


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
