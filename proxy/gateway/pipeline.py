"""One request on its way: prepared for a model, sent there, and its answer relayed to the client."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from proxy.access.callers import Caller
from proxy.access.exchange import Exchange
from proxy.chat import encode
from proxy.chat.errors import OVERFLOW, NotInTime, NotKept, PenstockError, Rejected
from proxy.chat.parse import Body, do_sized
from proxy.config.settings import Settings
from proxy.gateway import loop
from proxy.gateway.bridge import BridgedUpstream
from proxy.gateway.fallback import Attempts
from proxy.gateway.pilot import Pilot
from proxy.gateway.prepare import Asked, Chosen, Preparation, Prepared, Rewritten, Services
from proxy.gateway.relay import Observer, Observers, counts_header, findings_header, relay, server_timing
from proxy.gateway.saving import Saving
from proxy.http.headers import retry_after
from proxy.policy import Reject
from proxy.state.cache import TenantCache
from proxy.telemetry.record import Rewriting
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.routing import Route, Routes

_log = logging.getLogger("penstock.api")


class Pipeline:
    """Serves requests with one configuration."""

    def __init__(
        self,
        settings: Settings,
        routes: Routes,
        services: Services,
        saving: Saving | None = None,
        pilot: Pilot | None = None,
    ) -> None:
        """With `saving`, the requests are saved that were answered."""
        self._saving, self._pilot = saving, pilot
        self._routes, self._parsed = routes, services.parsed
        self._preparation = Preparation(settings, services)

    async def read(self, kind: type[Body], raw: bytes, http: Exchange) -> Body:
        """Return a body; what an earlier one of the tenant's began with is not read again. Raises `BadRequest`."""
        return await do_sized(len(raw), partial(kind, raw, TenantCache(self._parsed, http.caller.tenant)))

    async def serve(self, body: Body, http: Exchange) -> None:
        """Run the chain of a request, send what that gave, and relay the answer; with another model where one fails.

        Raises `PenstockError` where nothing could be answered.
        """
        async with http.watch():
            route = self._routes.of(body.model, http.caller.may_use)
            attempts = Attempts(self._routes, route, http, body)
            for tried in attempts:
                route = _speaking(tried, body.wire)
                try:
                    prepared = await self._prepare(body, route, http, may_choose_model=not attempts.has_chosen)
                    if prepared.chosen is not None:
                        attempts.choose(*prepared.chosen)
                        continue
                    call, watches = await attempts.carried(prepared.call), self._watches(prepared, body, http)
                    async with Observers(call, route.upstream, http, body, watches) as observers:
                        attempts.sending(observers.call)
                        reply = await self._send(prepared, observers.call, http.caller)
                        observers.facts = reply.facts
                        await relay(http, await attempts.check(reply), observers)
                    return
                except PenstockError as error:
                    attempts.failed(error)
            await attempts.give_up()

    async def count(self, body: Body, http: Exchange) -> None:
        """Have the tokens of a request counted as it would be sent, or as it came where it would be refused.

        What a guard refuses is refused here, too; where another step refuses, what guards left of it is counted.

        Nothing is remembered of it: it is no turn of its conversation.
        """
        async with http.watch():
            spoken, asked = (
                self._routes.of(body.model, http.caller.may_use),
                Asked(http.headers, http.caller, http.query),
            )
            route = _speaking(spoken, body.wire)
            prepared = await self._preparation.prepare(body, route, self._choose(route, asked, http), asked)
            call, done = prepared.call, prepared.rewritten
            if done is not None and done.outcome.is_emptied and (rejected := done.outcome.rejected) is not None:
                raise _refusal(rejected, late=done.outcome.late, failed=done.archive.failed)
            if route is not spoken:
                await self._count_here(body, prepared, http)
                return
            if done is not None and done.outcome.rejected is not None and not done.is_guarded:
                call = replace(call, body=body.raw)
            async with Observers(call, route.upstream, http, body) as observers:
                reply = await self._send(structs.replace(prepared, rewritten=None), observers.call, http.caller)
                await relay(http, reply, observers)

    async def _count_here(self, body: Body, prepared: Prepared, http: Exchange) -> None:
        """Answer with our own count, where the upstream has none for the wire."""
        done = prepared.rewritten or await self._preparation.rewrite(
            body, prepared.route, Chosen(None, ()), Asked(http.headers, http.caller, http.query), sends=False
        )
        counted = await done.tokens.count(done.outcome.request)
        answer: dict[str, Any] = {"input_tokens": counted.total}
        if body.wire == "responses":
            answer = {"object": "response.input_tokens", **answer}
        await http.respond(200, [(b"content-type", b"application/json")], encode(answer))

    async def _prepare(self, body: Body, route: Route, http: Exchange, *, may_choose_model: bool) -> Prepared:
        """Prepare a request for a model, and tell what that did. Raises `PenstockError` where it must not be sent."""
        asked = Asked(http.headers, http.caller, http.query, may_choose_model)
        prepared = await self._preparation.prepare(body, route, self._choose(route, asked, http), asked)
        done = prepared.rewritten
        if done is None:
            http.seen.passed(body, http.headers)
            http.own_headers.append((b"x-penstock-context", counts_header(None, None, route.profile.window)))
            return prepared
        if prepared.chosen is not None:
            return prepared
        _tell(done, http)
        await http.seen.expect(done.sent, done.outcome.request, done.ctx)
        _check_larger(done, route)
        if prepared.lowered is not None:
            http.own_headers.append((b"x-penstock-lowered", prepared.lowered.encode()))
            http.seen.known["lowered"] = prepared.lowered
        return prepared

    def _watches(self, prepared: Prepared, body: Body, http: Exchange) -> Sequence[Observer]:
        watches = [*prepared.watches]
        if self._pilot is not None and (pilot := self._pilot.watch(prepared)) is not None:
            watches.append(pilot)
        if self._saving is not None:
            watches.append(self._saving.watch(prepared, body, Asked(http.headers, http.caller, http.query)))
        return watches

    async def _send(self, prepared: Prepared, call: Call, caller: Caller) -> Reply:
        """Return the answer to a call: of the upstream, or of the dialogue that it has with the internal tools."""
        upstream, done = prepared.route.upstream, prepared.rewritten
        try:
            ask = partial(upstream.send, call)
            if done is not None and done.tools:
                ask = partial(loop.send, upstream, call, done.tools, done.record)
            if self._pilot is None:
                return await ask()
            async with self._pilot.turn(prepared):
                return await ask()
        except PenstockError as error:
            caller.check_key(error.status)
            raise

    async def rewrite(self, body: Body, route: Route, http: Exchange) -> tuple[str | None, Rewritten]:
        """Run the chain over a request that others send; its name, and what it made. Raises `PenstockError`."""
        asked = Asked(http.headers, http.caller, http.query)
        chosen = self._choose(route, asked, http)
        done = await self._preparation.rewrite(body, route, chosen, asked, sends=False)
        _tell(done, http)
        return chosen.name, done

    def _choose(self, route: Route, asked: Asked, http: Exchange) -> Chosen:
        chosen = self._preparation.chain_of(route, asked)
        http.seen.routed(
            model=route.model,
            upstream=route.upstream.name,
            chain=chosen.name or "bypass",
            profile=route.profile,
            entry=route.label,
            named=route.named,
        )
        return chosen


