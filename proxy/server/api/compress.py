"""The endpoints for other gateways: what a chain makes of a request without sending it, and what left a context."""

import asyncio
from functools import partial
from typing import Any

from orjson import loads

from proxy.access.exchange import NO_STORE, Exchange
from proxy.chat import encode
from proxy.chat.errors import BadRequest, NotFound
from proxy.chat.markers import named_handles
from proxy.chat.parse import Body, do_sized
from proxy.chat.splice import fields
from proxy.context import TokenCount
from proxy.gateway.pipeline import Pipeline
from proxy.gateway.prepare import Rewritten, Services
from proxy.identity import identify
from proxy.policy import ORIGINALS_READ
from proxy.server.api.endpoint import parameters
from proxy.tools.slicing import Mistake, Part, part_of
from proxy.upstreams.routing import Routes
from proxy.wires import body_of

_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; charset=utf-8")


class Sidecar:
    """`/v1/compress` and `/v1/retrieve`. Nothing of either reaches an upstream."""

    def __init__(self, routes: Routes, pipeline: Pipeline, services: Services) -> None:
        self._routes, self._pipeline = routes, pipeline
        self._archives, self._threads = services.archives, services.recalls

    async def compress(self, http: Exchange) -> None:
        """`POST /v1/compress`: run the request's chain and answer with the messages that it leaves."""
        raw = await http.read()
        async with http.watch():
            body = await do_sized(len(raw), partial(body_of, raw))
            route = self._routes.of(body.model, http.caller.may_use)
            name, rewritten = await self._pipeline.rewrite(body, route, http)
            outcome = rewritten.outcome
            before = outcome.before or await rewritten.tokens.count(outcome.request)
            answer = _compressed(body, rewritten, name, before, outcome.after or before)
        await http.respond(200, [_JSON], answer)

    async def retrieve(self, http: Exchange) -> None:
        """`GET /v1/retrieve/{handle}`: what left a context, or a part of it, for whom it belongs to."""
        plain = "text/plain" in http.headers.get("accept", "")
        handle = http.scope["path_params"].get("handle", "").strip().lower()
        async with http.watch():
            try:
                part = Part.of(parameters(http, "path", "first_line", "last_line", "pattern"))
                if (content := await self._content(handle, http)) is None:
                    told = "nothing is kept under this handle for this key, or no longer"
                    raise NotFound(told, code="unknown_handle")
                work = partial(_shown, handle, content, part, plain=plain)
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, work)
            except Mistake as mistake:
                raise BadRequest(str(mistake), code="invalid_part") from None
        http.seen.metrics.of_count(ORIGINALS_READ).inc()
        await http.respond(200, [_TEXT if plain else _JSON, NO_STORE], answer)

    async def _content(self, handle: str, http: Exchange) -> str | None:
        who = identify(http.headers, None, http.caller.tenant)
        is_part = bool(who.agent or who.task)
        if is_part and not who.session:
            told = "x-penstock-agent and x-penstock-task need x-penstock-session beside them"
            raise BadRequest(told, param="x-penstock-session", code="session_required")
        if who.session:
            content = await self._archives.bind(who).fetch(handle)
            if content is not None or is_part:  # an agent reads what is its own; who names none has the key to all
                return content
        return await self._archives.find(who.tenant, handle)


def _shown(handle: str, content: str, part: Part, *, plain: bool) -> bytes:
    wanted = content if part == Part() else part_of(content, part)
    text = wanted.encode(errors="replace")
    return text if plain else encode({"handle": handle, "content": text.decode()})


def _compressed(body: Body, rewritten: Rewritten, chain: str | None, before: TokenCount, after: TokenCount) -> bytes:
    """Return the conversation's fields as they are sent; the others that the chain changed are in `fields`."""
    request, sent = rewritten.outcome.request, rewritten.sent
    original, result = fields(body.raw), fields(request.encode())
    changed = [name for name in original if name not in body.conversation and result.get(name) != original[name]]
    names = [name for name in body.conversation if (sent.tools if name == "tools" else name in result)]
    listed = {name: result.get(name, b"[]") for name in names}
    figures: dict[str, Any] = {
        "model": sent.model,
        "tokens_before": before.total,
        "tokens_after": after.total,
        "tokens_saved": before.total - after.total,
        "compression_ratio": round(after.total / before.total, 4) if before.total else 1.0,
        "exact": after.exact,
        "window": rewritten.ctx.model.window,
        "handles": named_handles(listed[body.conversation[0]]),
        "fields": {name: loads(result.get(name, b"null")) for name in changed},
        "chain": chain,
        "steps": [step.shown() for step in rewritten.outcome.steps],
    }
    return b"{" + b"".join(encode(name) + b":" + value + b"," for name, value in listed.items()) + encode(figures)[1:]
