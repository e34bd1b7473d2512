"""Answers with what placeholders of the request stand for, streamed or whole; for the client alone.

Who observes an answer sees it before: records, saved requests and notes on answers have placeholders.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import starmap
from typing import Any

import orjson

from proxy.chat import Message
from proxy.chat.placeholders import OPENING, VERBATIM, Restoring
from proxy.chat.sse import ByteStream, EventSplitter
from proxy.upstreams.base import Call, Reply

_Path = tuple[str | int, ...]
"""Keys of objects, and in lists the `index` of an entry."""

_NAMING = frozenset({"id", "type", "role", "name"})
"""Keys of a delta whose texts come whole."""


def restored(call: Call, reply: Reply) -> Reply:
    """Return the answer to a call as its client gets it; closing its stream closes that of `reply`."""
    if not call.restores or reply.status != 200:
        return reply
    restoring = Restoring(call.restores, as_json=_is_json(call))
    if reply.chunks is not None:
        return replace(reply, chunks=_stream(reply.chunks, _Stream(restoring)))
    body = reply.body or b""
    if OPENING.encode() not in body:
        return reply
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return reply
    made = restoring.value(answer)
    return reply if made is answer else replace(reply, body=orjson.dumps(made))


def shown(message: Message, restores: Mapping[str, str]) -> Message:
    """Return an answer as the client has got it."""
    made = Restoring(restores).value(message) if restores else message
    return message if made is message else Message(made)


def _is_json(call: Call) -> bool:
    wanted = call.request.rest.get("response_format") if call.request is not None else None
    return isinstance(wanted, Mapping) and wanted.get("type") in ("json_object", "json_schema")


async def _stream(chunks: ByteStream, stream: "_Stream") -> AsyncGenerator[bytes, None]:
    async with aclosing(chunks):
        async for chunk in chunks:
            if passing := stream.feed(chunk):
                yield passing
    if last := stream.end():
        yield last


class _Stream:
    """Restores the texts of a stream. Of each, an end that may begin a placeholder waits for what follows."""

    def __init__(self, restoring: Restoring) -> None:
        self._restoring = restoring
        self._events = EventSplitter()
        self._waiting: dict[_Path, str] = {}
        """Ends of texts, by choice and the path in its delta."""
        self._chunk: Mapping[str, Any] = {}
        """The last one that said something: those that are made look like it."""

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets of the next bytes. Raises `UpstreamFailed` where an event has no end."""
        return b"".join(starmap(self._event, self._events.feed(chunk)))

    def end(self) -> bytes:
        """Return what still waits, and the bytes behind the last whole event."""
        rest = self._events.rest()
        last = self._event(rest, b"") if rest else b""
        return self._released([*self._waiting]) + last

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        data = b"".join(line[5:] for line in event.splitlines() if line.startswith(b"data:")).strip()
        try:
            chunk = orjson.loads(data) if data[:1] == b"{" else None
        except orjson.JSONDecodeError:
            chunk = None
        if not isinstance(chunk, dict) or not isinstance(choices := chunk.get("choices"), list):
            return (self._released([*self._waiting]) if data == b"[DONE]" else b"") + event + boundary
        self._chunk = chunk
        before, made = b"", list[Any]()
        for choice in choices:
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                made.append(choice)
                continue
            place = choice.get("index", 0)
            ends = bool(choice.get("finish_reason"))
            before += self._released([path for path in self._waiting if path[0] == place and path[1] not in delta])
            new = self._delta(delta, (place,), ends=ends)
            made.append(choice if new is delta else {**choice, "delta": new})
        if all(new is old for new, old in zip(made, choices, strict=True)):
            return before + event + boundary
        others = [line for line in event.splitlines() if not line.startswith(b"data:")]
        return before + b"\n".join([*others, b"data: " + orjson.dumps({**chunk, "choices": made})]) + boundary

    def _delta(self, value: Any, path: _Path, *, ends: bool) -> Any:
        if isinstance(value, str):
            return self._text(value, path, ends=ends)
        if isinstance(value, list):
            items = [self._delta(item, (*path, _index(item, at)), ends=ends) for at, item in enumerate(value)]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        if isinstance(value, dict):
            pairs = {
                key: item if key in VERBATIM else self._delta(item, (*path, key), ends=ends or key in _NAMING)
                for key, item in value.items()
            }
            return pairs if any(item is not value[key] for key, item in pairs.items()) else value
        return value

    def _text(self, text: str, path: _Path, *, ends: bool) -> str:
        whole = self._waiting.pop(path, "") + text
        held = 0 if ends else self._restoring.begun(whole)
        if held:
            self._waiting[path] = whole[-held:]
            whole = whole[:-held]
        new = self._restoring.text(whole, str(path[-1]))
        return text if new == text else new

    def _released(self, paths: Sequence[_Path]) -> bytes:
        """What waits under these paths and is no placeholder, as chunks of its own."""
        events = b""
        for path in paths:
            delta = _nested(path[1:], self._restoring.text(self._waiting.pop(path), str(path[-1])))
            choice = {"index": path[0], "delta": delta, "finish_reason": None}
            chunk = {key: value for key, value in self._chunk.items() if key not in ("usage", "choices")}
            events += b"data: " + orjson.dumps({**chunk, "choices": [choice]}) + b"\n\n"
        return events


def _index(item: Any, at: int) -> int:
    index = item.get("index") if isinstance(item, dict) else None
    return index if isinstance(index, int) else at


def _nested(path: _Path, text: str) -> Any:
    """A delta that has nothing but a text under a path."""
    made: Any = text
    for key in reversed(path):
        made = {key: made} if isinstance(key, str) else [{"index": key, **made} if isinstance(made, dict) else made]
    return made
