"""The endpoints of the wires, and every other path under `/v1`, which goes to an upstream as it is."""

import re
from collections.abc import Mapping
from functools import partial
from urllib.parse import unquote

from starlette.types import Scope

from proxy.access.callers import Caller
from proxy.access.exchange import Exchange
from proxy.access.gate import Handler
from proxy.chat.errors import BadRequest, NotFound, Rejected
from proxy.chat.parse import Body, do_sized
from proxy.config.settings import Settings
from proxy.context import ModelProfile
from proxy.gateway.chain import guards
from proxy.gateway.pipeline import Pipeline
from proxy.gateway.relay import Observers, relay
from proxy.http.headers import forwarded
from proxy.server.api.endpoint import check_method
from proxy.upstreams.base import Call, Upstream
from proxy.upstreams.keys import keys_of
from proxy.upstreams.routing import Routes
from proxy.wires.messages import CountBody, MessagesBody
from proxy.wires.responses import InputTokensBody, ResponsesBody

_COUNTS = (CountBody, InputTokensBody)
WIRES: Mapping[str, type[Body]] = {
    f"/v1{kind.path}": kind for kind in (Body, MessagesBody, CountBody, ResponsesBody, InputTokensBody)
}
"""The paths of which a chain reads the bodies."""

_READ = [path for path, kind in WIRES.items() if kind not in _COUNTS]

_OWN = re.compile(
    r"/[^a-z0-9]*(?:(?:compress|context[^a-z0-9]+share|explain|memories|retrieve)(?![a-z0-9_-])"
    r"|(?:chat[^a-z0-9]+completions|models)(?![a-z0-9_-]|/[a-z0-9_-]))"
)
"""Paths below `/v1` that Penstock answers itself: no spelling of them goes upstream. Below the last two there are
paths of upstreams, such as `/chat/completions/ID`."""

_PASSED_ON = frozenset({"/v1/chat/completions", "/v1/models"})
"""Paths among these that upstreams have for other methods."""

_DISPOSITION = re.compile(rb"content-disposition:([^\r\n]*(?:\r?\n[ \t][^\r\n]*)*)", re.IGNORECASE)
_IS_MODEL = re.compile(rb'\bname[*\d]*\s*=\s*(?:[\w-]*\'[^\']*\')?"?model"?\s*(?:;|$)', re.IGNORECASE)
_PART = re.compile(rb"\r\n(?:[^\r\n]+\r\n){0,16}\r\n([^\r\n]{1,200})\r\n")
"""Further headers of a part behind its disposition, and a value of one line."""


class Api:
    """The endpoints, and what they share."""

    def __init__(self, settings: Settings, routes: Routes, pipeline: Pipeline) -> None:
        self._auth, self._chains = settings.auth, settings.chains
        self._keyed = {name for name, each in settings.upstreams.items() if keys_of(each)}
        self._guards = {
            each.upstream: found[0][0] for each in settings.models if (found := guards(settings.chains[each.chain]))
        }
        self._pipeline = pipeline
        self._routes = routes

    def wire(self, kind: type[Body]) -> Handler:
        """Return the handler of `POST` for the path of a kind of body."""
        # a count of what the client sent would have it compact too early
        answer = self._pipeline.count if kind in _COUNTS else self._pipeline.serve

        async def serve(http: Exchange) -> None:
            raw = await http.read()
            body = await self._pipeline.read(kind, raw, http) if kind is Body or _may_be_read(raw) else None
            if body is None or (kind is not Body and not _model_of(body)):
                await self._pass(kind.path, raw, http)  # no chain can read it: its bytes go as they are
                return
            if http.caller.key is not None and kind.wire == "responses":
                _check_stored(body, http.caller)
            await answer(body, http)

        return serve

    async def forward(self, http: Exchange) -> None:
        # an upstream may take it for the path of a wire: no spelling may go around the chain
        kind = WIRES.get(http.scope["path"].casefold())
        if kind is not None:
            check_method(http, "GET", "POST")
            if http.scope["method"] == "POST":
                await self.wire(kind)(http)
                return
        await self._pass(_below_v1(http.scope), await http.read(), http)

    async def _pass(self, path: str, raw: bytes, http: Exchange) -> None:
        """Pass a request as it is to the upstream of the model that it names, or to the default one."""
        method = http.scope["method"]
        async with http.watch():
            http.caller.check_path(method, path)
            named = await do_sized(len(raw), partial(_named, raw, http))
            upstream, model, raw, profile = self._upstream_of(raw, named, http)
            if upstream.name in self._keyed and not self._auth.lends(method, path):
                told = "the configured API key may not be used for this path; allow it under auth.paths"
                raise Rejected(told, code="key_not_lent", status=403)
            call = Call(path, model, raw, forwarded(http.headers), method=method, query=http.query, profile=profile)
            async with Observers(call, upstream, http) as observers:
                await relay(http, await upstream.send(observers.call), observers)

    def _upstream_of(
        self, raw: bytes, names: tuple[str | None, Body | None], http: Exchange
    ) -> tuple[Upstream, str, bytes, ModelProfile | None]:
        """Return the upstream of the model that a body names, its name for it, the body with that, and its profile."""
        named, body = names
        if named is None:
            return self._unnamed(raw, http), "", raw, None
        route = self._routes.of(named, http.caller.may_use)
        http.seen.routed(
            model=route.model, upstream=route.upstream.name, profile=route.profile, entry=route.label, named=route.named
        )
        if found := guards(self._chains[route.chain]):
            told = f"{found[0][0]!r} guards this model and reads only {', '.join(_READ)} where its upstream has them"
            raise Rejected(told, code="guarded", status=403)
        if body is not None and route.model != named:
            raw = body.encoded({"model": route.model})
        return route.upstream, route.model, raw, route.profile

    def _unnamed(self, raw: bytes, http: Exchange) -> Upstream:
        http.caller.check_unnamed()
        default = self._routes.unnamed(forwarded(http.headers))
        http.seen.routed(model="none", upstream=default.name)
        if raw and (guard := self._guards.get(default.name)):  # the upstream may choose the model by itself
            told = f"{guard!r} guards a model of this upstream, so the body must be JSON that names another one"
            raise Rejected(told, code="guarded", status=403)
        return default


