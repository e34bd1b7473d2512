"""The cache pilot: keeps prefixes in the provider's cache while that pays, and lets one request of a fan-out go first.

An unused prefix leaves the cache after its time to live. A request for no answer reads the prefix, and so keeps it for
as long again, at a tenth of what writing it anew would cost. Whether a refresh pays depends on the chance that the
conversation goes on in time, which is learned from the idle times of the agent's conversations.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from proxy.chat import raws
from proxy.config.settings import PilotSettings
from proxy.context import ModelProfile
from proxy.gateway.prepare import Prepared, Rewritten
from proxy.gateway.relay import Copying
from proxy.models.usage import Usage
from proxy.state.background import BackgroundWork
from proxy.state.cache import Cache
from proxy.state.warnings import Warnings
from proxy.telemetry.metrics import Metrics
from proxy.upstreams.base import Call, Reply

WINDOWS = 12
"""Refreshes of one conversation, at most: an hour of a cache of five minutes."""
PERIOD = 0.9
"""Share of the time to live after which a prefix is refreshed."""
_SEEN = 10
"""Idle conversations from which on a chance is known."""
_AGENTS, _PREFIXES, _MOST = 1_000, 10_000, 1_000
"""Agents and prefixes that are remembered, and conversations that are watched."""

_log = logging.getLogger("penstock.pilot")

Key = tuple[str, ...]


class IdleTimes:
    """The idle times of an agent's conversations, in windows: the times from one refresh to the next."""

    def __init__(self) -> None:
        self.waited = [0] * WINDOWS
        """Conversations that were idle until the refresh of this window."""
        self.resumed = [0] * WINDOWS
        """Conversations of those that went on before the next one."""

    def pays(self, window: int, price: float, gain: float) -> bool:
        """Return whether to refresh now, where a refresh has a price and a prefix found in the cache is a gain."""
        ahead = 0.0
        for place in range(WINDOWS - 1, window - 1, -1):
            seen = self.waited[place]
            chance = self.resumed[place] / seen if seen >= _SEEN else 0.0
            ahead = max(0.0, chance * gain + (1 - chance) * ahead - price)
        return ahead > 0


