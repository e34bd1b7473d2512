"""Use of each key of Penstock: today, by model, for `GET /v1/usage`, and by day for operators.

It is added once a second to counters that all replicas share; what cannot be added is lost, and the log reports it.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from proxy.access.limits import DAY, PATIENCE
from proxy.models.usage import Usage
from proxy.state.store import Counters, StoreError, batches

FIGURES = ("requests", "without_usage", "input_tokens", "cached_tokens", "output_tokens", "usd")
"""Answered requests, those whose upstream reported no usage, tokens, US dollars."""
ALL = ""

_GATHER = 1.0
_TTL = 2 * DAY
_DAYS = 31
_FIGURES_BY_DAY = ("requests", "usd")
_BY_DAY = tuple(f"/{figure}/{ALL}" for figure in _FIGURES_BY_DAY)
_AT_ONCE = 256

_log = logging.getLogger("penstock.limits")


class Meter:
    """The use of all keys, by account."""

    def __init__(
        self, counters: Counters, *, patience: float = PATIENCE, clock: Callable[[], float] = time.time
    ) -> None:
        """Set up the meter; `patience` is in seconds, and `clock` returns seconds since 1970."""
        self._counters = counters
        self._patience = patience
        self._clock = clock
        self._waiting: defaultdict[str, float] = defaultdict(float)
        self._news, self._adding = asyncio.Event(), asyncio.Lock()
        self._has_failed = False

    @property
    def day(self) -> int:
        return int(self._clock() // DAY)

    def note(self, account: str, model: str, answers: Sequence[Usage], usd: float | None) -> None:
        """Count a request: its answers' usage and cost. `model` is a configured entry, of which there are few."""
        used: dict[str, float] = {
            "requests": 1,
            "without_usage": any(each.input is None for each in answers),
            "input_tokens": sum(each.input or 0 for each in answers),
            "cached_tokens": sum(each.cached or 0 for each in answers),
            "output_tokens": sum(each.output or 0 for each in answers),
            "usd": usd or 0.0,
        }
        day = self.day
        for figure, amount in used.items():
            if amount:
                for name in (ALL, model):
                    self._waiting[_key(account, day, figure, name)] += amount
        self._news.set()

    async def today(self, account: str, models: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the figures of an account, for `ALL` and each model that it used. Raise `StoreError`."""
        await self._add()
        day = self.day
        keys = {(model, figure): _key(account, day, figure, model) for model in (ALL, *models) for figure in FIGURES}
        async with asyncio.timeout(self._patience):
            counts = await self._counters.read(tuple(keys.values()))
        used: dict[str, dict[str, float]] = {}
        for (model, figure), key in keys.items():
            used.setdefault(model, {})[figure] = counts[key]
        return {model: figures for model, figures in used.items() if model == ALL or any(figures.values())}

    async def days(self, accounts: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the use on each day of the last month that had any. Raise `StoreError` or `TimeoutError`."""
        await self._add()
        days, used = range(self.day - _DAYS + 1, self.day + 1), dict[str, list[dict[str, Any]]]()
        for account in accounts:
            keys = [(day, [_key(account, day, figure, ALL) for figure in _FIGURES_BY_DAY]) for day in days]
            async with asyncio.timeout(self._patience):
                counts = await self._counters.read([key for _, names in keys for key in names])
            rows = ((day, *(counts[key] for key in names)) for day, names in keys)
            used[account] = [
                {"day": f"{datetime.fromtimestamp(day * DAY, UTC):%Y-%m-%d}", "requests": round(requests), "usd": usd}
                for day, requests, usd in rows
                if requests
            ]
        return used

    async def share(self) -> None:
        """Write recorded use to the shared counters, until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(_GATHER)
            self._news.clear()
            await self._add()

    async def aclose(self) -> None:
        await self._add()

    async def _add(self) -> None:
        async with self._adding:
            waiting, self._waiting = self._waiting, defaultdict(float)
            lasting = {key: waiting.pop(key) for key in [*waiting] if key.endswith(_BY_DAY)}
            try:
                async with asyncio.timeout(self._patience):
                    for amounts, ttl in ((waiting, _TTL), (lasting, (_DAYS + 1) * DAY)):
                        for batch in batches(amounts.items(), _AT_ONCE):
                            await self._counters.add(dict(batch), ttl=ttl)
            except (StoreError, TimeoutError) as error:
                # no retry: after a timeout the amounts may have been added
                if not self._has_failed:
                    cause = error.cause if isinstance(error, StoreError) else "slow"
                    _log.error("use of keys is not counted", extra={"fields": {"cause": cause}})
                self._has_failed = True
            else:
                self._has_failed = self._has_failed and not (waiting or lasting)


def _key(account: str, day: int, figure: str, model: str) -> str:
    return f"{account}/used/{day}/{figure}/{model}"
