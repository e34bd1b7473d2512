"""An upstream behind its bounds: so many requests at once, so many waiting, and none for a while after failures."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from proxy.chat.errors import PenstockError, UpstreamFailed, UpstreamUnavailable
from proxy.chat.sse import ByteStream
from proxy.config.upstream_settings import Guarded
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.breaker import Breaker
from proxy.upstreams.masking import Mask, keys_of

_BROKEN = frozenset({"upstream_broke_off", "upstream_timeout"})
"""What an upstream that ends its own streams notes where it had to."""

_STUMBLED = frozenset({500, 501, 505})
"""Statuses from 500 on that are about one request."""


class Slots:
    """So many at once; so many more wait for a while, in order."""

    def __init__(self, most: int, most_waiting: int, patience: float) -> None:
        """`patience` is in seconds."""
        self._free = most
        self._most_waiting = most_waiting
        self._patience = patience
        self._waiting: deque[asyncio.Future[None]] = deque()

    def taken(self) -> bool:
        """Take a slot, if one is free."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    async def wait(self) -> bool:
        """Wait for a slot; whether one came."""
        if len(self._waiting) >= self._most_waiting:
            return False
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except TimeoutError:
            return self._came(turn)
        except asyncio.CancelledError:
            if self._came(turn):
                self.free()
            raise
        return True

    def _came(self, turn: asyncio.Future[None]) -> bool:
        """Whether a slot was handed over all the same; if not, the turn is given up."""
        if turn.done() and not turn.cancelled():
            return True
        if turn in self._waiting:
            self._waiting.remove(turn)
        return False

    def free(self) -> None:
        """Give a slot back, or rather on to who waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class GuardedUpstream:
    """An upstream that is asked only when it may be; to all others it looks like that upstream itself."""

    def __init__(self, upstream: Upstream, settings: Guarded, breaker: Breaker) -> None:
        self._upstream = upstream
        self._breaker = breaker
        self._mask = Mask(keys_of(settings))
        self._slots = Slots(settings.max_connections, settings.max_waiting, settings.max_wait)
        self.name, self.address = upstream.name, upstream.address
        self.provider, self.translates = upstream.provider, upstream.translates
        self.signs, self.ask_usage = upstream.signs, upstream.ask_usage
        self.ignored, self.profile, self.models = upstream.ignored, upstream.profile, upstream.models
        self.aclose = upstream.aclose

    async def send(self, call: Call) -> Reply:
        """Forward a call. Raises `UpstreamUnavailable` where it may not be, else what the upstream raises."""
        self._check()
        if not self._slots.taken():
            await self._wait()
        try:
            ticket = self._breaker.admit()
            reply = await self._ask(call, ticket)
        except BaseException:
            self._slots.free()
            raise
        self._mask.head(reply)
        if reply.chunks is None:
            self._slots.free()
        else:
            broken = partial(self._breaker.broke_off, ticket)
            reply.chunks = _Watched(reply.facts, reply.chunks, self._slots.free, broken, self._mask)
        return reply

    async def _ask(self, call: Call, ticket: int) -> Reply:
        breaker = self._breaker
        try:
            reply = await self._upstream.send(call)
        except PenstockError as error:
            error.message = self._mask.text(error.message)
            if isinstance(error, UpstreamFailed) or is_down(error.status, error.headers.get("x-should-retry")):
                breaker.failed(ticket)
            else:
                breaker.succeeded(ticket)
            raise
        except asyncio.CancelledError:
            breaker.left(ticket)
            raise
        except Exception:
            breaker.failed(ticket)
            raise
        if reply.status >= 500 and is_down(reply.status, _advice(reply)):
            breaker.failed(ticket)
        else:
            breaker.succeeded(ticket)
        return reply

    def _check(self) -> None:
        seconds = self._breaker.refusal()
        if seconds is not None:
            raise UpstreamUnavailable(
                f"the upstream {self.name!r} has failed too often, and is left alone for a moment",
                headers=_after(seconds),
            )

    async def _wait(self) -> None:
        """Wait for a slot. Raises `UpstreamUnavailable` where none comes, or the upstream failed in the meantime."""
        if not await self._slots.wait():
            raise UpstreamUnavailable(
                f"the upstream {self.name!r} has too many requests under way",
                code="server_is_overloaded",
                headers=_after(1),
            )
        try:
            self._check()
        except UpstreamUnavailable:
            self._slots.free()
            raise


def is_down(status: int, advice: str | None = None) -> bool:
    """Whether a status says that the server cannot work; with the advice not to try again, it is about one request."""
    return status >= 500 and status not in _STUMBLED and (advice or "").lower() != "false"


def _advice(reply: Reply) -> str | None:
    return next((value.decode("latin-1") for name, value in reply.headers if name == b"x-should-retry"), None)


def _after(seconds: float) -> dict[str, str]:
    return {"retry-after": str(max(1, math.ceil(seconds)))}


class _Watched:
    """A stream that gives its slot back when it is closed, and tells whether it broke off; its chunks cost nothing."""

    def __init__(
        self,
        facts: Mapping[str, Any],
        chunks: ByteStream,
        ended: Callable[[], None],
        broken: Callable[[], None],
        mask: Mask,
    ) -> None:
        """`facts` are those of the reply, which has this stream: holding the reply itself would be a cycle."""
        self._facts = facts
        self._chunks = chunks
        self._ended: Callable[[], None] | None = ended
        self._broken = broken
        self._mask = mask

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._mask.chunks(self._chunks)

    async def aclose(self) -> None:
        try:
            await self._chunks.aclose()
        finally:
            ended, self._ended = self._ended, None
            if ended is not None:
                ended()
                # the streams of upstreams that translate end by themselves, and note why
                if getattr(self._chunks, "broken", False) or self._facts.get("error") in _BROKEN:
                    self._broken()
