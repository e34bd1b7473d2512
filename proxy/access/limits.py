"""Limits of each key: requests and tokens per minute, tokens and money per day.

A request is counted before its body is read, and reserves an estimate of its tokens, which the reported usage replaces.
Concurrent requests together reserve no more than the rest of the day; one alone may exceed it, to use the whole day.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, NamedTuple

from proxy.access.callers import Caller
from proxy.chat.errors import BadRequest, RateLimited
from proxy.chat.parse import Body
from proxy.config.settings import Allowance, LimitsSettings
from proxy.http.headers import Headers, retry_after
from proxy.models.usage import Usage
from proxy.state.store import Counters, StoreError
from proxy.telemetry.metrics import Metrics
from proxy.upstreams.base import Call

BYTES_PER_TOKEN = 4
FILE_TOKENS = 1000
"""Tokens assumed for an image, a sound or a file in a prompt that was not counted."""

_FILES = (b";base64,", b'"data":"')

_OUTPUT = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_ANSWERS = ("n", "best_of")
_BOUNDS = frozenset({*_OUTPUT, *_ANSWERS, "options"})


class Demand(NamedTuple):
    """The estimated tokens of a request."""

    prompt: int
    answer: int

    @property
    def total(self) -> int:
        return self.prompt + self.answer


def demand_of(call: Call) -> Demand:
    """Estimate a call's prompt, by four bytes a token if it was not counted, and the longest answers that it allows."""
    fields = _fields(call)
    if fields is None:
        return Demand(0, 0)  # a form with a file: its size says nothing about tokens
    prompt = call.counted.total if call.counted is not None else _weight(call.body) // BYTES_PER_TOKEN
    usual = call.profile.reserve if call.profile is not None else 0
    return Demand(prompt, _most(fields, _OUTPUT, usual) * _most(fields, _ANSWERS, 1))


def check_caps(call: Call, max_output_tokens: int | None, max_n: int | None) -> None:
    """Raise `BadRequest` if a call asks for longer answers, or for more answers, than allowed."""
    if max_output_tokens is None and max_n is None:
        return
    fields = _fields(call) or {}
    for names, most in ((_OUTPUT, max_output_tokens), (_ANSWERS, max_n)):
        for name in names:
            _check(name, fields.get(name), most)
    options = fields.get("options")  # Ollama's own
    if isinstance(options, Mapping):
        _check("options.num_predict", options.get("num_predict"), max_output_tokens, least=0)


def _check(name: str, value: Any, most: int | None, *, least: float = float("-inf")) -> None:
    if most is None or value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        # a lenient upstream might accept it as a number
        raise BadRequest(f"{name} must be an integer", param=name, code="invalid_type")
    if value > most or value < least:
        message = f"{name} is {value}, but this key may ask for at most {most}"
        raise BadRequest(message, param=name, code="integer_above_max_value")


def _fields(call: Call) -> Mapping[str, Any] | None:
    """Return the fields of a JSON body that bound its answers, in lower case, because some servers ignore case."""
    if call.request is not None:
        fields: Mapping[str, Any] = call.request.rest
    elif call.body.lstrip()[:1] == b"{":
        fields = Body(call.body).rest()
    else:
        return None
    return {name.casefold(): fields[name] for name in fields if name.casefold() in _BOUNDS}


def _most(fields: Mapping[str, Any], names: Iterable[str], otherwise: int) -> int:
    values = [fields.get(name) for name in names]
    return max((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), default=otherwise)


def _weight(body: bytes) -> int:
    """Return the size of a body in bytes, with each file in it reduced to the size of `FILE_TOKENS`."""
    size = len(body)
    for mark in _FILES:
        begin = body.find(mark)
        while begin >= 0:
            end = body.find(b'"', begin + len(mark))
            end = len(body) if end < 0 else end
            size -= max(0, end - begin - FILE_TOKENS * BYTES_PER_TOKEN)
            begin = body.find(mark, end)
    return max(0, size)


