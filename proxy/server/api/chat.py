"""The endpoints: what comes in, what goes out, and the one place where an error becomes an answer."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from starlette.types import Scope

from proxy.access.exchange import Exchange
from proxy.chat import encode
from proxy.chat.cache_marks import write_marks
from proxy.chat.errors import NotFound, PenstockError, Rejected
from proxy.chat.names import TAG, untagged
from proxy.chat.parse import Body
from proxy.config.settings import Chain, Settings
from proxy.context import ModelProfile
from proxy.gateway.fallback import Detours
from proxy.gateway.loop import Loop
from proxy.gateway.pipeline import Rewriting, Services
from proxy.gateway.replay import Hidden
from proxy.http.headers import Headers, forwarded, relayed
from proxy.models.usage import Usage, UsageReader, without_usage
from proxy.server.api.models import Catalogue
from proxy.step import context_header, usage_header
from proxy.telemetry.attributes import operation_of
from proxy.telemetry.observation import Observation, ObservedCall
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.masking import keys_of
from proxy.upstreams.routing import Route, Routes

_JSON = (b"content-type", b"application/json")

_CHAT = "/chat/completions"

_UNPRINTABLE = re.compile(r"[^!-~]")

_CHAT_SPELT = re.compile(r"/+v1/+chat/+completions/*", re.IGNORECASE)
"""What an upstream may take for the chat path as well: no spelling of it may go around the chain."""

_OWN = re.compile(r"/[^a-z0-9]*(compress|context/share|explain|memories|retrieve)(?![a-z0-9_-])")
"""Paths below `/v1` of which no spelling goes upstream: they have Penstock's own handles and texts."""

_FORM_MODEL = re.compile(rb'name="model"\r\n(?:[^\r\n]+\r\n){0,16}\r\n([^\r\n]{1,200})\r\n')
"""The field `model` of a multipart form, as audio and image endpoints get it."""

Send = Callable[[Call], Awaitable[Reply]]
"""How a call goes out: straight to the upstream, or through the loop of internal tools."""