_STORED = ("previous_response_id", "conversation", "prompt")

_REFERENCE = re.compile(rb'"type"\s*:\s*"item_reference"')


def _check_stored(body: Body, caller: Caller) -> None:
    """Raise `Rejected` where a request reads what is stored for all callers of the operator's key."""
    named = [name for name in _STORED if body.get(name) is not None]
    if (named or _REFERENCE.search(body.raw)) and not caller.may_pass("POST", body.path):
        told = f"{(named or ['item_reference'])[0]} names what is stored for all keys; send the whole conversation"
        raise Rejected(told, param=(named or ["input"])[0], code="stored_not_allowed")


def _may_be_read(raw: bytes) -> bool:
    """Return whether a body is an object, or empty: a chain's path refuses that one in its own form."""
    return _is_object(raw) or not raw.strip()


def _is_object(raw: bytes) -> bool:
    return raw.lstrip()[:1] == b"{"


def _model_of(body: Body) -> str | None:
    model = body.get("model")
    return model if isinstance(model, str) else None


def _named(raw: bytes, http: Exchange) -> tuple[str | None, Body | None]:
    """Return the model that a body or a form names, and the body if it is JSON."""
    if http.headers.get("content-type", "").startswith("multipart/form-data"):
        http.caller.check_form()
        return _form_model(raw), None
    body = Body(raw) if _is_object(raw) else None
    return (None if body is None else _model_of(body)), body


def _form_model(raw: bytes) -> str | None:
    """Return the field `model` of a multipart form. Raise `BadRequest` for several: upstreams may read another."""
    places = [each.end() for each in _DISPOSITION.finditer(raw) if _IS_MODEL.search(each[1])]
    if len(places) > 1:
        raise BadRequest("the form names its model twice", param="model", code="invalid_type")
    found = _PART.match(raw, places[0]) if places else None
    return found[1].decode("utf-8", "replace") if found else None


def _below_v1(scope: Scope) -> str:
    """Return the path behind `/v1`. Raise `NotFound` for one that climbs out of it, or is Penstock's own."""
    path: str = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
    path = read = re.sub(r"^//+", "/", path)
    for _ in range(4):
        read = unquote(read)
    read = re.sub(r"[/\\]+", "/", read).lower()
    if "%25" in read or "\\" in path or not path.startswith("/v1/") or re.search(r"/\.{1,2}(?![^/;?#\s\0])", read):
        raise NotFound("the path must not contain . or .. as a segment, nor be encoded several times")
    plain = re.sub(r";[^/]*", "", read).removeprefix("/v1")  # many servers drop `;a=b`
    if path not in _PASSED_ON and _OWN.match(plain):
        raise NotFound("unknown path")
    return path.removeprefix("/v1")