class Pilot:
    """The pilot of one process. For one event loop; losing it costs a few refreshes."""

    def __init__(self, settings: PilotSettings, metrics: Metrics) -> None:
        self.settings = settings
        self._metrics = metrics
        self._times: Cache[Key, IdleTimes] = Cache(_AGENTS)
        self._resting = BackgroundWork[Key]()
        self._windows: dict[Key, int] = {}
        """The window in which each idle conversation is, once its first refresh was due."""
        self._written: Cache[Key, float] = Cache(_PREFIXES)
        self._writing: dict[Key, asyncio.Event] = {}
        self._day, self._usd = 0, 0.0
        self._warnings = Warnings(_log, "a prefix was not kept in the provider's cache")

    def watch(self, prepared: Prepared) -> Copying | None:
        """Take note that a conversation goes on; return the observer of the answer, from which on it is idle."""
        done = prepared.rewritten
        if done is None or not self.settings.max_usd_per_day:
            return None
        key = _conversation(prepared, done)
        if (window := self._windows.pop(key, None)) is not None:
            self._idle(key).resumed[window] += 1
        self._resting.forget(*key)
        return Copying(0, partial(self._rest, prepared, done))

    def _rest(self, prepared: Prepared, done: Rewritten, _: bytes | None, reply: Reply, __: Usage) -> None:
        if reply.status != 200:
            return
        profile, after, key = done.ctx.model, done.outcome.after, _conversation(prepared, done)
        if after is None or not profile.cache.ttl or after.total < profile.cache.minimum or not profile.prices.known:
            return
        if key not in self._resting and len(self._resting) < _MOST:
            self._resting.begin(self._refresh(key, prepared, profile, after.total), key)

    async def _refresh(self, key: Key, prepared: Prepared, profile: ModelProfile, tokens: int) -> None:
        """Refresh a conversation's prefix as long as that pays, and learn for how long it is idle."""
        rules, times = profile.cache, self._idle(key)
        call: Call | None = question(prepared)
        price, gain = tokens * rules.read, tokens * (rules.write - rules.read)
        usd = profile.prices.usd(tokens, price, 1)
        for window in range(WINDOWS):
            await asyncio.sleep(PERIOD * rules.ttl)
            times.waited[window] += 1
            self._windows[key] = window
            pays = call is not None and times.pays(window, price, gain) and self._may_spend(usd)
            if call is not None and not (pays and await self._ask(prepared, call, usd)):
                call = None  # the prefix leaves the cache: later refreshes would write it
        await asyncio.sleep(PERIOD * rules.ttl)
        self._windows.pop(key, None)

    async def _ask(self, prepared: Prepared, call: Call, usd: float) -> bool:
        self._usd += usd
        try:
            reply = await prepared.route.upstream.send(call)
            if reply.chunks is not None:
                await reply.chunks.aclose()
            cause = "" if reply.status == 200 else str(reply.status)
        except Exception as error:  # nobody waits for it; its upstream may be closed by a reload
            cause = type(error).__name__
        self._metrics.of("pilot_requests", "failed" if cause else "refreshed").inc()
        self._metrics.of("pilot_cost_usd", call.model).inc(usd)
        if cause:
            self._warnings.warn(cause=cause, upstream=prepared.route.upstream.name)
        return not cause

    def _may_spend(self, usd: float) -> bool:
        today = int(time.monotonic() // 86400)
        if today != self._day:
            self._day, self._usd = today, 0.0
        return self._usd + usd <= self.settings.max_usd_per_day

    @asynccontextmanager
    async def turn(self, prepared: Prepared) -> AsyncGenerator[None]:
        """Let the first of several requests that begin alike be answered before the others are sent.

        The others find the beginning in the cache, which may be read once an answer begins. They wait for
        `settings.hold` seconds at most.
        """
        key, now = _beginning(prepared) if self.settings.hold else None, time.monotonic()
        if key is None or prepared.rewritten is None:
            yield
        elif (written := self._written.get(key)) is not None and now - written < prepared.rewritten.ctx.model.cache.ttl:
            yield
            self._written.put(key, now)
        elif (writing := self._writing.get(key)) is not None:
            self._metrics.of("pilot_requests", "held").inc()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.hold):
                    await writing.wait()
            yield
        else:
            self._writing[key] = writing = asyncio.Event()
            try:
                yield
                self._written.put(key, now)
            finally:
                del self._writing[key]
                writing.set()

    def forget(self, tenant: str) -> int:
        watched = sum(key[0] == tenant for key in self._resting)
        self._resting.forget(tenant)
        self._windows = {key: window for key, window in self._windows.items() if key[0] != tenant}
        self._times.forget(tenant)
        return watched

    async def aclose(self) -> None:
        await self._resting.aclose()

    def _idle(self, key: Key) -> IdleTimes:
        agent = (key[0], key[-1])
        if (known := self._times.get(agent)) is None:
            self._times.put(agent, known := IdleTimes())
        return known


def question(prepared: Prepared) -> Call | None:
    """Return the call for as short an answer as its vendor gives: Anthropic reads a prompt for none at all."""
    call = prepared.call
    if call.request is None:
        return None
    shortest = 16 if call.path == "/responses" else 0 if prepared.route.upstream.provider == "anthropic" else 1
    limit = next(iter(call.request.output_limits), call.request.limits[0 if call.path == "/responses" else -1])
    request = call.request.with_field(limit, shortest).without("stream", "stream_options")
    return replace(call, request=request, body=request.encode(), hide_usage=False)


def _conversation(prepared: Prepared, done: Rewritten) -> Key:
    who = done.ctx.identity
    return who.tenant, prepared.route.upstream.name, done.ctx.model.name, who.scope, who.agent


def _beginning(prepared: Prepared) -> Key | None:
    """Return a key of a request's tools and system messages; None where they are too short to be cached."""
    done = prepared.rewritten
    if done is None or done.outcome.after is None:
        return None
    after, model, request = done.outcome.after, done.ctx.model, done.outcome.request
    if not model.cache.ttl or after.system + after.tools < max(1, model.cache.minimum):
        return None
    system = [message for message in request.messages if message.role in ("system", "developer")]
    content = hash((*raws(request.tools), *raws(system)))
    return done.ctx.identity.tenant, prepared.route.upstream.name, model.name, str(content)
