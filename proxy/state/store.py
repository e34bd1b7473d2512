"""Where bytes stay between requests: one small protocol, and its implementation in memory.

Keys are text and start with whose they are; values are bytes; each value has a time to live that starts again with each
use. What grows by members, such as a set, has a key for each member: so nobody overwrites what another has added.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol

from proxy.context import Unavailable

Cause = Literal["busy", "closed", "corrupted", "full", "locked", "read_only", "too_large", "unreachable"]

PASSING: frozenset[Cause] = frozenset({"busy", "locked"})
"""Causes of failures that lose nothing."""

PROTECTED = 120.0
"""Seconds for which a store gives up nothing that was just used, however full it is: requests under way name it.

Not longer: what it refuses, a request cannot leave out, and one that is too large is answered with a 503. Losing what
an earlier request left out costs less, for the conversation's next request brings it again.
"""

SHORT = 900.0
"""A store that is full of what was used within so many seconds says that it is degraded, before it refuses anything."""

FULL = 0.9
"""The share of its bound from which on a store is full."""

LARGEST_SHARE = 4
"""A value may have at most this fraction of a store's bound."""

_OVERHEAD = 256
"""Bytes that an entry takes in memory besides its key and value, about."""


class StoreError(Unavailable):
    """A store could not do what was asked. `cause` is one word, fit for logs and metrics: no path and no content."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause: Cause = cause


class Store(Protocol):
    """Keeps values by key, bounded in bytes. All methods may be called at the same time; all raise `StoreError`.

    A store that is full gives up what was used longest ago, but nothing that was used within its protected time: then
    `put` raises `full`, and whoever calls does without.
    """

    @property
    def losses(self) -> int:
        """The number of times that values may have been lost without having expired, as far as calls could tell.

        Code that relies on having seen a value relies on this number as well.
        """

    async def get(self, key: str, *, ttl: float | None = None) -> bytes | None:
        """Return the value of a key; None if there is none, or no longer.

        With `ttl` this is a use: the value lives that many seconds from now, less at most a tenth of them or a minute.
        A store that can be read but not written still answers.
        """

    async def put(self, key: str, value: bytes, *, ttl: float) -> None:
        """Set the value of a key, for `ttl` seconds. When it returns, the value is as durable as the store can be."""

    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        """Set several values at once, as durably: all of them or none."""

    async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
        """Set the value of a key that has none, at once for all that share the store; the value that it then has.

        So of several that want to settle something the first does, and all learn what. It is a use, as `get` is. It
        outlives the process at once, and a loss of power a moment later, or behind the next `put`.
        """

    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        """Use values without reading them: they live `ttl` seconds from now. Those that are there."""

    async def delete(self, keys: Collection[str]) -> None:
        """Remove values; keys without one are ignored."""

    async def keys(self, prefix: str, *, limit: int = 1000) -> tuple[str, ...]:
        """Return the first `limit` keys that start with `prefix`, in the order of their code points."""

    async def latest(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        """Return the `limit` keys that start with `prefix` and were used last, the latest first."""

    async def aclose(self) -> None:
        """Give back threads and connections. Later calls raise `closed`; closing twice is fine."""


class MemoryStore:
    """A `Store` in this process: other workers do not see it, and it ends with the process."""

    losses = 0
    """It loses nothing."""

    def __init__(
        self, max_bytes: int, *, protected: float = PROTECTED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`max_bytes` bounds keys, values and what holding them takes; `protected` is in seconds."""
        self._max_bytes = max_bytes
        self._protected = protected
        self._clock = clock
        self._entries: dict[str, _StoredValue] = {}  # in the order of their last use
        self._bytes = 0
        self._closed = False

    @property
    def degraded(self) -> Cause | None:
        """`full` where there is little room left but for what was used in the last minutes."""
        oldest = next(iter(self._entries.values()), None)
        is_short = oldest is not None and oldest.used > self._clock() - SHORT
        return "full" if is_short and self._bytes >= FULL * self._max_bytes else None

    async def get(self, key: str, *, ttl: float | None = None) -> bytes | None:
        entry = self._live(key)
        if entry is not None and ttl is not None:
            self._use(key, entry, ttl)
        return None if entry is None else entry.value

    async def put(self, key: str, value: bytes, *, ttl: float) -> None:
        await self.put_all({key: value}, ttl=ttl)

    async def put_all(self, values: Mapping[str, bytes], *, ttl: float) -> None:
        """Set several values. Raises `too_large` or `full`; then everything is as it was."""
        self._check_open()
        sizes = [_size(key, value) for key, value in values.items()]
        if max(sizes, default=0) > self._max_bytes // LARGEST_SHARE:
            raise StoreError("too_large")
        old = sum(_size(key, self._entries[key].value) for key in values if key in self._entries)
        for victim in self._victims(values, self._bytes - old + sum(sizes) - self._max_bytes):
            self._drop(victim)
        now = self._clock()
        for key, value in values.items():
            if key in self._entries:
                self._drop(key)
            self._entries[key] = _StoredValue(bytes(value), now, now + ttl)
        self._bytes += sum(sizes)

    async def add(self, key: str, value: bytes, *, ttl: float) -> bytes:
        there = await self.get(key, ttl=ttl)
        if there is None:
            await self.put(key, value, ttl=ttl)  # nothing in between waits
        return value if there is None else there

    async def touch(self, keys: Collection[str], *, ttl: float) -> frozenset[str]:
        found = {key: entry for key in keys if (entry := self._live(key)) is not None}
        for key, entry in found.items():
            self._use(key, entry, ttl)
        return frozenset(found)

    async def delete(self, keys: Collection[str]) -> None:
        self._check_open()
        for key in keys:
            if key in self._entries:
                self._drop(key)

    async def keys(self, prefix: str, *, limit: int = 1000) -> tuple[str, ...]:
        self._check_open()
        now = self._clock()
        live = (key for key, entry in self._entries.items() if key.startswith(prefix) and entry.expires > now)
        return tuple(sorted(live)[:limit])

    async def latest(self, prefix: str, *, limit: int) -> tuple[str, ...]:
        self._check_open()
        now = self._clock()
        entries = reversed(self._entries.items())
        live = (key for key, entry in entries if key.startswith(prefix) and entry.expires > now)
        return tuple(islice(live, limit))

    async def aclose(self) -> None:
        self._closed = True
        self._entries.clear()
        self._bytes = 0

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("closed")

    def _live(self, key: str) -> "_StoredValue | None":
        self._check_open()
        entry = self._entries.get(key)
        if entry is not None and entry.expires <= self._clock():
            self._drop(key)
            return None
        return entry

    def _use(self, key: str, entry: "_StoredValue", ttl: float) -> None:
        entry.used = self._clock()
        entry.expires = entry.used + ttl
        self._entries[key] = self._entries.pop(key)

    def _drop(self, key: str) -> None:
        self._bytes -= _size(key, self._entries.pop(key).value)

    def _victims(self, keys: Collection[str], excess: int) -> list[str]:
        """Return the entries that must leave to free so many bytes for keys. Raise `full` if they are not enough."""
        victims: list[str] = []
        if excess <= 0:
            return victims
        now = self._clock()
        for name, entry in self._entries.items():
            if name not in keys and (entry.expires <= now or entry.used <= now - self._protected):
                victims.append(name)
                excess -= _size(name, entry.value)
                if excess <= 0:
                    return victims
        raise StoreError("full")


@dataclass(slots=True)
class _StoredValue:
    value: bytes
    used: float
    expires: float


def _size(key: str, value: bytes) -> int:
    return len(key) + len(value) + _OVERHEAD
