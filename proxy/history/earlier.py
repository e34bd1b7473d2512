"""What is known of a conversation's request before this one: what it consisted of, and how long ago it was.

Each request settles in the memo when it came, under the messages that it consists of; the next one begins with them and
finds it. So every replica knows the same, and two conversations that begin alike do not share it.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from proxy.chat import Message, digest
from proxy.context import Context
from proxy.economics import is_cold

_BACK = 8
"""Assistant messages in front of which the request before may have ended: internal rounds bring some of their own."""
_COARSE = 60.0
"""Seconds by which times may be off."""


class PreviousRequest(NamedTuple):
    """What is known."""

    seen: int = 0
    """How many of the client's messages the request before had; 0 where none is remembered."""
    cold_start: int = 0
    """When a request came last, this one included, that found nothing of the conversation in the provider's cache, in
    seconds since 1970; 0 where none is known."""
    is_cold: bool = False
    """Whether that is this request."""


async def earlier(ctx: Context) -> PreviousRequest:
    """What the memo knows; nothing without one."""
    if ctx.memo is None or ctx.now is None:
        return PreviousRequest()
    own, ends = await _keys(ctx.incoming.messages, ctx)
    seen, start, idle, came = 0, 0, 0.0, int(ctx.now)
    for place, key in ends:
        value = (await ctx.memo.known([key]))[0]
        if value is not None:
            before = _Record.read(value)
            seen, start, idle = place, before.cold_start, came - before.came - _COARSE
            break
    cold = is_cold(ctx.model.cache, idle)
    mine = _Record(came, came if cold else start, cold)
    # the same request may have come before
    settled = _Record.read(await ctx.memo.settle(own, mine.written()))
    return PreviousRequest(seen, settled.cold_start, is_cold=bool(settled.cold))


class _Record(NamedTuple):
    """What is kept of a request."""

    came: int
    """When, in seconds since 1970."""
    cold_start: int
    cold: int

    @classmethod
    def read(cls, value: str) -> "_Record":
        return cls(*map(int, value.split()))

    def written(self) -> str:
        return f"{self.came} {self.cold_start} {self.cold:d}"


async def _keys(messages: Sequence[Message], ctx: Context) -> tuple[str, list[tuple[int, str]]]:
    """The key of this request, and those that the one before it may have with its end, the likeliest first."""
    ends = [place for place, message in enumerate(messages) if place and message.get("role") == "assistant"][-_BACK:]
    running, found = blake2b(digest_size=16), list[tuple[int, str]]()
    for place, one in enumerate(await ctx.once.of_each(digest, messages)):
        if place in ends:
            found.append((place, f"came/{running.hexdigest()}"))
        running.update(one)
    return f"came/{running.hexdigest()}", found[::-1]
