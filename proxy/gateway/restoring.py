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
from proxy.chat.sse import ByteStream, EventSplitter, event_data, with_data
from proxy.text.json_values import json_object
from proxy.upstreams.base import Call, Reply
from proxy.wires.messages_answer import read_event, written

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
        wire = "chat" if call.request is None else call.request.wire
        return replace(reply, chunks=_stream(reply.chunks, _STREAMS[wire](restoring)))
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
    if call.request is None:
        return False
    rest = call.request.rest
    wanted: list[Any] = [rest.get("response_format"), rest.get("output_format")]
    wanted += [
        field.get("format") for name in ("output_config", "text") if isinstance(field := rest.get(name), Mapping)
    ]
    return any(isinstance(each, Mapping) and each.get("type") in ("json_object", "json_schema") for each in wanted)


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
        data = event_data(event)
        chunk = json_object(data)
        if not isinstance(choices := chunk.get("choices"), list):
            return (self._released([*self._waiting]) if data == b"[DONE]" else b"") + event + boundary
        self._chunk = chunk
        before, restored = b"", list[Any]()
        for choice in choices:
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                restored.append(choice)
                continue
            place = choice.get("index", 0)
            ends = bool(choice.get("finish_reason"))
            before += self._released([path for path in self._waiting if path[0] == place and path[1] not in delta])
            new = self._delta(delta, (place,), ends=ends)
            restored.append(choice if new is delta else {**choice, "delta": new})
        if all(new is old for new, old in zip(restored, choices, strict=True)):
            return before + event + boundary
        return before + with_data(event, {**chunk, "choices": restored}) + boundary

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
        """Return what waits under these paths and is no placeholder, as chunks of its own."""
        events = b""
        for path in paths:
            delta = _nested(path[1:], self._restoring.text(self._waiting.pop(path), str(path[-1])))
            choice = {"index": path[0], "delta": delta, "finish_reason": None}
            chunk = {key: value for key, value in self._chunk.items() if key not in ("usage", "choices")}
            events += b"data: " + orjson.dumps({**chunk, "choices": [choice]}) + b"\n\n"
        return events


class _NativeStream(_Stream):
    """The same for a wire whose events name the block or item that a text is a part of."""

    def __init__(self, restoring: Restoring) -> None:
        super().__init__(restoring)
        self._begun: dict[_Path, dict[str, Any]] = {}
        """The last event of each text that waits."""

    def end(self) -> bytes:
        rest = self._events.rest()
        return (self._event(rest, b"") if rest else b"") + self._ended([*self._begun])

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        content = read_event(event)
        if not content:
            return event + boundary
        text = self._text_of(content)
        if text is None:
            new = content if self._is_verbatim(content) else self._restoring.value(content)
            before = self._ended([path for path in self._begun if self._ends(content, path)])
            return before + self._written(event, boundary, content, new)
        path, piece = text
        shown = self._text(piece, path, ends=False)
        self._begun.pop(path, None)
        if path in self._waiting:
            self._begun[path] = content
        return self._written(event, boundary, content, content if shown == piece else self._with_text(content, shown))

    def _ended(self, paths: Sequence[_Path]) -> bytes:
        """Return what waits under these paths and is no placeholder, as events of its own."""
        events = b""
        for path in paths:
            text = self._restoring.text(self._waiting.pop(path), str(path[-1]))
            events += self._event_bytes(self._with_text(self._begun.pop(path), text))
        return events

    def _event_bytes(self, event: Mapping[str, Any]) -> bytes:
        """Return an event that the upstream has not sent."""
        return written(event)

    def _written(self, event: bytes, boundary: bytes, content: Mapping[str, Any], new: Mapping[str, Any]) -> bytes:
        return event + boundary if new is content else written(new)

    def _text_of(self, event: Mapping[str, Any]) -> tuple[_Path, str] | None:
        """Return the path of the text of a delta, which ends in the name of its field, and the text."""
        raise NotImplementedError

    def _with_text(self, event: Mapping[str, Any], text: str) -> Mapping[str, Any]:
        """Return a delta with another text."""
        raise NotImplementedError

    def _is_verbatim(self, event: Mapping[str, Any]) -> bool:
        return False

    def _ends(self, event: Mapping[str, Any], path: _Path) -> bool:
        """Return True where no more of a text comes behind an event."""
        raise NotImplementedError


class _MessagesStream(_NativeStream):
    def _text_of(self, event: Mapping[str, Any]) -> tuple[_Path, str] | None:
        delta = event.get("delta")
        name = _DELTAS.get(str(delta.get("type"))) if isinstance(delta, Mapping) else None
        text = delta.get(name) if isinstance(delta, Mapping) and name is not None else None
        return ((event.get("index", 0), name), text) if name is not None and isinstance(text, str) else None

    def _with_text(self, event: Mapping[str, Any], text: str) -> Mapping[str, Any]:
        delta = event["delta"]
        return {**event, "delta": {**delta, _DELTAS[delta["type"]]: text}}

    def _is_verbatim(self, event: Mapping[str, Any]) -> bool:
        delta = event.get("delta")
        return isinstance(delta, Mapping) and delta.get("type") in _SIGNED_DELTAS

    def _ends(self, event: Mapping[str, Any], path: _Path) -> bool:
        kind = str(event.get("type"))
        return kind.startswith("message_") or (kind == "content_block_stop" and event.get("index") == path[0])


_DELTAS = {"text_delta": "text", "input_json_delta": "partial_json"}
_SIGNED_DELTAS = frozenset({"thinking_delta", "signature_delta"})


class _ResponsesStream(_NativeStream):
    """Its events are numbered: behind one that was not sent, they have other numbers."""

    def __init__(self, restoring: Restoring) -> None:
        super().__init__(restoring)
        self._next = self._added = 0

    def _text_of(self, event: Mapping[str, Any]) -> tuple[_Path, str] | None:
        kind, text = str(event.get("type")), event.get("delta")
        if not kind.endswith(".delta") or not isinstance(text, str) or self._is_verbatim(event):
            return None
        name = "arguments" if "arguments" in kind else kind
        return (event.get("output_index", 0), event.get("content_index", 0), name), text

    def _with_text(self, event: Mapping[str, Any], text: str) -> Mapping[str, Any]:
        return {**event, "delta": text}

    def _is_verbatim(self, event: Mapping[str, Any]) -> bool:
        return str(event.get("type")).startswith("response.reasoning")

    def _ends(self, event: Mapping[str, Any], path: _Path) -> bool:
        return not str(event.get("type")).endswith(".delta") and event.get("output_index", path[0]) == path[0]

    def _event_bytes(self, event: Mapping[str, Any]) -> bytes:
        self._added += 1
        return written({**event, "sequence_number": self._next + self._added - 1})

    def _written(self, event: bytes, boundary: bytes, content: Mapping[str, Any], new: Mapping[str, Any]) -> bytes:
        number = content.get("sequence_number")
        if not isinstance(number, int):
            return super()._written(event, boundary, content, new)
        self._next = number + 1
        if self._added:
            new = {**new, "sequence_number": number + self._added}
        return super()._written(event, boundary, content, new)


_STREAMS = {"chat": _Stream, "messages": _MessagesStream, "responses": _ResponsesStream}


def _index(item: Any, at: int) -> int:
    index = item.get("index") if isinstance(item, dict) else None
    return index if isinstance(index, int) else at


def _nested(path: _Path, text: str) -> Any:
    """Return a delta that has nothing but a text under a path."""
    made: Any = text
    for key in reversed(path):
        made = {key: made} if isinstance(key, str) else [{"index": key, **made} if isinstance(made, dict) else made]
    return made
