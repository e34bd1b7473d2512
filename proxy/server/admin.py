"""Endpoints for operators: configuration, reload, recent requests, deletion of a tenant, and the page over them."""

import asyncio
import hmac
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import proxy
from proxy.access.browsers import Browsers, is_loopback
from proxy.access.metering import Meter
from proxy.chat.errors import Unauthorized
from proxy.config.document import items_of, literal_parts, with_masks
from proxy.config.load import check
from proxy.config.settings import KeysAuth, Settings
from proxy.server.api.endpoint import JsonFields, answered, json_object, read_body, valid
from proxy.server.api.erase import Forgetting
from proxy.server.api.keys import KeysApi
from proxy.server.api.replays import ReplaysApi
from proxy.server.api.requests import RecordsApi
from proxy.server.reload import Reloading
from proxy.state.workers import Peers, Question
from proxy.telemetry.metrics import Metrics

_NOT_OPERATORS = ("authorization", "x-api-key", "api-key", "forwarded", "via", "x-real-ip", "x-forwarded-")
"""Beginnings of the headers of clients' keys, and of those by which a proxy in front says that it is one."""

Handler = Callable[[Request], Awaitable[Any]]

_FOLDER = Path(proxy.__file__).parent / "data" / "ui"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_FILES = {path.name: path for path in _FOLDER.iterdir() if path.suffix in _TYPES}

