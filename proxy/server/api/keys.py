"""Keys of Penstock: `/admin/keys`, which makes and revokes them in their file, and `/v1/usage` for each key itself."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from proxy.access.callers import Caller
from proxy.access.exchange import Exchange
from proxy.access.limits import DAY, MINUTE, KeyLimits, Terms, Window, count_key
from proxy.access.metering import ALL, Meter
from proxy.chat.errors import BadRequest, ConfigError, NotFound, Overloaded, Rejected
from proxy.config.keys_file import add_entry, entry_of, hash_of, names_in, new_key, remove_entry
from proxy.config.settings import BYPASS, KeysAuth, KeySettings, Settings
from proxy.http.headers import retry_after
from proxy.identity import tenant_named
from proxy.server.api.endpoint import answered, json_object, valid
from proxy.server.reload import Reloading
from proxy.state.store import StoreError
from proxy.state.workers import Peers

_log = logging.getLogger("penstock.config")


class KeysApi:
    """The keys of the configuration in force. Secrets and their hashes are never shown, but for a new key, once."""

    def __init__(self, reloading: Reloading, meter: Meter, peers: Peers) -> None:
        self._reloading, self._meter, self._peers = reloading, meter, peers

    async def get(self, request: Request) -> dict[str, Any]:
        settings = self._reloading.settings
        auth = settings.auth
        if not isinstance(auth, KeysAuth):
            return {"kind": auth.kind, "keys": [], "locked": "clients have keys of upstreams"}
        listed, locked, used = set[str](), None, None
        try:
            listed = await asyncio.to_thread(names_in, self._file())
        except (Rejected, ConfigError) as error:
            locked = str(error)
        callers = [Caller(tenant_named(key.tenant or key.name), key) for key in auth.keys]
        with suppress(StoreError, TimeoutError):
            used = await self._meter.days(caller.account for caller in callers)
        today = f"{datetime.fromtimestamp(self._meter.day * DAY, UTC):%Y-%m-%d}"
        keys = [
            {
                **key.model_dump(mode="json", include={"name", "models", "chains", "expires"}),
                "tenant": key.tenant or key.name,
                "tenant_id": caller.tenant,
                "limits": Terms.of(settings.limits, caller).model_dump(),
                "revocable": key.name in listed,
                "used": None if used is None else _summed(used[caller.account], today),
            }
            for key, caller in zip(auth.keys, callers, strict=True)
        ]
        return {"kind": auth.kind, "locked": locked, "today": today, "keys": keys}

    async def make(self, request: Request) -> Response:
        fields = await json_object(request)
        path, key, settings = self._file(), new_key(), self._reloading.settings
        values = {name: value for name, value in fields.items() if name != "name" and value is not None}
        if "hash" in values:
            raise _wrong("hash", "Penstock makes the key itself")
        if not json.dumps(values, ensure_ascii=False).isprintable():
            raise _wrong("tenant", "a name has printable characters only")
        wanted = valid(KeySettings, {**fields, "hash": hash_of(key)})
        if isinstance(settings.auth, KeysAuth) and wanted.name in {each.name for each in settings.auth.keys}:
            raise _wrong("name", f"a key is called {wanted.name!r} already")
        if unknown := {*(wanted.chains or ())} - {*settings.chains, BYPASS}:
            raise _wrong("chains", f"there is no {min(unknown)!r}")
        await self._change(partial(add_entry, path, wanted.name, entry_of(wanted.name, key, **values)))
        _log.info("key made", extra={"fields": {"key": wanted.name}})
        return answered({"object": "key", "name": wanted.name, "key": key, "in_force": await self._is_in_force()}, 201)

    async def revoke(self, request: Request) -> dict[str, Any]:
        name = request.path_params["name"]
        if not await self._change(partial(remove_entry, self._file(), name)):
            told = f"the file of keys has no key {name[:64]!r}; one in the configuration itself is removed there"
            raise NotFound(told, code="unknown_key")
        _log.info("key revoked", extra={"fields": {"key": name}})
        return {"object": "key.revoked", "name": name, "in_force": await self._is_in_force()}

    async def _is_in_force(self) -> bool:
        return all(each["outcome"] != "refused" for each in await self._peers.ask_all("reload"))

    def _file(self) -> Path:
        """Return the file of keys. Raise `Rejected` where an operator may not change it here."""
        config = self._reloading.current.config
        server, auth = config.settings.server, config.settings.auth
        if server.admin_key is None:
            raise Rejected("only an operator with server.admin_key changes keys", code="admin_key_needed", status=403)
        if not isinstance(auth, KeysAuth) or auth.file is None:
            message = "keys are changed here where auth.file names a file of keys"
            raise Rejected(message, code="no_file_of_keys", status=409)
        return config.path.parent / Path(auth.file).expanduser()

    async def _change(self, change: Callable[[], bool]) -> bool:
        try:
            return await asyncio.to_thread(change)
        except ConfigError as error:
            raise Rejected(str(error), code="keys_not_changed", status=409) from None


def _wrong(name: str, message: str) -> BadRequest:
    return BadRequest(f"{name}: {message}", param=name, code="invalid_value")


def _summed(days: list[dict[str, Any]], today: str) -> dict[str, Any]:
    month = [each for each in days if each["day"][:7] == today[:7]]
    return {
        "today": sum(each["usd"] for each in days if each["day"] == today),
        "month": sum(each["usd"] for each in month),
        "last": days[-1]["day"] if days else None,
        "days": days,
    }


_COUNTED: Mapping[str, tuple[str, Literal["minute", "day"]]] = {
    "requests_per_minute": ("requests", "minute"),
    "tokens_per_minute": ("tokens", "minute"),
    "tokens_per_day": ("tokens", "day"),
    "budget_per_day": ("usd", "day"),
}
"""The figure that each limit is about, and the time for which it is counted."""


class UsageApi:
    """The endpoint by which each key sees its own usage; nothing of it reaches an upstream."""

    def __init__(self, settings: Settings, limits: KeyLimits, meter: Meter) -> None:
        self._models = tuple(dict.fromkeys(name for entry in settings.models for name in entry.match))
        self._limits = limits
        self._meter = meter

    async def report(self, http: Exchange) -> Mapping[str, object]:
        caller, now, used = http.caller, self._limits.clock(), None
        limits = await self._remaining(caller, now)
        with suppress(StoreError, TimeoutError):
            used = await self._meter.today(caller.account, self._models)
        if limits is None or used is None:
            told = "usage is not known right now; try again soon"
            raise Overloaded(told, code="usage_unavailable", headers=retry_after(1.0))
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
        minute, elapsed = divmod(now, MINUTE)
        times = {"minute": (minute - 1, minute), "day": (now // DAY,)}
        keys = {
            name: [count_key(caller.account, figure, unit, time) for time in times[unit]]
            for name, (figure, unit) in _COUNTED.items()
        }
        counts = await self._limits.read([*chain.from_iterable(keys.values())])
        if counts is None:
            return None
        result: dict[str, dict[str, float]] = {}
        for name, limit in self._limits.terms(caller).model_dump(exclude_none=True).items():
            result[name] = {"limit": limit}
            match [max(0.0, counts[key]) for key in keys.get(name, ())]:
                case [before, current]:
                    window = Window(before, current, elapsed)
                    result[name] |= {"remaining": window.remaining(limit), "resets_after": round(window.reset, 3)}
                case [used]:
                    remaining = round(max(0.0, limit - used), 9)
                    result[name] |= {"remaining": remaining, "resets_after": round(DAY - now % DAY, 3)}
        return result


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 9) if name == "usd" else round(value) for name, value in figures.items()}