def _speaking(route: Route, wire: str) -> Route:
    """Return a route whose upstream speaks a wire: the same one where it does by itself."""
    upstream = route.upstream
    return route if wire in upstream.abilities.speaks else replace(route, upstream=BridgedUpstream(upstream, wire))


def _tell(done: Rewritten, http: Exchange) -> None:
    """Say what the steps did: in the answer's headers, in telemetry, and in the log where one failed.

    Raises `PenstockError` where a policy says no, or one that must not fail did.
    """
    outcome, profile, rejected = done.outcome, done.ctx.model, done.outcome.rejected
    came = done.ctx.incoming if done.is_guarded else done.sent
    http.seen.rewriting = Rewriting(
        came, outcome.request, outcome.stages, done.ctx, outcome.before, outcome.after, outcome.start
    )
    refusal = None if rejected is None else _refusal(rejected, late=outcome.late, failed=done.archive.failed)
    if outcome.before is not None and outcome.after is not None:
        before, after, usable = outcome.before.total, outcome.after.total, profile.usable(outcome.request)
        is_too_large = rejected is not None and rejected.code == OVERFLOW
        refused = refusal.code if refusal is not None and is_too_large else None
        http.seen.ran(outcome.steps, before=before, after=after, window=usable, refused=refused)
        http.own_headers += [
            (b"x-penstock-context", counts_header(before, after, profile.window)),
            (b"server-timing", server_timing(outcome.steps).encode()),
        ]
    elif not outcome.steps:
        http.own_headers.append((b"x-penstock-context", counts_header(None, None, profile.window)))
    if found := findings_header(outcome.steps):
        http.own_headers.append((b"x-penstock-findings", found.encode()))
    for step in outcome.steps:
        if step.verdict == "fail":
            fields = {"policy": step.policy, "fault": step.why, "request_id": http.request_id}
            _log.warning("policy failed", extra={"fields": fields})
    if done.ctx.outage.begun or done.archive.failed:
        http.seen.metrics.of("requests_without_state").inc()
    if refusal is not None:
        raise refusal


def _refusal(verdict: Reject, *, late: bool, failed: bool) -> PenstockError:
    if late and verdict.code == OVERFLOW:
        # what was begun in time is remembered when it is done, so that the next try has less to do
        told = "The prompt does not fit, and a step that shortens it was not done in time. Try again soon."
        return NotInTime(told, param=verdict.param, headers=retry_after(1.0))
    if failed and verdict.code == OVERFLOW:
        told = "The prompt does not fit, and what would be taken out of it cannot be kept right now. Try again soon."
        return NotKept(told, param=verdict.param)
    kind = Rejected if verdict.status < 500 else PenstockError
    return kind(verdict.why, param=verdict.param, code=verdict.code, status=verdict.status)


def _check_larger(done: Rewritten, route: Route) -> None:
    """Raise `Rejected` where there is a larger model for a request that does not fit, and no step said so."""
    outcome, profile = done.outcome, done.ctx.model
    if route.settings.larger is None or outcome.after is None:
        return
    usable = profile.usable(outcome.request)
    if outcome.after.total > usable:
        raise Rejected(
            f"This model's maximum context length is {profile.window} tokens. However, your messages resulted in "
            f"{outcome.after.total} tokens, of which {usable} fit. Please reduce the length of the messages. "
            f"({OVERFLOW})",
            code=OVERFLOW,
            param="messages",
        )