MINUTE = 60.0


class Window(NamedTuple):
    """The counts at a moment."""

    before: float
    current: float
    elapsed: float

    @property
    def used(self) -> float:
        """Count of the last sixty seconds."""
        return self.current + self.before * (1 - self.elapsed / MINUTE)

    def remaining(self, limit: int) -> int:
        return max(0, math.floor(limit - self.used))

    @property
    def reset(self) -> float:
        """Seconds until the count is zero, if no request follows."""
        if self.current > 0:
            return 2 * MINUTE - self.elapsed
        return MINUTE - self.elapsed if self.before > 0 else 0.0

    def wait(self, need: float, limit: int) -> float:
        """Return the seconds until `need`, at most the limit, fits under the limit if no request follows."""
        room = limit - need - self.current
        if room >= self.before:
            return 0.0
        if room >= 0:
            return max(0.0, MINUTE * (1 - room / self.before) - self.elapsed)
        return MINUTE - self.elapsed + MINUTE * (1 - (limit - need) / self.current)


def duration(seconds: float) -> str:
    """Return a duration in the format of OpenAI's headers: `120ms`, `6.5s`, `1m30s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds * 10) / 10, MINUTE)
    return (f"{minutes:.0f}m" if minutes else "") + f"{rest:g}s"


_MINUTES_TTL = 3 * MINUTE
DAY = 86400.0
_DAYS_TTL = 2 * DAY
_HOUR = 3600.0
"""Seconds of a reservation's bucket: the reservations of a killed process count for one to two of them."""
_UNITS = ("tokens", "usd")
PATIENCE = 2.0
"""Timeout of the counters in seconds; after it the request passes uncounted."""
_PAUSE = 1.0

_log = logging.getLogger("penstock.limits")


class Terms(Allowance):
    """The limits of one key; None means no limit."""

    max_concurrent: int | None = None

    @classmethod
    def of(cls, settings: LimitsSettings, caller: Caller) -> "Terms":
        """Return the limits of a caller: those of its key, with the common ones as defaults."""
        common = {name: getattr(settings, name) for name in Allowance.model_fields}
        common["max_concurrent"] = settings.max_concurrent_per_key
        own = {name: getattr(caller.key, name) for name in common} if caller.key is not None else {}
        return cls.model_construct(**common | {name: value for name, value in own.items() if value is not None})

    @cached_property
    def of_day(self) -> dict[str, float]:
        limits = {"tokens": self.tokens_per_day, "usd": self.budget_per_day}
        return {unit: limit for unit, limit in limits.items() if limit is not None}


