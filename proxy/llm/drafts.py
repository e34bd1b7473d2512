"""Summaries written in the background, and the summary that each cut uses; all replicas share both."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from time import monotonic
from urllib.parse import quote

from proxy.chat import Message, turns
from proxy.context import Identity, Material, Outage
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.state.store import Store, StoreError

LONG = 100
"""Turns above which a summary is written in two levels: of blocks, then of their summaries."""
BLOCK = 20
"""Least number of turns in a block."""
_MOST_BLOCKS = 25
"""Largest number of blocks."""
_BLOCK_SIZE = 1500
"""Bytes of a block's summary."""

DEADLINES = 5
"""Timeouts of single calls that one summary of many blocks may take in all."""

_AT_ONCE = 2
_WAITING = 32
"""Largest number of drafts under way or waiting. The cuts of further ones use extracts."""
_AGAIN = 60.0
"""Seconds after which a failed draft may be tried again."""
_FRESH = 60.0
"""Seconds for which a settled summary is served from memory."""
_REMEMBERED = 4096

Write = Callable[[Material, Mapping[str, str]], Awaitable[str | None]]
"""A function that returns the summary of a material, or None; it never raises."""


class DraftService:
    """Drafts of summaries, each written once, and the choice of the summary of a cut. For use on one event loop."""

    def __init__(
        self, store: Store, write: Write, *, ttl: float, deadline: float, clock: Callable[[], float] = monotonic
    ) -> None:
        """Set up the service; summaries expire `ttl` seconds after their last use, and may take `deadline` seconds."""
        self._store, self._write, self._ttl, self._deadline, self._clock = store, write, ttl, deadline, clock
        self._work = BackgroundWork[tuple[str, str]]()
        self.drain, self.aclose = self._work.drain, self._work.aclose
        self._begun: Cache[tuple[str, str], None] = Cache(_REMEMBERED, age=_AGAIN, clock=clock)
        self._settled: Cache[tuple[str, str], tuple[str, float]] = Cache(_REMEMBERED)
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._worker = secrets.token_bytes(16)

    def bind(self, who: Identity, headers: Mapping[str, str], outage: Outage | None = None) -> "BoundDrafts":
        return BoundDrafts(self, _prefix(who.tenant), headers, outage or Outage())

    def forget(self, tenant: str) -> int:
        """Forget the settled summaries of a tenant, cancel its drafts, and return the number of summaries."""
        self._work.forget(_prefix(tenant))
        return self._settled.forget(_prefix(tenant))

    def begin(self, prefix: str, material: Material, headers: Mapping[str, str]) -> None:
        """Begin to write a draft, unless it was begun lately, here or in another worker."""
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
        """Write a summary; of a long conversation from the summaries of its blocks.

        The messages of a block whose summary failed take the place of its summary.
        """
        groups = turns(material.messages)
        if len(groups) <= LONG:
            return await self._write(material, headers)
        size = max(BLOCK, ceil(len(groups) / _MOST_BLOCKS))
        messages: list[Message] = []
        for start in range(0, len(groups), size):
            block = [message for group in groups[start : start + size] for message in group]
            part = replace(material, before="", messages=tuple(block), size=_BLOCK_SIZE)
            text = await self._write(part, headers)
            messages += [Message({"role": "user", "content": text})] if text else block
        return await self._write(replace(material, messages=tuple(messages)), headers)

    async def settle(self, prefix: str, cut: str, draft: str, outage: Outage) -> str:
        """Return the summary of a cut: the draft if it was ready at the first use of the cut, else always nothing."""
        now = self._clock()
        text, when = self._settled.get((prefix, cut)) or (None, 0.0)
        if text is not None and now - when < _FRESH:
            return text
        try:
            text = await self._agreed(f"{prefix}cut/{cut}", f"{prefix}draft/{draft}", text)
        except StoreError:
            if text is None:  # the next request asks again
                outage.begun = True
                return ""
            # an outage of the store must not change the prefix, so the last summary is used again
        self._settled.put((prefix, cut), (text, now))
        return text

    async def _agreed(self, key: str, draft: str, used: str | None) -> str:
        value = await self._store.get(key, ttl=self._ttl)
        if value is None and used is not None:  # lost by the store, but not here
            value = await self._store.add(key, used.encode(errors="surrogatepass"), ttl=self._ttl)
        elif value is None:
            ready = await self._store.get(draft)
            value = await self._store.add(key, ready or b"", ttl=self._ttl)
        return value.decode(errors="surrogatepass")


@dataclass(slots=True)
class BoundDrafts:
    """The `Drafts` of a request's context."""

    _service: DraftService
    _prefix: str
    _headers: Mapping[str, str]
    _outage: Outage

    def prepare(self, material: Material) -> None:
        self._service.begin(self._prefix, material, self._headers)

    async def settled(self, cut: str, draft: str) -> str:
        return await self._service.settle(self._prefix, cut, draft, self._outage)


def _prefix(tenant: str) -> str:
    return f"summary/{quote(tenant, safe='')}/"