class Api:
    """The endpoints, and what they share."""

    def __init__(self, settings: Settings, routes: Routes, rewriting: Rewriting, services: Services) -> None:
        self._auth = settings.auth
        self._keyed = {name for name, each in settings.upstreams.items() if keys_of(each)}
        """The upstreams that have a key of the operator's."""
        self._rewriting = rewriting
        self._routes = routes
        self._catalogue = Catalogue(routes)
        self._services = services
        self._limit = int(settings.server.max_body_mib * 2**20)

    async def chat(self, http: Exchange, seen: Observation) -> None:
        """`POST /v1/chat/completions`: read the request, run its chain, forward what that gave, relay the answer."""
        body = Body(await http.read(self._limit))
        async with http.watch():
            route = self._routes.of(body.model, http.caller)
            detours = Detours(self._routes, route)
            await detours.serve(http, seen, lambda: self._serve(body, http, seen, detours))

    async def _serve(self, body: Body, http: Exchange, seen: Observation, detours: Detours) -> None:
        """Run the chain of the model that is tried over the client's body, send what that gave, relay the answer."""
        route = detours.route
        _, steps = self._rewriting.chain_of(route, http, seen)
        send: Send = route.upstream.send
        if steps or route.upstream.translates or self._rewriting.must_hold(body, route, http):
            call, send = await self._rewritten(body, route, steps, http, seen, detours)
        else:
            call = _untouched(body, route, http)
            http.own_headers.append((b"x-penstock-context", context_header(None, None, route.profile.window).encode()))
        await self._exchange(http, seen, route.upstream, detours.carried(call), detours.through(send), body)

    async def _rewritten(
        self, body: Body, route: Route, steps: Chain, http: Exchange, seen: Observation, detours: Detours
    ) -> tuple[Call, Send]:
        """The call that a chain makes of a body, and how to send it. Raises `PenstockError` where a policy says no."""
        done = await self._rewriting.run(body, route, steps, http, seen)
        detours.check(done.outcome, done.ctx.model)
        request = write_marks(done.outcome.request).with_model(route.model)
        messages = untagged(request.messages)
        if messages is not request.messages:
            request = request.with_messages(messages)
        ask = request.stream and _must_ask(route.upstream, request.rest.get("stream_options"))
        if ask:
            request = request.with_field("stream_options", _asking(request.rest.get("stream_options")))
        record = self._services.replay.recorder(done.sent, done.scope)
        call = Call(
            _CHAT,
            route.model,
            body.raw if request is done.sent else request.encode(),
            forwarded(http.headers),
            query=http.query,
            request=request,
            profile=done.ctx.model,
            counted=done.outcome.after,
            tokens=done.tokens,
            hide_usage=ask,
            watch=done.watch,
            keep=lambda message: record(Hidden(message, (), message)),
        )
        if not done.tools:
            return call, route.upstream.send
        loop = Loop(done.tools)
        return call, lambda looped: loop.send(route.upstream, looped, record)

    async def forward(self, http: Exchange, seen: Observation) -> None:
        """Any other path under `/v1`: pass it to the upstream of the model that it names, or to the default one."""
        if http.scope["method"] == "POST" and _CHAT_SPELT.fullmatch(http.scope["path"]):
            await self.chat(http, seen)
            return
        method, path = http.scope["method"], _below_v1(http.scope)
        raw = await http.read(self._limit)
        async with http.watch():
            if http.caller is not None:
                http.caller.check_path(method, path)
            upstream, model, raw, profile = self._upstream_of(raw, http, seen)
            if upstream.name in self._keyed and not self._auth.lends(method, path):
                told = "the operator's key is not lent to this path; auth.paths of the configuration names further ones"
                raise Rejected(told, code="key_not_lent", status=403)
            call = Call(path, model, raw, forwarded(http.headers), method=method, query=http.query, profile=profile)
            await self._exchange(http, seen, upstream, call, upstream.send)

    def _upstream_of(
        self, raw: bytes, http: Exchange, seen: Observation
    ) -> tuple[Upstream, str, bytes, ModelProfile | None]:
        """The upstream of the model that a body names, its name for the model, the body with that name, its profile."""
        named: str | None = None
        body: Body | None = None
        if http.headers.get("content-type", "").startswith("multipart/form-data"):
            if http.caller is not None:
                http.caller.check_form()
            found = _FORM_MODEL.search(raw)
            named = found[1].decode("utf-8", "replace") if found else None
        elif raw.lstrip()[:1] == b"{":
            body = Body(raw)
            model = body.get("model")
            named = model if isinstance(model, str) else None
        if named is None:
            if http.caller is not None:
                http.caller.check_unnamed()
            seen.routed(model="none", upstream=self._routes.default.name)
            return self._routes.default, "", raw, None
        route = self._routes.of(named, http.caller)
        seen.routed(
            model=route.model, upstream=route.upstream.name, profile=route.profile, entry=route.label, named=route.named
        )
        if guards := self._rewriting.guards_of(route):
            told = f"{guards[0][0]!r} guards this model and reads only /v1{_CHAT}"
            raise Rejected(told, code="guarded", status=403)
        if body is not None and route.model != named:
            raw = body.encoded({"model": route.model})
        return route.upstream, route.model, raw, route.profile

    async def models(self, http: Exchange, seen: Observation) -> None:
        """`GET /v1/models`: those that the configuration names, and those of the upstreams that it lets through."""
        async with http.watch():
            listed = await self._catalogue.listed(forwarded(http.headers))
        caller = http.caller
        data = [model for name, model in listed.items() if caller is None or caller.may_use(name)]
        await http.respond(200, [_JSON], encode({"object": "list", "data": data}))

    async def model(self, http: Exchange, seen: Observation) -> None:
        """`GET /v1/models/{id}`: one model; its id may have slashes."""
        async with http.watch():
            name = http.scope["path_params"]["model"]
            self._routes.of(name, http.caller)
            model = await self._catalogue.one(name, forwarded(http.headers))
        await http.respond(200, [_JSON], encode(model))

    async def _exchange(
        self,
        http: Exchange,
        seen: Observation,
        upstream: Upstream,
        call: Call,
        send: Send,
        body: Body | None = None,
    ) -> None:
        """Send a call and relay its answer, observed from the first byte to the last."""
        if http.admission is not None:
            await http.admission.reserve(call, http.own_headers)
        fields: Mapping[str, object] = {}
        if seen.trace_id is not None:
            fields = call.request.rest if call.request is not None else body.rest() if body is not None else {}
        observed = seen.call(
            provider=upstream.provider,
            model=call.model,
            operation=operation_of(call.path),
            address=upstream.address,
            fields=fields,
        )
        try:
            headers = observed.carry(call.headers)
            reply = await send(call if headers is call.headers else replace(call, headers=headers))
            http.own_headers += _told(reply)
            if http.caller is not None:
                own = {name for name, _ in http.own_headers} - {b"x-request-id"}  # the upstream's gets another name
                reply = await http.caller.shown(reply, own)
            usage = await _relay(http, observed, reply, call)
            broken = reply.facts.get("error") or usage.error
            observed.end(status=reply.status, usage=usage, facts=reply.facts, error=str(broken) if broken else None)
            if http.admission is not None:
                http.admission.note(usage if reply.status < 400 else None, seen.cost)
            _learn(call, Usage().completed(reply.facts) if upstream.translates else usage, reply)
        except PenstockError as error:
            if http.admission is not None and http.status is None:
                http.admission.note(None, None)  # unless another model is tried, nothing was used
            observed.end(error=error)
            raise
        finally:
            observed.end()


