"""Limits of each key: requests and tokens per minute, tokens and money per day.

A request is counted before its body is read, and reserves an estimate of its tokens before it is sent. The reported
usage then takes the place of the estimate. Of a day's limit, requests under way reserve no more than is left; a request
that is alone may use up the rest, whatever it may need, so that a day can be used to its end.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, fields

from proxy.access.callers import Caller
from proxy.access.demand import Demand, check_caps, demand_of
from proxy.access.windows import MINUTE, Window, duration
from proxy.chat.errors import RateLimited
from proxy.config.access_settings import LimitsSettings
from proxy.economics import money, reported_cost
from proxy.http.headers import Headers, retry_after
from proxy.models.usage import Usage
from proxy.state.counters import Counters
from proxy.state.store import StoreError
from proxy.telemetry.series import Series
from proxy.upstreams.base import Call

_MINUTES_TTL = 3 * MINUTE
DAY = 86400.0
"""Seconds of a day (UTC)."""
_DAYS_TTL = 2 * DAY
_HOUR = 3600.0
"""Seconds for which the reservations of a killed process count, to twice as long."""
PATIENCE = 2.0
"""Seconds to wait for counts; after that the request passes uncounted."""
_PAUSE = 1.0
"""Seconds after a failure in which counts are not asked for again."""

_log = logging.getLogger("penstock.limits")


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits of one key; None is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    budget_per_day: float | None = None
    max_output_tokens: int | None = None
    max_n: int | None = None
    max_concurrent: int | None = None

    @classmethod
    def of(cls, settings: LimitsSettings, caller: Caller) -> "Terms":
        """Return the limits of a caller: those of its key, and for each that the key lacks the common one."""
        given = {item.name: getattr(settings, item.name) for item in fields(cls)}
        given["max_concurrent"] = settings.max_concurrent_per_key
        own = {name: getattr(caller.key, name) for name in given} if caller.key is not None else {}
        return cls(**given | {name: value for name, value in own.items() if value is not None})

    @property
    def are_counted(self) -> bool:
        """Whether there is any limit besides the number of requests under way."""
        return any(getattr(self, item.name) is not None for item in fields(self) if item.name != "max_concurrent")

    @property
    def has_day(self) -> bool:
        return self.tokens_per_day is not None or self.budget_per_day is not None


class KeyLimits:
    """The counts of all keys. If they cannot be read, requests pass; the log and a metric say so."""

    def __init__(
        self,
        settings: LimitsSettings,
        counters: Counters,
        series: Series,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`patience` is in seconds; `clock` gives those since 1970: the same days for all who share the counts."""
        self._settings = settings
        self._counters = counters
        self._known: dict[str, Terms] = {}
        self._all = Terms.of(settings, Caller(""))
        self._down_until = 0.0
        self._patience = patience
        self.series = series
        self.clock = clock

    def terms(self, caller: Caller) -> Terms:
        if caller.key is None:
            return self._all
        terms = self._known.get(caller.key.name)
        if terms is None:
            terms = self._known[caller.key.name] = Terms.of(self._settings, caller)
        return terms

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float] | None:
        """Add to counts and return them; None if they cannot be reached."""
        return await self._counted(lambda: self._counters.add(amounts, ttl=ttl))

    async def read(self, keys: Collection[str]) -> Mapping[str, float] | None:
        """Return counts; None if they cannot be reached."""
        return await self._counted(lambda: self._counters.read(keys))

    async def _counted(self, ask: Callable[[], Awaitable[Mapping[str, float]]]) -> Mapping[str, float] | None:
        now = time.monotonic()
        cause = "paused"
        if now >= self._down_until:
            if self._down_until:  # one request probes the counts; no other waits for it
                self._down_until = now + self._patience + _PAUSE
            try:
                async with asyncio.timeout(self._patience):
                    counts = await ask()
                self._down_until = 0.0
                return counts
            except (StoreError, TimeoutError) as error:
                cause = error.cause if isinstance(error, StoreError) else "slow"
                self._down_until = time.monotonic() + _PAUSE
                _log.error("limits are not counted", extra={"fields": {"cause": cause}})
        self.series.unchecked.inc()
        return None

    async def refuse(self, error: RateLimited, reason: str, undo: Mapping[str, float]) -> RateLimited:
        """Count a refusal, and give back what the refused request had taken."""
        self.series.limited.of(reason).inc()
        if undo:
            await self.add(undo, ttl=_MINUTES_TTL)
        return error


