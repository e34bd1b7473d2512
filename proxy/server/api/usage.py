"""`/v1/usage`: what a key of Penstock used today, and what is left of its limits."""

from collections.abc import Mapping
from datetime import UTC, datetime

from proxy.access.callers import Caller
from proxy.access.exchange import Exchange
from proxy.access.limits import DAY, MINUTE, KeyLimits, Window, count_key
from proxy.access.metering import ALL, Meter
from proxy.chat.errors import Overloaded
from proxy.config.settings import Settings
from proxy.http.headers import retry_after
from proxy.state.store import StoreError

_MINUTES = {"requests_per_minute": "requests", "tokens_per_minute": "tokens"}
_DAYS = {"tokens_per_day": "tokens", "budget_per_day": "usd"}


class UsageApi:
    """The endpoint by which each key sees its own usage; nothing of it reaches an upstream."""

    def __init__(self, settings: Settings, limits: KeyLimits, meter: Meter) -> None:
        self._models = tuple(dict.fromkeys(name for entry in settings.models for name in entry.match))
        self._limits = limits
        self._meter = meter

    async def report(self, http: Exchange) -> Mapping[str, object]:
        """`GET /v1/usage`, for the key that it came with."""
        if http.caller is None:
            raise TypeError("there is no such path where clients have no key of Penstock")
        caller = http.caller
        now = self._limits.clock()
        limits = await self._remaining(caller, now)
        try:
            used = await self._meter.today(caller.account, self._models)
        except (StoreError, TimeoutError):
            used = None
        if limits is None or used is None:
            raise Overloaded(
                "usage is not known right now; try again soon", code="usage_unavailable", headers=retry_after(1.0)
            )
        return {
            "object": "usage",
            "key": None if caller.key is None else caller.key.name,
            "day": f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d}",
            "used": _rounded(used.pop(ALL)),
            "models": {name: _rounded(figures) for name, figures in used.items()},
            "limits": limits,
        }

    async def _remaining(self, caller: Caller, now: float) -> dict[str, dict[str, float]] | None:
        """Return each limit of a caller: `limit`, and if it is counted `remaining` and `resets_after` (seconds)."""
        terms, account = self._limits.terms(caller), caller.account
        limits = terms.model_dump()
        minute, elapsed = divmod(now, MINUTE)
        minutes = {
            name: (count_key(account, what, "minute", minute - 1), count_key(account, what, "minute", minute))
            for name, what in _MINUTES.items()
        }
        days = {name: count_key(account, what, "day", now // DAY) for name, what in _DAYS.items()}
        counts = await self._limits.read([key for pair in minutes.values() for key in pair] + [*days.values()])
        if counts is None:
            return None
        result = {name: {"limit": limit} for name, limit in limits.items() if limit is not None}
        for name in result.keys() & minutes.keys():
            before, current = (max(0.0, counts[key]) for key in minutes[name])
            window = Window(before, current, elapsed)
            result[name] |= {"remaining": window.remaining(limits[name]), "resets_after": round(window.reset, 3)}
        for name in result.keys() & days.keys():
            remaining = round(max(0.0, limits[name] - counts[days[name]]), 9)
            result[name] |= {"remaining": remaining, "resets_after": round(DAY - now % DAY, 3)}
        return result


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Return tokens and requests as whole numbers, dollars to nine places."""
    return {name: round(value, 9) if name == "usd" else round(value) for name, value in figures.items()}