_HEADERS = {
    # Trusted Types: a browser that knows them makes no element from a string
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class _Checked(JsonFields):
    yaml: str


class Admin:
    """`/metrics`, `/admin` and `/ui`."""

    def __init__(
        self,
        reloading: Reloading,
        records: RecordsApi,
        peers: Peers,
        metrics: Metrics,
        forgetting: Forgetting,
        meter: Meter,
        host: str | None = None,
    ) -> None:
        """`host` is the address of the main port, if it is not the one of the settings."""
        self._host, self._reloading, self._records, self._peers = host, reloading, records, peers
        self._metrics, self._forgetting = metrics, forgetting
        self._keys, self.replays = KeysApi(reloading, meter, peers), ReplaysApi(reloading, records, peers)
        peers.on("config", self._config_here)
        peers.on("reload", self._reload_here)

    def routes(self, *, own_port: bool) -> list[BaseRoute]:
        """Return the routes; on the main port without an admin key, those that are not `local` answer 404."""

        def admin(
            path: str, handler: Handler, method: str = "GET", *, keyed: bool = True, local: bool = False
        ) -> Route:
            async def guarded(request: Request) -> Response:
                self._let_in(request, keyed=keyed, own_port=own_port, local=local)
                answer = await handler(request)
                return answer if isinstance(answer, Response) else answered(answer)

            return Route(path, guarded, methods=[method])

        records, keys, replays = self._records, self._keys, self.replays
        return [
            Route("/metrics", partial(self._metrics_for, own_port=own_port), methods=["GET"]),
            admin("/admin/config", self._config, local=True),
            admin("/admin/reload", self._reload, "POST"),
            admin("/admin/check", self._check, "POST", local=True),
            admin("/admin/explain", self._explain, "POST", local=True),
            admin("/admin/requests", records.requests, local=True),
            admin("/admin/requests/{request_id:path}/archive/{handle}", records.original, local=True),
            admin("/admin/requests/{request_id:path}", records.request, local=True),
            admin("/admin/conversations", records.conversations, local=True),
            admin("/admin/conversations/{id}/export", records.export, local=True),
            admin("/admin/conversations/{id}", records.conversation, local=True),
            admin("/admin/policies", records.policies, local=True),
            admin("/admin/periods", records.periods, local=True),
            admin("/admin/tenants/{tenant:path}", self._forget, "DELETE"),
            admin("/admin/keys", keys.get, local=True),
            admin("/admin/keys", keys.make, "POST"),
            admin("/admin/keys/{name}", keys.revoke, "DELETE"),
            admin("/admin/replays", replays.get, local=True),
            admin("/admin/replays", replays.begin, "POST", local=True),
            admin("/admin/replays", replays.cancel, "DELETE", local=True),
            # the page itself shows nothing; what it asks for needs the key
            admin("/", to_page, keyed=False, local=True),
            admin("/ui", page, keyed=False, local=True),
            admin("/ui/{name}", page, keyed=False, local=True),
        ]

    def _let_in(self, request: Request, *, keyed: bool, own_port: bool, local: bool = False) -> None:
        """Raise `PenstockError`, or `HTTPException` where for this client there is no such path."""
        settings = self._reloading.settings
        if (key := settings.server.admin_key) is None:
            # from this machine itself: without a client's key, past no proxy
            is_operators = not any(name.startswith(_NOT_OPERATORS) for name in request.headers)
            if not (own_port or (local and is_operators and is_open(settings, self._host))):
                raise HTTPException(404)
            self._check_page(request, local=not own_port)
        elif keyed:
            scheme, _, sent = request.headers.get("authorization", "").partition(" ")
            pair = (sent.strip().encode("latin-1"), key.get_secret_value().encode())
            is_it = hmac.compare_digest(*(sha256(each).digest() for each in pair))
            if not is_it or scheme.lower() != "bearer":
                told = "the admin key is missing or wrong; send it as a bearer token"
                raise Unauthorized(told, headers={"www-authenticate": "Bearer"})

    def _check_page(self, request: Request, *, local: bool = False) -> None:
        server = self._reloading.settings.server
        Browsers(server, origins=False, local=local).check(request.method, request.headers)

    async def _metrics_for(self, request: Request, *, own_port: bool) -> Response:
        """Serve the metrics; on the clients' port with the admin key, as clients must not read others' names."""
        settings = self._reloading.settings
        is_open = settings.server.admin_key is None and not isinstance(settings.auth, KeysAuth)
        if own_port or is_open:
            self._check_page(request)
        else:
            self._let_in(request, keyed=True, own_port=own_port)
        self._metrics.flush()
        content_type, text = await asyncio.to_thread(self._metrics.render, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def _config(self, request: Request) -> dict[str, Any]:
        answer, *others = await self._peers.ask_all("config")
        running = self._reloading.current.config
        text = masked(running.text, running.settings)
        shown = {"text": text, "chains": items_of(text, "chains"), "trace_url": running.settings.telemetry.trace_url}
        return {**answer, **shown, "workers": others}

    async def _config_here(self, question: Question) -> dict[str, Any]:
        return {"process": os.getpid(), "tasks": len(asyncio.all_tasks()), **self._reloading.detail()}

    async def _reload(self, request: Request) -> Response:
        answer, *others = await self._peers.ask_all("reload")
        refused = any(each["outcome"] == "refused" for each in (answer, *others))
        return answered({**answer, "workers": others}, 422 if refused else 200)

    async def _reload_here(self, question: Question) -> dict[str, Any]:
        return {"outcome": await self._reloading.reload("asked for"), **await self._config_here(question)}

    async def _check(self, request: Request) -> dict[str, Any]:
        asked = valid(_Checked, await json_object(request))
        errors, warnings = await asyncio.to_thread(check, asked.yaml, self._reloading.current.config)
        return {"errors": errors, "warnings": warnings}

    async def _explain(self, request: Request) -> dict[str, Any]:
        current = self._reloading.current
        body = await read_body(request, int(current.config.settings.server.max_body_mib * 2**20))
        return await current.explaining.for_operators(body, self._records.find)

    async def _forget(self, request: Request) -> Response:
        told = await self._forgetting.tenant(request.path_params["tenant"])
        return answered(told, 200 if told["complete"] else 503)


_LOGIN = re.compile(r"://[^/?#]*:[^/?#@]+@")


def masked(text: str, settings: Settings) -> str:
    """Return the text with `***` for secret values, also in comments, and for addresses with a password."""
    secrets = {value for value in _secrets(settings.model_dump(serialize_as_any=True)) if value}
    shown = with_masks(text, lambda value: _is_secret(value, secrets))
    for secret in secrets:
        shown = shown.replace(secret, "***") if len(secret) >= 8 else shown
    return shown


def _is_secret(value: str, secrets: set[str]) -> bool:
    """Return whether a value is a secret, or is one once its variables are filled in."""
    parts = literal_parts(value)
    if not any(parts):
        return False
    if _LOGIN.search("".join(parts)):
        return True
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(pattern.fullmatch(each) for each in secrets)


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _secrets(each)


# --- the page ---------------------------------------------------------------------------------------------------------


def is_open(settings: Settings, host: str | None = None) -> bool:
    """Return whether the page needs no key on the main port: on loopback, where no client has a key of Penstock."""
    server = settings.server
    has_key = server.admin_key is not None or isinstance(settings.auth, KeysAuth)
    return not has_key and server.admin_port is None and is_loopback(host or server.host)


async def page(request: Request) -> Response:
    """Return `GET /ui`, or `GET /ui/{name}`: a script or a style of the page."""
    path = _FILES.get(request.path_params.get("name", "index.html"))
    if path is None:
        raise HTTPException(404)
    content = await asyncio.to_thread(path.read_bytes)
    return Response(content, headers=_HEADERS, media_type=_TYPES[path.suffix])


async def to_page(request: Request) -> Response:
    """Return `GET /`: leads to the page, also where a proxy in front serves this under another path."""
    return Response(status_code=307, headers={"location": "ui", "cache-control": "no-store"})
