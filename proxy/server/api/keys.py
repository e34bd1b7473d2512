"""`/admin/keys`: the keys of Penstock, their use by day, and their making and revocation in the file of keys."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proxy.access.callers import Caller
from proxy.access.limits import DAY, Terms
from proxy.access.metering import Meter
from proxy.chat.errors import BadRequest, ConfigError, NotFound, Rejected
from proxy.config.keys_file import add_entry, entry_of, hash_of, names_in, new_key, remove_entry
from proxy.config.settings import BYPASS, KeysAuth, KeySettings
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
        """`GET /admin/keys`: the keys with their limits and their use."""
        settings = self._reloading.settings
        auth = settings.auth
        if not isinstance(auth, KeysAuth):
            return {"kind": auth.kind, "keys": [], "locked": "clients have keys of upstreams"}
        listed, locked = set[str](), None
        try:
            listed = await asyncio.to_thread(names_in, self._file())
        except (Rejected, ConfigError) as error:
            locked = str(error)
        callers = [Caller(tenant_named(key.tenant or key.name), key) for key in auth.keys]
        try:
            used = await self._meter.days(caller.account for caller in callers)
        except (StoreError, TimeoutError):
            used = None
        today = f"{datetime.fromtimestamp(self._meter.day * DAY, UTC):%Y-%m-%d}"
        return {
            "kind": auth.kind,
            "locked": locked,
            "today": today,
            "keys": [
                {
                    **key.model_dump(mode="json", include={"name", "models", "chains", "expires"}),
                    "tenant": key.tenant or key.name,
                    "tenant_id": caller.tenant,
                    "limits": Terms.of(settings.limits, caller).model_dump(),
                    "revocable": key.name in listed,
                    "used": None if used is None else _summed(used[caller.account], today),
                }
                for key, caller in zip(auth.keys, callers, strict=True)
            ],
        }

    async def make(self, request: Request) -> Response:
        """`POST /admin/keys`: make a key with these settings, and return it."""
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
        """`DELETE /admin/keys/{name}`: remove a key from its file."""
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
