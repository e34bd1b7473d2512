"""How much of a stream may be held in memory, where an event, or all of them, must be whole before anything is done."""

from proxy.errors import UpstreamFailed

MOST = 32 * 2**20
"""Bytes: a hundred times what any model says in one answer."""


def check_held(size: int) -> None:
    """Raises `UpstreamFailed` where a server sends so many bytes without an end."""
    if size > MOST:
        raise UpstreamFailed(f"the upstream sent more than {MOST} bytes", code="upstream_answer_too_large")
