"""Answers with what placeholders of the request stand for, streamed or whole; for the client alone.

Who observes an answer sees it before: records, saved requests and notes on answers have placeholders.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import starmap
from typing import Any

import orjson

from proxy.chat import Message, with_fields
from proxy.chat.placeholders import OPENING, REASONING, VERBATIM, Restoring
from proxy.chat.sse import ByteStream, EventSplitter, with_data
from proxy.upstreams.base import Call, Reply
from proxy.wires.messages_answer import read_event, written

_Path = tuple[str | int, ...]
"""Keys of objects, and in lists the `index` of an entry."""

_NAMING = frozenset({"id", "type", "role", "name"})
"""Keys of a delta whose texts come whole."""


def restored(call: Call, reply: Reply) -> Reply:
    """Return the answer to a call as its client gets it; closing its stream closes that of `reply`."""
    request = call.request
    if not call.restores or request is None or reply.status != 200:
        return reply
    restoring = Restoring(call.restores, as_json=_is_json(request.rest))
    if reply.chunks is not None:
        return with_fields(reply, chunks=_stream(reply.chunks, _STREAMS[request.wire](restoring)))
    body = reply.body or b""
    if OPENING.encode() not in body:
        return reply
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return reply
    made = restoring.value(answer)
    return reply if made is answer else with_fields(reply, body=orjson.dumps(made))


def shown(message: Message, restores: Mapping[str, str]) -> Message:
    """Return an answer as the client has got it."""
    made = Restoring(restores).value(message) if restores else message
    return message if made is message else Message(made)


def _is_json(rest: Mapping[str, Any]) -> bool:
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


class _Stream(ABC):
    """Restores the texts of a stream. Of each, an end that may begin a placeholder waits for what follows."""

    def __init__(self, restoring: Restoring) -> None:
        self._restoring = restoring
        self._events = EventSplitter()
        self._waiting: dict[_Path, tuple[str, dict[str, Any]]] = {}
        """Ends of texts, each with the event that it came in."""
        self._next = self._added = 0
        """The number of the next event, and how many were added: those of Responses are numbered."""

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets of the next bytes. Raises `UpstreamFailed` where an event has no end."""
        return b"".join(starmap(self._event, self._events.feed(chunk)))

    def end(self) -> bytes:
        """Return the bytes behind the last whole event, and what still waits."""
        rest = self._events.rest()
        last = self._event(rest, b"") if rest else b""
        more = self._released([*self._waiting])
        return last + (b"\n\n" if rest and more else b"") + more

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        content = read_event(event)
        if not content:
            return (self._released([*self._waiting]) if b"[DONE]" in event else b"") + event + boundary
        before = self._released([path for path in self._waiting if not self._goes_on(content, path)])
        # of an index that is no number a malformed event is sent as it is, but for whole placeholders
        texts = [each for each in self._texts(content) if all(isinstance(key, str | int) for key in each[0])]
        new = content
        is_changed = False
        for path, holder, key, ends in texts:
            text = self._text(path, holder[key], content, ends=ends)
            is_changed = is_changed or text != holder[key]
            holder[key] = text
        if not texts:
            new = self._restoring.value(content)
            is_changed = new is not content
        if isinstance(number := content.get("sequence_number"), int):
            self._next = number + 1
            is_changed = is_changed or bool(self._added)
            new = {**new, "sequence_number": number + self._added}
        return before + (with_data(event, new) if is_changed else event) + boundary

    def _text(self, path: _Path, text: str, content: dict[str, Any], *, ends: bool) -> str:
        """Return what the client gets of a text with its next piece."""
        whole = (self._waiting.pop(path)[0] if path in self._waiting else "") + text
        held = 0 if ends else self._restoring.begun(whole)
        if held:
            self._waiting[path] = whole[-held:], content
            whole = whole[:-held]
        return self._restoring.text(whole, str(path[-1]))

    def _released(self, paths: Sequence[_Path]) -> bytes:
        """Return what waits under these paths and is no placeholder, as events of its own."""
        events = b""
        for path in paths:
            text, begun = self._waiting.pop(path)
            event = self._saying(begun, path, self._restoring.text(text, str(path[-1])))
            if "sequence_number" in event:
                event, self._added = {**event, "sequence_number": self._next + self._added}, self._added + 1
            events += written(event) if "type" in event else b"data: %b\n\n" % orjson.dumps(event)
        return events

    @abstractmethod
    def _texts(self, event: dict[str, Any]) -> Iterator[tuple[_Path, Any, Any, bool]]:
        """Yield each text that is a piece: its path, which ends in its field, its holder and key, and if it ends."""

    @abstractmethod
    def _goes_on(self, event: Mapping[str, Any], path: _Path) -> bool:
        """Return False where no more of a text comes with an event or behind it."""

    @abstractmethod
    def _saying(self, begun: dict[str, Any], path: _Path, text: str) -> dict[str, Any]:
        """Return an event like another one that says nothing but a text."""


