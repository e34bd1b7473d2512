"""Streams of bytes, and how much of one may be held in memory where an event, or all of them, must be whole."""

from collections.abc import AsyncIterator
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
