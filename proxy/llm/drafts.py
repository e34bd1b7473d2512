"""Summaries that are written in the background, and what each cut settled for: kept where all replicas see it."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from math import ceil
from time import monotonic
from urllib.parse import quote

from proxy.chat import Message, turns
from proxy.context import Identity, Material, Outage
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.state.store import Store, StoreError

LONG = 100
"""Turns from which on a summary is written in two levels."""
BLOCK = 20
"""Turns that the first level takes together, at least."""
_MOST_BLOCKS = 25
"""Calls of the first level at most: then blocks are larger."""
_BLOCK_SIZE = 1500
"""Bytes of a block's summary."""

DEADLINES = 5
"""Calls that one summary may take the full time for; of many blocks, most must be faster."""

_AT_ONCE = 2
_WAITING = 32
"""Drafts that may be under way or wait; more are not begun: their cuts get extracts."""
_AGAIN = 60.0
"""Seconds after which one that failed may be tried again."""
_FRESH = 60.0
"""Seconds for which what was settled is not looked up again."""
_REMEMBERED = 4096

Write = Callable[[Material, Mapping[str, str]], Awaitable[str | None]]
"""Writes the summary of a material, or gives None; never raises."""


class DraftService:
    """Has summaries written, each once, and settles which a cut uses. For use on one event loop."""

    def __init__(
        self, store: Store, write: Write, *, ttl: float, deadline: float, clock: Callable[[], float] = monotonic
    ) -> None:
        """`ttl` is how long a summary stays after its last use, `deadline` how long one may take, in seconds."""
        self._store, self._write, self._ttl, self._deadline, self._clock = store, write, ttl, deadline, clock
        self._work = BackgroundWork[tuple[str, str]]()
        self._begun: Cache[tuple[str, str], None] = Cache(_REMEMBERED, age=_AGAIN, clock=clock)
        self._settled: Cache[tuple[str, str], tuple[str, float]] = Cache(_REMEMBERED)
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._worker = secrets.token_bytes(16)

    def bind(self, who: Identity, headers: Mapping[str, str], outage: Outage | None = None) -> "BoundDrafts":
        """The drafts of a tenant; `headers` are for the writer's calls."""
        return BoundDrafts(self, _prefix(who.tenant), headers, outage or Outage())

    def forget(self, tenant: str) -> int:
        """Forget what was settled for a tenant, and stop writing for it; how much that was."""
        self._work.forget(_prefix(tenant))
        return self._settled.forget(_prefix(tenant))

    async def drain(self) -> None:
        await self._work.drain()

    async def aclose(self) -> None:
        await self._work.aclose()

    def begin(self, prefix: str, material: Material, headers: Mapping[str, str]) -> None:
        """Have a draft written, unless it was begun lately, here or in another worker."""
        key = (prefix, material.name)
        if len(self._work) < _WAITING and key not in self._work and key not in self._begun:
            self._begun.put(key, None)
            self._work.begin(self._draft(f"{prefix}draft/{material.name}", material, headers), key)

    async def _draft(self, key: str, material: Material, headers: Mapping[str, str]) -> None:
        try:
            async with self._free, asyncio.timeout(self._deadline):
                mine = await self._store.add(f"{key}/claim", self._worker, ttl=self._deadline)
                if mine != self._worker or await self._store.get(key) is not None:
                    return
                text = await self._in_levels(material, headers)
                if text is not None:
                    await self._store.put(key, text.encode(errors="surrogatepass"), ttl=self._ttl)
        except (StoreError, TimeoutError):
            return  # the cut gets its extract

    async def _in_levels(self, material: Material, headers: Mapping[str, str]) -> str | None:
        """The summary; of a long conversation that of its blocks' summaries. A block without one speaks for itself."""
        groups = turns(material.messages)
        if len(groups) <= LONG:
            return await self._write(material, headers)
        size = max(BLOCK, ceil(len(groups) / _MOST_BLOCKS))
        told: list[Message] = []
        for start in range(0, len(groups), size):
            block = [message for group in groups[start : start + size] for message in group]
            part = replace(material, before="", messages=tuple(block), size=_BLOCK_SIZE)
            text = await self._write(part, headers)
            told += [Message({"role": "user", "content": text})] if text else block
        return await self._write(replace(material, messages=tuple(told)), headers)

    async def settle(self, prefix: str, cut: str, draft: str, outage: Outage) -> str:
        """What a cut uses: the draft if it was ready when the cut was first used, else nothing, for ever."""
        now = self._clock()
        text, when = self._settled.get((prefix, cut)) or (None, 0.0)
        if text is not None and now - when < _FRESH:
            return text
        try:
            text = await self._agreed(f"{prefix}cut/{cut}", f"{prefix}draft/{draft}", text)
        except StoreError:
            if text is None:  # nothing is known of it: the next request asks again
                outage.begun = True
                return ""
            # what was used is used again: the prefix must not change for a store that is away
        self._settled.put((prefix, cut), (text, now))
        return text

    async def _agreed(self, key: str, draft: str, used: str | None) -> str:
        found = await self._store.get(key, ttl=self._ttl)
        if found is None and used is not None:  # lost by the store, but not here
            found = await self._store.add(key, used.encode(errors="surrogatepass"), ttl=self._ttl)
        elif found is None:
            ready = await self._store.get(draft)
            found = await self._store.add(key, ready or b"", ttl=self._ttl)
        return found.decode(errors="surrogatepass")


class BoundDrafts:
    """The `Drafts` of a request's context."""

    __slots__ = ("_headers", "_outage", "_prefix", "_service")

    def __init__(self, service: DraftService, prefix: str, headers: Mapping[str, str], outage: Outage) -> None:
        self._service, self._prefix, self._headers, self._outage = service, prefix, headers, outage

    def prepare(self, material: Material) -> None:
        self._service.begin(self._prefix, material, self._headers)

    async def settled(self, cut: str, draft: str) -> str:
        return await self._service.settle(self._prefix, cut, draft, self._outage)


def _prefix(tenant: str) -> str:
    return f"summary/{quote(tenant, safe='')}/"
