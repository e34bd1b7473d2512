"""Endpoints for operators: configuration, reload, recent requests, deletion of a tenant, and the page over them."""

import asyncio
import hmac
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import orjson
from pydantic import BaseModel, SecretStr
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from proxy.access.browsers import Browsers
from proxy.access.metering import Meter
from proxy.chat import encode
from proxy.chat.errors import BadRequest, Unauthorized
from proxy.config.access_settings import KeysAuth
from proxy.config.document import items_of, literal_parts, with_masks
from proxy.config.load import check
from proxy.config.settings import Settings
from proxy.server.api.erase import Forgetting
from proxy.server.api.keys import KeysApi
from proxy.server.api.replays import ReplaysApi
from proxy.server.api.requests import RecordsApi
from proxy.server.dispatch import NO_STORE
from proxy.server.page import is_open, page, page_file, to_page
from proxy.server.reload import Reloading
from proxy.state.workers import Peers, Question
from proxy.telemetry.metrics import Metrics

_LARGEST = 4 * 2**20
"""Bytes of a body; a configuration has at most a quarter of them."""
_NOT_OPERATORS = ("authorization", "x-api-key", "api-key", "forwarded", "via", "x-real-ip", "x-forwarded-")
"""Beginnings of the headers of clients' keys, and of those by which a proxy in front says that it is one."""

