"""Streams of bytes, and how much of one may be held in memory where an event, or all of them, must be whole."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol

from proxy.chat.errors import UpstreamFailed

MOST = 32 * 2**20
"""Bytes: a hundred times what any model says in one answer."""


def check_held(size: int) -> None:
    """Raises `UpstreamFailed` where a server sends so many bytes without an end."""
    if size > MOST:
        raise UpstreamFailed(f"the upstream sent more than {MOST} bytes", code="upstream_answer_too_large")


class ByteStream(Protocol):
    """Bytes as they arrive. Closing it drops their source, also before the first of them was asked for."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The chunks in order; to be asked for once."""

    async def aclose(self) -> None:
        """Drop the rest."""


async def split_lines(chunks: ByteStream) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, wherever the network cut it, but for empty ones. Closing it closes `chunks`."""
    pending: list[bytes] = []
    size = 0
    async with aclosing(chunks):
        async for chunk in chunks:
            first, *others = chunk.split(b"\n")
            pending.append(first)
            size = len(others[-1]) if others else size + len(first)
            check_held(size)
            for begun in others:
                if text := b"".join(pending).strip():
                    yield text
                pending = [begun]
    if text := b"".join(pending).strip():
        yield text
