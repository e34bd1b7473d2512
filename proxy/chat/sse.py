"""Streams of bytes, and how much of one may be held in memory where an event, or all of them, must be whole."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, Protocol

import orjson

from proxy.chat.errors import Unanswered
from proxy.text.json_values import json_object

MOST = 32 * 2**20
"""Bytes: a hundred times what any model says in one answer."""


def check_held(size: int) -> None:
    """Raise `Unanswered` where a server sends so many bytes without an end."""
    if size > MOST:
        raise Unanswered(f"the upstream sent more than {MOST} bytes", code="upstream_answer_too_large")


class EventSplitter:
    """Cuts a stream into its events, wherever the network cut it. A long event is looked through once."""

    _BOUNDARY = re.compile(rb"(\r\n\r\n|\n\n)")
    _ENDS = (b"\n\n", b"\r\n\r\n")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._end = b""
        """The last bytes so far, with which a boundary may begin."""

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the events that the next bytes complete, each with the boundary behind it.

        Raise `Unanswered` if an event has no end.
        """
        check_held(self._size)
        self._size += len(chunk)
        self._parts.append(chunk)
        joint = self._end + chunk
        self._end = joint[-3:]
        first, second = self._ENDS
        if first not in joint and second not in joint:
            return iter(())
        *events, rest = self._BOUNDARY.split(self.rest())
        self._parts, self._size, self._end = [rest], len(rest), rest[-3:]
        return zip(events[::2], events[1::2], strict=True)

    def rest(self) -> bytes:
        """Take the bytes behind the last whole event."""
        rest, self._parts = b"".join(self._parts), []
        return rest


def event_data(event: bytes) -> bytes:
    """Return the data of an event."""
    return b"".join(line[5:] for line in event.splitlines() if line.startswith(b"data:")).strip()


def read_event(event: bytes) -> dict[str, Any]:
    """Return the object that is the data of an event; an empty one for an event that has none."""
    return json_object(event_data(event))


def encoded_event(kind: str, **content: Any) -> bytes:
    """Return an event of a type as the bytes of a stream."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **content}))


def with_data(event: bytes, data: Any) -> bytes:
    """Return an event with this JSON in place of its data."""
    others = [line for line in event.splitlines() if not line.startswith(b"data:")]
    return b"\n".join([*others, b"data: " + orjson.dumps(data)])


class ByteStream(Protocol):
    """Bytes as they arrive. Closing it drops their source, also before the first of them was asked for."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the chunks in order; to be asked for once."""

    async def aclose(self) -> None:
        """Drop the rest."""


async def split_lines(chunks: ByteStream) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream, wherever the network cut it, but for empty ones. Closing it closes `chunks`."""
    lines = _LineSplitter()
    async with aclosing(chunks):
        async for chunk in chunks:
            for line, _ in lines.feed(chunk):
                if text := line.strip():
                    yield text
    if text := lines.rest().strip():
        yield text


class _LineSplitter(EventSplitter):
    _BOUNDARY = re.compile(rb"(\n)")
    _ENDS = (b"\n", b"\n")