Handler = Callable[[Request], Awaitable[Any]]
"""Returns an answer, or what is told in JSON."""


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
        self._host = host
        self._reloading = reloading
        self._forgetting = forgetting
        self._records = records
        self._peers = peers
        self._metrics = metrics
        self._keys = KeysApi(lambda: reloading.current.config, meter, self._reload_all)
        self._replays = ReplaysApi(lambda: reloading.current.config, records, peers)
        peers.on("config", self._config_here)
        peers.on("reload", self._reload_here)

    def routes(self, *, own_port: bool) -> list[BaseRoute]:
        """Return the routes.

        On the main port without an admin key they are a 404, but for the `local` ones where the page is open to the
        machine that Penstock runs on.
        """

        def admin(
            path: str, handler: Handler, method: str = "GET", *, keyed: bool = True, local: bool = False
        ) -> Route:
            async def guarded(request: Request) -> Response:
                self._let_in(request, keyed=keyed, own_port=own_port, local=local)
                told = await handler(request)
                return told if isinstance(told, Response) else JSONResponse(told, headers=NO_STORE)

            return Route(path, guarded, methods=[method])

        return [
            Route("/metrics", partial(self._metrics_for, own_port=own_port), methods=["GET"]),
            admin("/admin/config", self._config, local=True),
            admin("/admin/reload", self._reload, "POST"),
            admin("/admin/check", self._check, "POST", local=True),
            admin("/admin/explain", self._explain, "POST", local=True),
            *(admin(f"/admin{path}", handler, local=True) for path, handler in self._records.paths().items()),
            admin("/admin/tenants/{tenant:path}", self._forget, "DELETE"),
            admin("/admin/keys", self._list_keys, local=True),
            admin("/admin/keys", self._make_key, "POST"),
            admin("/admin/keys/{name}", self._revoke_key, "DELETE"),
            admin("/admin/replays", self._compared, local=True),
            admin("/admin/replays", self._compare, "POST", local=True),
            admin("/admin/replays", self._cancel, "DELETE", local=True),
            # the page itself shows nothing; what it asks for needs the key
            *(
                admin(path, handler, keyed=False, local=True)
                for path, handler in (("/", to_page), ("/ui", page), ("/ui/{name}", page_file))
            ),
        ]

    def _let_in(self, request: Request, *, keyed: bool, own_port: bool, local: bool = False) -> None:
        """Raise `PenstockError`, or `HTTPException` where for this client there is no such path."""
        key = self._reloading.settings.server.admin_key
        if key is None:
            if not own_port and not (
                local and is_open(self._reloading.settings, self._host) and _is_operators(request)
            ):
                raise HTTPException(404)
            self._check_page(request, local=not own_port)
        elif keyed:
            scheme, _, sent = request.headers.get("authorization", "").partition(" ")
            is_it = hmac.compare_digest(_hash(sent.strip().encode("latin-1")), _hash(key.get_secret_value().encode()))
            if not is_it or scheme.lower() != "bearer":
                told = "the admin key is missing or wrong; send it as a bearer token"
                raise Unauthorized(told, headers={"www-authenticate": "Bearer"})

    def _check_page(self, request: Request, *, local: bool = False) -> None:
        """Refuse web pages other than this server's own, where no key is asked for. Raise `BadRequest`."""
        browsers = Browsers(self._reloading.settings.server, origins=False, local=local)
        browsers.check(request.method, request.headers)

    async def _metrics_for(self, request: Request, *, own_port: bool) -> Response:
        """Serve the metrics. On the clients' port they need the admin key, if there is one or if clients have keys.

        Otherwise each client could read the names and the usage of the other keys.
        """
        settings = self._reloading.settings
        is_open = settings.server.admin_key is None and not isinstance(settings.auth, KeysAuth)
        if own_port or is_open:
            self._check_page(request)
        else:
            self._let_in(request, keyed=True, own_port=own_port)
        content_type, text = await asyncio.to_thread(self._metrics.render, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    async def _config(self, request: Request) -> dict[str, Any]:
        question = {"ask": "config"}
        answer = await self._config_here(question)
        running = self._reloading.current.config
        text = masked(running.text, running.settings)
        shown = {"text": text, "chains": items_of(text, "chains"), "trace_url": running.settings.telemetry.trace_url}
        return {**answer, **shown, "workers": await self._peers.ask(question)}

    async def _config_here(self, question: Question) -> dict[str, Any]:
        return {"process": os.getpid(), "tasks": len(asyncio.all_tasks()), **self._reloading.detail()}

    async def _reload(self, request: Request) -> Response:
        answer, *others = await self._reload_all()
        refused = any(each["outcome"] == "refused" for each in (answer, *others))
        return JSONResponse({**answer, "workers": others}, 422 if refused else 200, headers=NO_STORE)

    async def _reload_all(self) -> list[dict[str, Any]]:
        """Reload in all workers; return the outcome of each, this one's first."""
        question = {"ask": "reload"}
        return [await self._reload_here(question), *await self._peers.ask(question)]

    async def _list_keys(self, request: Request) -> dict[str, Any]:
        return await self._keys.shown()

    async def _make_key(self, request: Request) -> Response:
        made = await self._keys.make(await _object(request))
        return JSONResponse(made, 201, headers=NO_STORE)

    async def _revoke_key(self, request: Request) -> dict[str, Any]:
        return await self._keys.revoke(request.path_params["name"])

    async def _reload_here(self, question: Question) -> dict[str, Any]:
        outcome = await self._reloading.reload("asked for")
        return {"outcome": outcome, **await self._config_here(question)}

    async def _check(self, request: Request) -> dict[str, Any]:
        text = (await _object(request)).get("yaml")
        if not isinstance(text, str):
            raise BadRequest("must be JSON with `yaml`, the text to check", param="yaml")
        errors, warnings = await asyncio.to_thread(check, text, self._reloading.current.config)
        return {"errors": errors, "warnings": warnings}

    async def _explain(self, request: Request) -> Response:
        current = self._reloading.current
        body = await _body(request, int(current.config.settings.server.max_body_mib * 2**20))
        told = await current.explaining.for_operators(body, self._records.find)
        return Response(encode(told), 200, NO_STORE, "application/json")

    async def _compared(self, request: Request) -> dict[str, Any]:
        return await self._replays.shown()

    async def _compare(self, request: Request) -> Response:
        begun = await self._replays.begin(await _object(request))
        return JSONResponse(begun, 202, headers=NO_STORE)

    async def _cancel(self, request: Request) -> dict[str, Any]:
        return await self._replays.cancel()

    async def aclose(self) -> None:
        """End what runs here for operators."""
        await self._replays.aclose()

    async def _forget(self, request: Request) -> Response:
        told = await self._forgetting.tenant(request.path_params["tenant"])
        return JSONResponse(told, 200 if told["complete"] else 503, headers=NO_STORE)


def _is_operators(request: Request) -> bool:
    """Return whether a request comes from this machine itself: without a client's key, past no proxy."""
    return not any(name.startswith(_NOT_OPERATORS) for name in request.headers)


async def _body(request: Request, most: int) -> bytes:
    """Return the body. Raise `HTTPException` if it has more bytes than `most`."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413)
    return bytes(body)


async def _object(request: Request) -> dict[str, Any]:
    """Return the body as a JSON object. Raise `BadRequest` if it is none: nothing is begun or made of a broken one."""
    try:
        value = orjson.loads(await _body(request, _LARGEST))
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object", code="invalid_json")
    return value


def _hash(text: bytes) -> bytes:
    return sha256(text).digest()


_LOGIN = re.compile(r"://[^/?#]*:[^/?#@]+@")
"""In an address: a user and a password."""


def masked(text: str, settings: Settings) -> str:
    """Return the text with a mask for each value of a secret setting, and for each address with a password.

    Comments that quote one go. `${NAME}` stays, because its value is not in the text.
    """
    secrets = {value for value in _secrets(settings) if value}
    shown = with_masks(text, lambda value: _is_secret(value, secrets))
    lines = [line if not _tells(line, secrets) else line.partition("#")[0] + "# ***" for line in shown.split("\n")]
    return "\n".join(lines)


def _tells(line: str, secrets: set[str]) -> bool:
    """Return whether a comment quotes a secret; a short one would be found everywhere."""
    comment = line.partition("#")[2]
    return bool(comment) and any(len(each) >= 8 and each in comment for each in secrets)


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
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _secrets(each)