class _ChatStream(_Stream):
    def _texts(self, event: dict[str, Any]) -> Iterator[tuple[_Path, Any, Any, bool]]:
        for choice, delta in _deltas(event):
            yield from _leaves(delta, (choice.get("index", 0),), ends=bool(choice.get("finish_reason")))

    def _goes_on(self, event: Mapping[str, Any], path: _Path) -> bool:
        return all(path[1] in delta for choice, delta in _deltas(event) if choice.get("index", 0) == path[0])

    def _saying(self, begun: dict[str, Any], path: _Path, text: str) -> dict[str, Any]:
        choice = {"index": path[0], "delta": _nested(path[1:], text), "finish_reason": None}
        return {key: value for key, value in begun.items() if key != "usage"} | {"choices": [choice]}


class _MessagesStream(_Stream):
    def _texts(self, event: dict[str, Any]) -> Iterator[tuple[_Path, Any, Any, bool]]:
        delta = event.get("delta")
        name = _DELTAS.get(str(delta.get("type"))) if isinstance(delta, dict) else None
        if isinstance(delta, dict) and isinstance(delta.get(name), str):
            yield (event.get("index", 0), str(name)), delta, name, False

    def _goes_on(self, event: Mapping[str, Any], path: _Path) -> bool:
        return event.get("type") != "content_block_stop" or event.get("index") != path[0]

    def _saying(self, begun: dict[str, Any], path: _Path, text: str) -> dict[str, Any]:
        return {**begun, "delta": {**begun["delta"], path[-1]: text}}


_DELTAS = {"text_delta": "text", "input_json_delta": "partial_json"}


class _ResponsesStream(_Stream):
    def _texts(self, event: dict[str, Any]) -> Iterator[tuple[_Path, Any, Any, bool]]:
        kind = str(event.get("type"))
        if kind.endswith(".delta") and isinstance(event.get("delta"), str) and not kind.startswith(REASONING):
            name = "arguments" if "arguments" in kind else kind
            yield (event.get("output_index", 0), event.get("content_index", 0), name), event, "delta", False

    def _goes_on(self, event: Mapping[str, Any], path: _Path) -> bool:
        return str(event.get("type")).endswith(".delta") or event.get("output_index", path[0]) != path[0]

    def _saying(self, begun: dict[str, Any], path: _Path, text: str) -> dict[str, Any]:
        return {**begun, "delta": text}


_STREAMS: Mapping[str, Callable[[Restoring], _Stream]] = {
    "chat": _ChatStream,
    "messages": _MessagesStream,
    "responses": _ResponsesStream,
}


def _deltas(chunk: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and isinstance(delta := choice.get("delta"), dict):
            yield choice, delta


def _leaves(holder: Any, path: _Path, *, ends: bool) -> Iterator[tuple[_Path, Any, Any, bool]]:
    for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
        at = value["index"] if isinstance(value, dict) and isinstance(value.get("index"), int) else key
        here = (*path, key if isinstance(holder, dict) else at)
        if key in VERBATIM:
            continue
        if isinstance(value, str):
            yield here, holder, key, ends or key in _NAMING
        elif isinstance(value, dict | list):
            yield from _leaves(value, here, ends=ends or key in _NAMING)


def _nested(path: _Path, text: str) -> Any:
    made: Any = text
    for key in reversed(path):
        made = {key: made} if isinstance(key, str) else [{"index": key, **made} if isinstance(made, dict) else made]
    return made