class Admission:
    """What one request takes of its key's limits, from its first header to its last byte."""

    def __init__(self, limits: KeyLimits, caller: Caller) -> None:
        self._limits = limits
        self._terms = limits.terms(caller)
        self._account = caller.account
        self._reserved: tuple[str, Demand] | None = None
        self._day_reserved: Mapping[str, float] = {}
        self._call: Call | None = None
        self._usage: Usage | None = Usage()
        self._cost: float | None = None

    async def begin(self, headers: Headers, *, spends: bool = True) -> None:
        """Count the request. Raise `RateLimited` if the minute is full, or if the request `spends` and the day is
        used up."""
        terms = self._terms
        if terms.has_day and spends:
            await self._check_day(terms)
        if terms.requests_per_minute is not None:
            taken = await self._take("requests", 1, terms.requests_per_minute, headers)
            if taken is not None:
                raise taken

    async def reserve(self, call: Call, headers: Headers) -> None:
        """Reserve the estimated tokens of a call. Raise `RateLimited`, or `BadRequest` if it asks for more than the
        key ever may."""
        terms = self._terms
        check_caps(call, terms.max_output_tokens, terms.max_n)
        if terms.tokens_per_minute is None and not terms.has_day:
            return
        if self._reserved is not None:  # another model is tried: what was taken for the first one stands for it too
            self._call = call
            return
        demand = demand_of(call)
        minute, _ = divmod(self._limits.clock(), MINUTE)
        if terms.tokens_per_minute is not None:
            refused = await self._take("tokens", demand.total, terms.tokens_per_minute, headers)
            if refused is not None:
                raise refused
        if terms.has_day:
            try:
                await self._reserve_day(terms, call, demand)
            except RateLimited:
                if terms.tokens_per_minute is not None:
                    await self._limits.add({self._key("tokens", minute): -demand.total}, ttl=_MINUTES_TTL)
                raise
        self._reserved, self._call = (self._key("tokens", minute), demand), call

    def note(self, usage: Usage | None, cost: float | None) -> None:
        """Record the reported usage, and its `cost` in US dollars; None if nothing was used."""
        self._usage, self._cost = usage, cost

    def note_failure(self, used: Usage, cost: float | None) -> None:
        """Record that nothing was answered, and what was `used` all the same: by internal rounds before one failed."""
        if used.input is not None:
            self.note(used, cost)
        elif self._usage is None or self._usage.input is None:  # nor by a model that was asked before
            self.note(None, None)

    async def settle(self) -> None:
        """Count the recorded usage; if none was reported, the estimate stands."""
        if self._reserved is None or self._call is None:
            return
        key, demand = self._reserved
        usage, cost = self._usage, self._cost
        tokens = 0.0 if usage is None else demand.total
        if usage is None:
            cost = 0.0
        elif usage.input is not None:
            tokens = usage.input + (usage.output or 0)
        elif cost is None:
            cost = _price(self._call, demand)
        if self._terms.tokens_per_minute is not None and tokens != demand.total:
            await self._limits.add({key: tokens - demand.total}, ttl=_MINUTES_TTL)
        used = {self._day("tokens"): float(tokens), self._day("usd"): cost or 0.0} if tokens else {}
        released = {key: -amount for key, amount in self._day_reserved.items()}
        if self._terms.has_day and (used or released):
            await self._limits.add(used | released, ttl=_DAYS_TTL)

    async def _take(self, what: str, amount: float, limit: int, headers: Headers) -> RateLimited | None:
        """Take an amount from a minute's limit, and add headers that say what is left. Return the refusal if it does
        not fit."""
        minute, elapsed = divmod(self._limits.clock(), MINUTE)
        current, before = self._key(what, minute), self._key(what, minute - 1)
        if amount > limit:
            told = (
                f"Request too large: {amount:,.0f} {what} including the answer, but this key has {limit:,} per minute."
            )
            error = RateLimited(told, what, headers={"x-should-retry": "false"})
            return await self._limits.refuse(error, what, {})
        counts = await self._limits.add({current: amount, before: 0.0}, ttl=_MINUTES_TTL)
        if counts is None:
            return None
        window = Window(max(0.0, counts[before]), max(0.0, counts[current]), elapsed)
        refused = window.used > limit
        if refused:
            window = Window(window.before, max(0.0, window.current - amount), elapsed)
        told_headers = _told(what, window, limit)
        headers += [(name.encode(), value.encode()) for name, value in told_headers.items()]
        if not refused:
            return None
        message = f"Rate limit reached for {what} per minute: limit {limit:,}, used {window.used:,.0f}"
        message += f", requested {amount:,.0f}." if amount != 1 else "."
        wait = window.wait(amount, limit)
        error = RateLimited(f"{message} Try again in {duration(wait)}.", what, headers=retry_after(wait))
        return await self._limits.refuse(error, what, {current: -amount})

    async def _check_day(self, terms: Terms) -> None:
        tokens, usd = self._day("tokens"), self._day("usd")
        counts = await self._limits.add({tokens: 0.0, usd: 0.0}, ttl=_DAYS_TTL)
        if counts is None:
            return
        error = self._used_up(terms, counts[tokens], counts[usd])
        if error is not None:
            raise await self._limits.refuse(error, "budget", {})

    async def _reserve_day(self, terms: Terms, call: Call, demand: Demand) -> None:
        """Reserve the estimate of a call. Raise `RateLimited` if others have reserved what is left of the day, or if
        the day is used up."""
        hour, used = self._limits.clock() // _HOUR, {what: self._day(what) for what in ("tokens", "usd")}
        now, before = ({what: reserved_key(self._account, what, hour - ago) for what in used} for ago in (0, 1))
        own = {now["tokens"]: float(demand.total), now["usd"]: _price(call, demand)}
        counts = await self._limits.add(own | dict.fromkeys((*used.values(), *before.values()), 0.0), ttl=_DAYS_TTL)
        if counts is None:
            return
        self._day_reserved = own
        reserved = {what: max(0.0, counts[now[what]]) + max(0.0, counts[before[what]]) for what in used}
        is_alone = reserved["tokens"] <= demand.total
        limits = {"tokens": terms.tokens_per_day, "usd": terms.budget_per_day}
        fits = all(limit is None or counts[used[what]] + reserved[what] <= limit for what, limit in limits.items())
        error = self._used_up(terms, counts[used["tokens"]], counts[used["usd"]])
        if error is None and (fits or is_alone):
            return
        self._day_reserved = {}
        await self._limits.add({key: -amount for key, amount in own.items()}, ttl=_DAYS_TTL)
        told = "Requests under way have reserved what is left of this key's day. Try again in 1s."
        error = error or RateLimited(told, "tokens", headers=retry_after(1.0))
        raise await self._limits.refuse(error, "budget", {})

    def _used_up(self, terms: Terms, tokens: float, usd: float) -> RateLimited | None:
        """Return the error for a day that is used up."""
        spent = terms.budget_per_day is not None and usd >= terms.budget_per_day
        if not spent and not (terms.tokens_per_day is not None and tokens >= terms.tokens_per_day):
            return None
        told = "This key has used up its budget" if spent else "This key has used up its tokens"
        return RateLimited(
            f"{told} for today; the next day begins at 00:00 UTC.",
            "insufficient_quota",
            code="insufficient_quota",
            # a person may read when the day ends, but no SDK should wait until then
            headers={"x-should-retry": "false", **retry_after(DAY - self._limits.clock() % DAY)},
        )

    def _key(self, what: str, minute: float) -> str:
        return minute_key(self._account, what, minute)

    def _day(self, what: str) -> str:
        return day_key(self._account, what, self._limits.clock() // DAY)


def minute_key(account: str, what: str, minute: float) -> str:
    """Return the key of the count of an account's `requests` or `tokens` in a minute since 1970."""
    return f"{account}/{what}/minute/{minute:.0f}"


def day_key(account: str, what: str, day: float) -> str:
    """Return the key of the count of an account's `tokens` or `usd` on a day since 1970 (UTC)."""
    return f"{account}/{what}/day/{day:.0f}"


def reserved_key(account: str, what: str, hour: float) -> str:
    """Return the key of what requests that began in an hour since 1970 have reserved of an account's days."""
    return f"{account}/{what}/reserved/{hour:.0f}"


def _price(call: Call, demand: Demand) -> float:
    """Return the estimated cost of a call in US dollars."""
    if call.profile is None:
        return 0.0
    profile, prompt = call.profile, demand.prompt
    return money(profile.prices.at(prompt), reported_cost(profile.cache, prompt, 0, 0), demand.answer)


def _told(what: str, window: Window, limit: int) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{what}": str(limit),
        f"x-ratelimit-remaining-{what}": str(window.remaining(limit)),
        f"x-ratelimit-reset-{what}": duration(window.reset),
    }
