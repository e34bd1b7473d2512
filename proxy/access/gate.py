"""Admission: identify the caller by the headers, and take a place for the request, before the body is read."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from proxy.access.callers import Caller, Callers, without_account, without_secrets
from proxy.access.exchange import Exchange
from proxy.access.limits import Admission, KeyLimits, Terms
from proxy.access.metering import Meter
from proxy.chat.errors import Overloaded, RateLimited
from proxy.config.access_settings import Allowance, KeysAuth
from proxy.config.settings import Settings
from proxy.http.headers import retry_after
from proxy.telemetry.observation import Observation

_SOON = retry_after(1.0)
"""A guess: when a place will be free again is unknown."""

Handler = Callable[[Exchange, Observation], Awaitable[None]]


class Places:
    """The requests under way, in all and per account. They outlive a configuration."""

    def __init__(self) -> None:
        self.taken = 0
        self.of_each: dict[str, int] = {}

    def leave(self, account: str) -> None:
        """Count a request of an account as over."""
        self.taken -= 1
        left = self.of_each[account] - 1
        if left:
            self.of_each[account] = left
        else:
            del self.of_each[account]


class Gate:
    """Admits requests, each for one caller, up to the limits of concurrency."""

    def __init__(
        self, settings: Settings, limits: KeyLimits, places: Places | None = None, meter: Meter | None = None
    ) -> None:
        """`meter` counts what keys of Penstock use."""
        self._callers = Callers(settings.auth)
        self._meter = meter
        self._limits = limits
        self._most = settings.limits.max_concurrent
        self._places = places or Places()

    async def serve(self, handler: Handler, http: Exchange, seen: Observation, *, spends: bool = True) -> None:
        """Handle one exchange for its caller. Raise `Unauthorized`, `RateLimited` or `Overloaded`.

        A request that `spends` nothing is admitted even if the day's limit is used up.
        """
        caller = self._callers.of(http.headers)
        http.caller = caller
        seen.called_by(caller.tenant, caller.key.name if caller.key is not None else None)
        if caller.key is not None:
            # the key has done its work: from here on nothing can forward it
            http.headers, http.query = without_account(http.headers), without_secrets(http.query)
        try:
            await self._admitted(caller, handler, http, seen, spends=spends)
        finally:
            if self._meter is not None and caller.key is not None and seen.answers:
                self._meter.note(caller.account, seen.entry, seen.answers, seen.cost)

    async def _admitted(
        self, caller: Caller, handler: Handler, http: Exchange, seen: Observation, *, spends: bool
    ) -> None:
        terms = self._limits.terms(caller)
        if not terms.are_counted:
            with self._place(caller, terms):
                await handler(http, seen)
            return
        admission = Admission(self._limits, caller)
        try:
            # the place is free before the use is counted: its client may come again as soon as it has its answer
            with self._place(caller, terms):
                await admission.begin(http.own_headers, spends=spends)
                http.admission = admission
                await handler(http, seen)
        finally:
            await admission.settle()

    @contextmanager
    def _place(self, caller: Caller, terms: Terms) -> Iterator[None]:
        if self._most is not None and self._places.taken >= self._most:
            self._limits.series.limited.of("overload").inc()
            raise Overloaded("Penstock has too many requests under way. Try again soon.", headers=_SOON)
        account, most = caller.account, terms.max_concurrent
        mine = self._places.of_each.get(account, 0)
        if most is not None and mine >= most:
            self._limits.series.limited.of("concurrency").inc()
            told = f"Rate limit reached for requests at the same time: limit {most:,}."
            raise RateLimited(told, "requests", headers=_SOON)
        self._places.taken += 1
        self._places.of_each[account] = mine + 1
        try:
            yield
        finally:
            self._places.leave(account)


def is_needed(settings: Settings) -> bool:
    """Return whether the settings have keys or limits; without them no gate is needed."""
    limits = settings.limits
    places = limits.max_concurrent is not None or limits.max_concurrent_per_key is not None
    return (
        places
        or isinstance(settings.auth, KeysAuth)
        or any(getattr(limits, name) is not None for name in Allowance.model_fields)
    )
