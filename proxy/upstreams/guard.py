"""An upstream behind its bounds: so many requests at once, so many waiting, and none for a while after failures.

No answer shows the operator's key.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from proxy.chat.errors import PenstockError, Unanswered, UpstreamFailed, UpstreamTimeout, UpstreamUnavailable
from proxy.chat.sse import ByteStream
from proxy.config.settings import BreakerSettings, Guarded
from proxy.models.usage import UsageReader
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.keys import keys_of
from proxy.upstreams.refusal import advice, find_overflow, status_of, words_of

_SHARE = 0.5
"""The least share of failures that opens a breaker: a few among thousands of answers are no reason."""

_STUMBLED = frozenset({500, 501, 505})
"""Statuses from 500 on that may be about one request: its sender must not shut the server for all others."""
_OWN = frozenset(each.code for each in (UpstreamFailed, Unanswered, UpstreamTimeout))
"""Codes with which a stream that is translated here says that the server failed."""


class GuardedUpstream:
    """An upstream that is asked only when it may be."""

    def __init__(self, upstream: Upstream, settings: Guarded, breaker: "Breaker") -> None:
        self._upstream = upstream
        self._breaker = breaker
        self.mask = Mask(keys_of(settings))
        self._slots = asyncio.Semaphore(settings.max_connections)
        self._waiting, self._most_waiting, self._patience = 0, settings.max_waiting, settings.max_wait
        self.name, self.address = upstream.name, upstream.address
        self.provider, self.abilities = upstream.provider, upstream.abilities
        self.ignored, self.profile, self.models = upstream.ignored, upstream.profile, upstream.models
        self.aclose = upstream.aclose

    async def send(self, call: Call) -> Reply:
        """Forward a call. Raise `UpstreamUnavailable` where it may not be, else what the upstream raises."""
        self._check()
        waits = self._slots.locked()
        await (self._wait_for_slot() if waits else self._slots.acquire())
        try:
            if waits:
                self._check()  # it may have failed meanwhile
            ticket = self._breaker.admit()
            reply = await self._ask(call, ticket)
        except BaseException:
            self._slots.release()
            raise
        self.mask.head(reply)
        if reply.chunks is None:
            self._slots.release()
        else:
            reply.chunks = _Watched(self, ticket, reply.chunks)
        return reply

    def over(self, ticket: int, *, is_broken: bool) -> None:
        self._slots.release()
        if is_broken:
            self._breaker.broke_off(ticket)

    async def _ask(self, call: Call, ticket: int) -> Reply:
        try:
            reply = await self._upstream.send(call)
        except PenstockError as error:
            error.message = self.mask.text(error.message)
            again = error.headers.get("x-should-retry")
            is_failure = error.is_down if isinstance(error, UpstreamFailed) else is_down(error.status, again)
            self._breaker.answered(ticket, is_sound=not is_failure)
            raise
        except BaseException:  # a client that leaves, or a fault in here: neither says anything of the server
            self._breaker.abandoned(ticket)
            raise
        should_retry = advice(reply.headers).get("x-should-retry") if reply.status >= 500 else None
        self._breaker.answered(ticket, is_sound=not is_down(reply.status, should_retry))
        return reply

    def _check(self) -> None:
        seconds = self._breaker.refusal()
        if seconds is not None:
            after = str(max(1, math.ceil(seconds)))
            message = f"upstream {self.name!r} is unavailable: circuit open, retry in {after} s"
            raise UpstreamUnavailable(message, headers={"retry-after": after})

    async def _wait_for_slot(self) -> None:
        """Wait for a slot, in order. Raise `UpstreamUnavailable` where none comes in time."""
        if self._waiting < self._most_waiting:
            self._waiting += 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._patience):
                        await self._slots.acquire()
                    return
            finally:
                self._waiting -= 1
        raise UpstreamUnavailable(
            f"upstream {self.name!r} is full: too many requests under way, retry in 1 s",
            code="server_is_overloaded",
            headers={"retry-after": "1"},
        )


def is_down(status: int, should_retry: str | None = None) -> bool:
    """Return whether a status means that the server cannot work.

    With the advice not to try again, it is about one request.
    """
    return status >= 500 and status not in _STUMBLED and (should_retry or "").lower() != "false"


class _Watched:
    """A stream that gives its slot back when it is closed, and tells whether it broke off or ended with an error."""

    def __init__(self, guard: GuardedUpstream, ticket: int, chunks: ByteStream) -> None:
        self._guard, self._ticket, self._chunks = guard, ticket, chunks
        self._reader = UsageReader()
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        feed = self._reader.feed
        async for chunk in self._guard.mask.chunks(self._chunks):
            feed(chunk)
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._chunks.aclose()
        finally:
            if self._is_open:
                self._is_open = False
                is_broken = getattr(self._chunks, "broken", False) or _is_servers(self._reader.failure())
                self._guard.over(self._ticket, is_broken=is_broken)


def _is_servers(error: Mapping[str, Any] | None) -> bool:
    """Return whether an error within a stream means that the server cannot work, as its status would."""
    if error is None or find_overflow(words_of(error)) is not None:
        return False
    return error.get("code") in _OWN or is_down(status_of(error) or 500)


# --- the operator's keys in what an upstream answers: some echo the key of a request that they refuse ---

_MASK = b"[key]"
_SHORTEST = 8
"""Characters of a key; what is shorter, such as `EMPTY`, is no secret, and may be a word of an answer."""


class Mask:
    """A mask for the operator's keys in answers to clients."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys if len(key) >= _SHORTEST]

    def body(self, data: bytes) -> bytes:
        for key in self._keys:
            data = data.replace(key, _MASK)
        return data

    def text(self, text: str) -> str:
        return self.body(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def head(self, reply: Reply) -> None:
        if self._keys:
            reply.headers = [(name, self.body(value)) for name, value in reply.headers]
            reply.body = None if reply.body is None else self.body(reply.body)

    def chunks(self, chunks: ByteStream) -> AsyncIterator[bytes]:
        """Return a stream without the keys, also if one comes in two chunks."""
        return self._stream(chunks) if self._keys else aiter(chunks)

    async def _stream(self, chunks: ByteStream) -> AsyncIterator[bytes]:
        pending = b""
        async for chunk in chunks:
            data = self.body(pending + chunk)
            end = len(data) - self._begun(data)
            pending = data[end:]
            if end:
                yield data[:end]
        if pending:
            yield pending

    def _begun(self, data: bytes) -> int:
        """Return the length of the longest end of the data that begins a key. No key has a line break."""
        if data.endswith(b"\n"):
            return 0
        return max(
            next((n for n in range(min(len(key) - 1, len(data)), 0, -1) if data.endswith(key[:n])), 0)
            for key in self._keys
        )


# --- the circuit breaker: a state machine with a clock, and nothing else ---

State = Literal["closed", "open", "half_open"]


class Breaker:
    """A circuit breaker: closed, it counts; open, it refuses; half open, it lets a single probe through.

    Models may take their time to answer: while a probe does, one more is let through in each `open_for` seconds.

    `admit` gives a ticket, and each ticket is handed back once, with the outcome. A ticket from before the last change
    of state no longer counts.
    """

    def __init__(
        self,
        settings: BreakerSettings,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[State], None] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._era = 0
        self._since = clock()
        """When it opened, let the last request through, or began to count."""
        self._failures = self._answers = 0
        self.state: State = "closed"

    def refusal(self) -> float | None:
        """Return the seconds until a request may be let through; None if one may be now."""
        if self.state == "closed":
            return None
        left = self._since + self._settings.open_for - self._clock()
        return left if left > 0 else None

    def admit(self) -> int:
        """Return the ticket of a request. Call it only if `refusal` is None."""
        if self.state != "closed":
            if self.state == "open":
                self._become("half_open")
            self._since = self._clock()
        return self._era

    def answered(self, ticket: int, *, is_sound: bool) -> None:
        if ticket != self._era:
            return
        if self.state == "half_open":
            self._become("closed" if is_sound else "open")
            return
        now, most = self._clock(), self._settings.failures
        if now - self._since > self._settings.within:
            self._since, self._failures, self._answers = now, 0, 0
        self._answers += 1
        self._failures += not is_sound
        if not is_sound and most and self._failures >= max(most, _SHARE * self._answers):
            self._become("open")

    def broke_off(self, ticket: int) -> None:
        """Count an answer as failed that had counted as one."""
        if ticket == self._era and self.state == "closed":
            self._answers = max(0, self._answers - 1)
            self.answered(ticket, is_sound=False)

    def abandoned(self, ticket: int) -> None:
        """Note that the client left before an outcome was known. A probe is then made anew."""
        if ticket == self._era and self.state == "half_open":
            self._since = float("-inf")

    def _become(self, state: State) -> None:
        self._since = self._clock()
        self.state, self._era = state, self._era + 1
        self._failures = self._answers = 0
        if self._on_change is not None:
            self._on_change(state)