async def _relay(http: Exchange, observed: ObservedCall, reply: Reply, call: Call) -> Usage:
    usage = await _relayed(http, observed, reply, call)
    if call.watch is not None:
        call.watch.ended(reply.status, streamed=reply.chunks is not None)
    return usage


async def _relayed(http: Exchange, observed: ObservedCall, reply: Reply, call: Call) -> Usage:
    reader = UsageReader()
    feed = reader.feed if call.watch is None else call.watch.beside(reader.feed)
    if reply.chunks is None:
        body = reply.body or b""
        observed.first_chunk()
        usage = reader.of_body(body).completed(reply.facts)
        if (rounds := int(reply.facts.get("rounds", 1))) > 1 and usage.input is not None:
            http.own_headers.append((b"x-penstock-usage", usage_header(rounds, usage.input, usage.output).encode()))
        await http.respond(reply.status, relayed(reply.headers, stream=False), body)
        if call.watch is not None:
            call.watch.feed(body)
        return usage
    headers = relayed(reply.headers, stream=True)
    if call.hide_usage:
        await http.relay(reply.status, headers, without_usage(reply.chunks, feed), observed.first_chunk, _ignore)
    else:
        await http.relay(reply.status, headers, reply.chunks, observed.first_chunk, feed)
    return reader.of_stream().completed(reply.facts)


def _told(reply: Reply) -> Headers:
    """Headers that name the fields of a request that its upstream has nothing for, and those of an answer that could
    not be kept; clients choose the names of theirs."""
    named = [(name, reply.facts.get(name)) for name in ("ignored", "unkept")]
    return [(f"x-penstock-{name}".encode(), _UNPRINTABLE.sub("_", str(told)).encode()) for name, told in named if told]


def _learn(call: Call, usage: Usage, reply: Reply) -> None:
    """Compare our count of the prompt with the upstream's, unless it cut the prompt or was asked more than once."""
    if reply.facts.get("rounds", 1) != 1:
        return
    if usage.input and call.request and call.counted and call.tokens and not reply.facts.get("truncated"):
        call.tokens.observe(call.request, call.counted, usage.input)


def _untouched(body: Body, route: Route, http: Exchange) -> Call:
    """The call that an empty chain makes: the client's bytes, but for another name of the model."""
    body.check_messages()
    body = _untagged(body)
    changes: dict[str, Any] = {} if body.model == route.model else {"model": route.model}
    ask = body.stream and _must_ask(route.upstream, body.get("stream_options"))
    if ask:
        changes["stream_options"] = _asking(body.get("stream_options"))
    raw = body.encoded(changes) if changes else body.raw
    return Call(
        _CHAT, route.model, raw, forwarded(http.headers), query=http.query, profile=route.profile, hide_usage=ask
    )


def _untagged(body: Body) -> Body:
    """The body without the tags of tasks, which are for Penstock alone."""
    if TAG.encode() not in body.raw:
        return body
    request = body.parse()
    messages = untagged(request.messages)
    return body if messages is request.messages else Body(request.with_messages(messages).encode())


def _must_ask(upstream: Upstream, options: Any) -> bool:
    """Whether usage has to be asked for that the client did not ask for."""
    return upstream.ask_usage and not (isinstance(options, dict) and options.get("include_usage") is True)


def _asking(options: Any) -> dict[str, Any]:
    return {**(options if isinstance(options, dict) else {}), "include_usage": True}


def _below_v1(scope: Scope) -> str:
    """The path behind `/v1` as the client encoded it. Raises `NotFound` for one that, however a server reads
    it, would climb out of `/v1` or is Penstock's own."""
    path: str = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
    read = path
    for _ in range(4):
        read = unquote(read)
    read = re.sub(r"[/\\]+", "/", read).lower()
    if "%25" in read or "\\" in path or not path.startswith("/v1/") or re.search(r"/\.{1,2}(?![^/;?#\s\0])", read):
        raise NotFound("the path must not contain . or .. as a segment, nor be encoded several times")
    if _OWN.match(read.removeprefix("/v1")):
        raise NotFound("this is no spelling of a path of Penstock")
    return path.removeprefix("/v1")


def _ignore(chunk: bytes) -> None:
    """For streams that were noted before."""
