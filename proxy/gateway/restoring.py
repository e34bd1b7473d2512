"""Answers with what placeholders of the request stand for, streamed or whole; for the client alone.

Who observes an answer sees it before: records, saved requests and notes on answers have placeholders.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import starmap
from typing import Any, NamedTuple

import orjson

from proxy.chat import Message, with_fields
from proxy.chat.errors import UpstreamFailed
from proxy.chat.placeholders import OPENING, REASONING, VERBATIM, Restoring
from proxy.chat.sse import ByteStream, EventSplitter, read_event, with_data
from proxy.text.json_values import json_objects
from proxy.upstreams.base import Call, Reply

_Path = tuple[Any, ...]
"""Keys of objects, and in lists the `index` of an entry. The first is the number of a choice, a block or an item."""

_NAMING = frozenset({"id", "type", "role", "name"})
"""Keys of a delta whose texts come whole."""


def restored(call: Call, reply: Reply) -> Reply:
    """Return the answer to a call as its client gets it; closing its stream closes that of `reply`."""
    request = call.request
    if not call.restores or request is None or reply.status != 200:
        return reply
    restoring = Restoring(call.restores, as_json=_is_json(request.rest))
    if reply.chunks is not None:
        return with_fields(reply, chunks=_stream(reply.chunks, _Stream(restoring, _PIECES[request.wire])))
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
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                if passing := stream.feed(chunk):
                    yield passing
    except UpstreamFailed:
        if waiting := stream.rest():
            yield waiting
        raise
    if last := stream.end():
        yield last


class _TextPiece(NamedTuple):
    """A piece of a text in an event."""

    path: _Path
    holder: Any
    key: str | int
    is_last: bool = False
    """True if no more of the text follows."""


_Event = tuple[bytes, dict[str, Any], bytes]
"""An event, what it says with placeholders restored, and the boundary behind it."""


class _Stream:
    """Restores the texts of a stream. An event whose text may end within a placeholder waits for what follows."""

    def __init__(self, restoring: Restoring, pieces: "_Pieces") -> None:
        self._restoring, self._pieces = restoring, pieces
        self._events = EventSplitter()
        self._queue: list[_Event] = []
        self._open: dict[_Path, tuple[dict[str, Any], _TextPiece, str]] = {}
        """Texts that may end within a placeholder: the content of the last event, its piece, and that end of it."""

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets of the next bytes. Raises `UpstreamFailed` where an event has no end."""
        return b"".join(starmap(self._event, self._events.feed(chunk)))

    def end(self) -> bytes:
        """Return the bytes behind the last whole event, behind all that waits."""
        rest = self._events.rest()
        return (self._event(rest, b"") if rest else b"") + self.rest()

    def rest(self) -> bytes:
        """Return the events that wait."""
        for path in [*self._open]:
            self._close(path)
        return self._released()

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        if event.startswith(b":"):  # a sign of life waits for nothing
            return event + boundary
        content = read_event(event)
        numbers, pieces = self._pieces(content)
        # of an index that is no number a malformed event is sent as it is, but for whole placeholders
        pieces = [each for each in pieces if all(isinstance(key, str | int) for key in each.path)]
        going_on = {each.path[:2] for each in pieces}
        for path in [*self._open]:
            if (path[0] in numbers and path[:2] not in going_on) or b"[DONE]" in event:
                self._close(path)
        self._queue.append((event, content if pieces else self._restoring.value(content), boundary))
        for piece in pieces:
            self._restore(piece, content)
        return self._released()

    def _restore(self, piece: _TextPiece, content: dict[str, Any]) -> None:
        _, _, begun = self._open.pop(piece.path, (content, piece, ""))
        text = begun + piece.holder[piece.key]
        if waiting := 0 if piece.is_last else self._restoring.begun(text):
            self._open[piece.path] = content, piece, text[-waiting:]
            text = text[:-waiting]
        piece.holder[piece.key] = self._restoring.text(text, str(piece.path[-1]))

    def _close(self, path: _Path) -> None:
        """Give a text its end, which began no placeholder."""
        _, piece, end = self._open.pop(path)
        piece.holder[piece.key] += end

    def _released(self) -> bytes:
        """Return the events in front of the first one that waits."""
        waiting, shown = [id(content) for content, _, _ in self._open.values()], list[bytes]()
        while self._queue and id(self._queue[0][1]) not in waiting:
            event, content, boundary = self._queue.pop(0)
            shown += (event if content == read_event(event) else with_data(event, content)), boundary
        return b"".join(shown)


_Pieces = Callable[[dict[str, Any]], tuple[Sequence[Any], list[_TextPiece]]]
"""Returns the numbers of the choices, blocks or items that an event is about, and the pieces of texts in it."""


def _of_chat(event: dict[str, Any]) -> tuple[Sequence[Any], list[_TextPiece]]:
    choices, pieces = json_objects(event.get("choices")), list[_TextPiece]()
    for choice in choices:
        if isinstance(delta := choice.get("delta"), dict):
            pieces += _leaves(delta, (choice.get("index", 0),), is_last=bool(choice.get("finish_reason")))
    return [choice.get("index", 0) for choice in choices], pieces


_DELTAS = {"text_delta": "text", "input_json_delta": "partial_json"}


def _of_messages(event: dict[str, Any]) -> tuple[Sequence[Any], list[_TextPiece]]:
    number, delta = event.get("index"), event.get("delta")
    if not isinstance(delta, dict) or not isinstance(delta.get(name := _DELTAS.get(str(delta.get("type")), "")), str):
        return [number], []
    return [number], [_TextPiece((event.get("index", 0), name), delta, name)]


def _of_responses(event: dict[str, Any]) -> tuple[Sequence[Any], list[_TextPiece]]:
    number, kind = event.get("output_index"), str(event.get("type"))
    if not kind.endswith(".delta") or not isinstance(event.get("delta"), str) or kind.startswith(REASONING):
        return [number], []
    name = "arguments" if "arguments" in kind else kind
    path = event.get("output_index", 0), event.get("content_index", 0), name
    return [number], [_TextPiece(path, event, "delta")]


_PIECES: Mapping[str, _Pieces] = {"chat": _of_chat, "messages": _of_messages, "responses": _of_responses}


def _leaves(holder: Any, path: _Path, *, is_last: bool) -> Iterator[_TextPiece]:
    for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
        at = value["index"] if isinstance(value, dict) and isinstance(value.get("index"), int) else key
        here, ends = (*path, key if isinstance(holder, dict) else at), is_last or key in _NAMING
        if key in VERBATIM:
            continue
        if isinstance(value, str):
            yield _TextPiece(here, holder, key, ends)
        elif isinstance(value, dict | list):
            yield from _leaves(value, here, is_last=ends)