class KeyLimits:
    """The counts of all keys. If the counters fail, requests pass; the log and a metric report it."""

    def __init__(
        self,
        settings: LimitsSettings,
        counters: Counters,
        metrics: Metrics,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set up the counts; `patience` is in seconds, and `clock` returns seconds since 1970."""
        self._counters, self._patience = counters, patience
        self._down_until = 0.0
        self.terms = lru_cache(10_000)(partial(Terms.of, settings))
        """The limits of a caller."""
        self.metrics, self.clock = metrics, clock

    async def add(self, amounts: Mapping[str, float], *, ttl: float) -> Mapping[str, float] | None:
        """Add to counts and return the sums; None if the counters fail."""
        return await self._guarded(lambda: self._counters.add(amounts, ttl=ttl)) if amounts else {}

    async def read(self, keys: Collection[str]) -> Mapping[str, float] | None:
        """Return counts; None if the counters fail."""
        return await self._guarded(lambda: self._counters.read(keys))

    async def _guarded(self, ask: Callable[[], Awaitable[Mapping[str, float]]]) -> Mapping[str, float] | None:
        now = time.monotonic()
        if now >= self._down_until:
            if self._down_until:  # this request is the probe, and no other waits meanwhile
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
        self.metrics.of("limits_unchecked").inc()
        return None


class Admission:
    """The account of one request with the limits of its key."""

    _call: Call | None = None
    _demand = Demand(0, 0)
    _usage: Usage | None = Usage()
    _cost: float | None = None

    def __init__(self, limits: KeyLimits, caller: Caller) -> None:
        self._limits, self._account = limits, caller.account
        self.terms = limits.terms(caller)
        self._minute: dict[str, float] = {}
        """Amounts that the request has taken of its minute."""
        self._day: dict[str, float] = {}
        """Amounts that it has reserved of the day."""

    async def begin(self, headers: Headers, *, spends: bool = True) -> None:
        """Count the request. Raise `RateLimited` if the minute is full, or if it `spends` and the day is used up."""
        if spends and self.terms.of_day:
            used = self._of_day()
            counts = await self._limits.add(dict.fromkeys(used.values(), 0.0), ttl=_DAYS_TTL)
            if counts is not None and (error := self._used_up({unit: counts[key] for unit, key in used.items()})):
                raise await self._refused(error, "budget")
        if self.terms.requests_per_minute is not None:
            await self._take("requests", 1, self.terms.requests_per_minute, headers)

    async def reserve(self, call: Call, headers: Headers) -> None:
        """Reserve a call's estimated tokens. Raise `RateLimited`, or `BadRequest` if it asks for more than allowed."""
        terms = self.terms
        check_caps(call, terms.max_output_tokens, terms.max_n)
        if terms.tokens_per_minute is None and not terms.of_day:
            return
        if self._call is None:  # for a fallback model, the reservation for the first one stands
            self._demand = demand_of(call)
            if terms.tokens_per_minute is not None:
                self._minute = await self._take("tokens", self._demand.total, terms.tokens_per_minute, headers)
            if terms.of_day:
                await self._reserve_day({"tokens": float(self._demand.total), "usd": _price(call, self._demand)})
        self._call = call

    def note(self, usage: Usage | None, cost: float | None) -> None:
        """Record the reported usage and its cost in US dollars; None if nothing was used."""
        self._usage, self._cost = usage, cost

    def note_failure(self, used: Usage, cost: float | None) -> None:
        """Record that the request failed; `used` is the usage of internal rounds before the failure."""
        if used.input is not None:
            self.note(used, cost)
        elif self._usage is None or self._usage.input is None:  # an earlier model used nothing either
            self.note(None, None)

    async def settle(self) -> None:
        """Replace the estimate by the recorded usage, if any was reported."""
        if self._call is None:
            return
        usage, tokens, cost = self._usage, float(self._demand.total), self._cost or 0.0
        if usage is None:
            tokens = cost = 0.0
        elif usage.input is not None:
            tokens = float(usage.input + (usage.output or 0))
        elif self._cost is None:
            cost = _price(self._call, self._demand)
        corrected = {key: tokens - taken for key, taken in self._minute.items() if tokens != taken}
        await self._limits.add(corrected, ttl=_MINUTES_TTL)
        if self.terms.of_day:
            used = dict(zip(self._of_day().values(), (tokens, cost), strict=True)) if tokens else {}
            await self._limits.add(used | _negative(self._day), ttl=_DAYS_TTL)

    async def _take(self, kind: str, amount: float, limit: int, headers: Headers) -> dict[str, float]:
        """Take `requests` or `tokens` from the minute, add the headers of its limit, and return what was taken."""
        minute, elapsed = divmod(self._limits.clock(), MINUTE)
        if amount > limit:
            message = (
                f"Request too large: {amount:,.0f} {kind} including the answer, but this key has {limit:,} per minute."
            )
            error = RateLimited(message, kind=kind, headers={"x-should-retry": "false"})
            raise await self._refused(error, kind)
        current, before = (count_key(self._account, kind, "minute", each) for each in (minute, minute - 1))
        counts = await self._limits.add({current: amount, before: 0.0}, ttl=_MINUTES_TTL)
        if counts is None:
            return {current: 0.0}
        window = Window(max(0.0, counts[before]), max(0.0, counts[current]), elapsed)
        refused = window.used > limit
        if refused:
            window = Window(window.before, max(0.0, window.current - amount), elapsed)
        figures = {"limit": str(limit), "remaining": str(window.remaining(limit)), "reset": duration(window.reset)}
        headers += [(f"x-ratelimit-{name}-{kind}".encode(), value.encode()) for name, value in figures.items()]
        if not refused:
            return {current: amount}
        message = f"Rate limit reached for {kind} per minute: limit {limit:,}, used {window.used:,.0f}"
        message += f", requested {amount:,.0f}." if amount != 1 else "."
        wait = window.wait(amount, limit)
        error = RateLimited(f"{message} Try again in {duration(wait)}.", kind=kind, headers=retry_after(wait))
        self._minute = {current: amount}
        raise await self._refused(error, kind)

    async def _reserve_day(self, own: Mapping[str, float]) -> None:
        """Reserve an estimate. Raise `RateLimited` if the day is used up, or its rest is reserved."""
        hour, used = self._limits.clock() // _HOUR, self._of_day()
        now, before = (
            {unit: count_key(self._account, unit, "reserved", hour - ago) for unit in _UNITS} for ago in (0, 1)
        )
        self._day = {now[unit]: own[unit] for unit in _UNITS}
        others = dict.fromkeys((*used.values(), *before.values()), 0.0)
        counts = await self._limits.add(self._day | others, ttl=_DAYS_TTL)
        if counts is None:
            self._day = {}
            return
        reserved = {unit: max(0.0, counts[now[unit]]) + max(0.0, counts[before[unit]]) for unit in _UNITS}
        is_alone = reserved["tokens"] <= own["tokens"]
        fits = all(counts[used[unit]] + reserved[unit] <= limit for unit, limit in self.terms.of_day.items())
        error = self._used_up({unit: counts[key] for unit, key in used.items()})
        if error is None and (fits or is_alone):
            return
        message = "Requests under way have reserved what is left of this key's day. Try again in 1s."
        error = error or RateLimited(message, kind="tokens", headers=retry_after(1.0))
        raise await self._refused(error, "budget")

    async def _refused(self, error: RateLimited, reason: str) -> RateLimited:
        """Count a refusal, and give back what the request has taken."""
        self._limits.metrics.of("limited_requests", reason).inc()
        await self._limits.add(_negative(self._day), ttl=_DAYS_TTL)
        await self._limits.add(_negative(self._minute), ttl=_MINUTES_TTL)
        self._day, self._minute = {}, {}
        return error

    def _used_up(self, used: Mapping[str, float]) -> RateLimited | None:
        spent = [unit for unit, limit in self.terms.of_day.items() if used[unit] >= limit]
        if not spent:
            return None
        return RateLimited(
            f"This key has used up its {'budget' if 'usd' in spent else 'tokens'} for today; "
            "the next day begins at 00:00 UTC.",
            kind="insufficient_quota",
            code="insufficient_quota",
            # the time until tomorrow is for people; no SDK should wait so long
            headers={"x-should-retry": "false", **retry_after(DAY - self._limits.clock() % DAY)},
        )

    def _of_day(self) -> dict[str, str]:
        return {unit: count_key(self._account, unit, "day", self._limits.clock() // DAY) for unit in _UNITS}


def count_key(account: str, unit: str, span: Literal["minute", "day", "reserved"], number: float) -> str:
    """Return the key of an account's count; `number` is the minute or day since 1970 (UTC), of `reserved` the hour."""
    return f"{account}/{unit}/{span}/{number:.0f}"


def _negative(amounts: Mapping[str, float]) -> dict[str, float]:
    return {key: -amount for key, amount in amounts.items()}


def _price(call: Call, demand: Demand) -> float:
    if call.profile is None:
        return 0.0
    return call.profile.prices.usd(demand.prompt, demand.prompt, demand.answer)
