"""What happens to a chat request before it is sent: its chain is found and run, and what that gave is told."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from proxy.access.exchange import Exchange
from proxy.chat import ChatRequest
from proxy.chat.cache_marks import find_marks
from proxy.chat.errors import BadRequest, NotInTime, NotKept, PenstockError, Rejected
from proxy.chat.parse import Body
from proxy.chat.reasoning import may_be_signed, signed_places
from proxy.config.access_settings import BYPASS
from proxy.config.settings import Chain, Settings
from proxy.context import CacheRules, Context, Identity, ModelProfile, Outage
from proxy.economics import UNCACHED
from proxy.gateway import bound
from proxy.gateway.answer_notes import AnswerWatch, CorrectionService
from proxy.gateway.chain import Outcome, guards, with_guards
from proxy.gateway.replay import Replay
from proxy.gateway.settled import Prefixes
from proxy.http.headers import retry_after, without_credentials
from proxy.identity import identify
from proxy.llm.drafts import BoundDrafts, DraftService
from proxy.llm.verdicts import BoundJudge, VerdictService
from proxy.llm.writer import Writer
from proxy.memories.service import BoundMemories, MemoryService
from proxy.models.tokens import BoundTokens, TokenService
from proxy.policy import InternalTool, Reject, ToolContext
from proxy.state.archive import Archives
from proxy.state.cache import OnceService
from proxy.state.decisions import Memos
from proxy.state.inbox import Shares
from proxy.step import context_header, findings_header, server_timing
from proxy.telemetry.observation import OVERFLOW, Observation
from proxy.upstreams.routing import Route
from proxy.vectors.embedding import EmbeddingService

_log = logging.getLogger("penstock.api")


@dataclass(frozen=True, slots=True)
class Writing:
    """What has summaries written."""

    writer: Writer
    drafts: DraftService

    def bound(self, tenant: str, route: Route, headers: Mapping[str, str], outage: Outage) -> BoundDrafts:
        """The drafts of a request's context."""
        return self.drafts.bound(tenant, self.writer.authorization(route.upstream, headers), outage)


@dataclass(frozen=True, slots=True)
class Services:
    """What the steps of a chain, and the loop behind it, need to do their work."""

    tokens: TokenService
    archives: Archives
    replay: Replay
    once: OnceService
    memos: Memos
    shares: Shares
    prefixes: Prefixes
    """What was sent in front of the answers of conversations."""
    recalls: Executor
    """Threads in which the parts of archived texts are looked for."""
    writing: Writing | None = None
    embedding: EmbeddingService | None = None
    judge: VerdictService | None = None
    corrections: CorrectionService | None = None
    memories: MemoryService | None = None

    def drafts(self, tenant: str, route: Route, headers: Mapping[str, str], outage: Outage) -> BoundDrafts | None:
        """The drafts of a request's context, if a model is configured to write them."""
        return None if self.writing is None else self.writing.bound(tenant, route, headers, outage)

    def judging(self, tenant: str, route: Route, headers: Mapping[str, str]) -> BoundJudge | None:
        """The judge of a request's context, if a model is configured for it."""
        if self.judge is None:
            return None
        return self.judge.bound(tenant, self.judge.authorization(route.upstream, headers))


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A request, and what its chain made of it."""

    sent: ChatRequest
    """As the client sent it."""
    outcome: Outcome
    ctx: Context
    """What its last step saw."""
    tokens: BoundTokens
    tools: Sequence[InternalTool]
    """The internal tools that the model may call."""
    scope: str
    """Whose conversation it is, for what is kept of the loop."""
    watch: AnswerWatch | None = None
    """What looks at the answer, where a step wants to know what was wrong with it."""


class Rewriting:
    """Finds and runs the chains of requests."""

    def __init__(self, settings: Settings, services: Services) -> None:
        self._server = settings.server
        self._chains = settings.chains
        self._services = services

    def chain_of(self, route: Route, http: Exchange, seen: Observation) -> tuple[str | None, Chain]:
        """The chain that this request gets and its steps: its model's, that of its own choice, or none at all.

        The guards of the model's own chain run in any case. Raises `BadRequest` where the request asks for what it may
        not: a client must know that its words were not followed.
        """
        chosen, skips = self._chosen(http), self._skips(http)
        name = None if skips else chosen or route.chain
        seen.routed(
            model=route.model,
            upstream=route.upstream.name,
            chain=name or "bypass",
            profile=route.profile,
            entry=route.label,
            named=route.named,
        )
        return name, with_guards(() if name is None else self._chains[name], self._chains[route.chain])

    def guards_of(self, route: Route) -> Chain:
        """The steps of a model's own chain that no request may skip."""
        return guards(self._chains[route.chain])

    def must_hold(self, body: Body, route: Route, http: Exchange) -> bool:
        """Whether even a request without a chain has to be read, because signed reasoning is bound to what was sent.

        So is every one that skips its chain: what was sent without it must stay so in the requests behind it.
        """
        return route.profile.binds_reasoning and (self._skips(http) or may_be_signed(body.raw))

    def _chosen(self, http: Exchange) -> str | None:
        """The chain that a request names, if it names one."""
        chosen = http.headers.get("x-penstock-chain")
        if chosen is None:
            return None
        if not self._server.may_choose_chain:
            raise BadRequest("x-penstock-chain is not allowed here; leave it out", code="chain_not_allowed")
        known_to = [each for each in self._chains if http.caller is None or http.caller.may_choose(each)]
        if chosen not in known_to:
            known = ", ".join(sorted(known_to))
            raise BadRequest(f"x-penstock-chain names no chain; known: {known}", code="unknown_chain")
        return chosen

    def _skips(self, http: Exchange) -> bool:
        """Whether a request skips its chain."""
        if http.headers.get("x-penstock-bypass", "").lower() != "true":
            return False
        if not self._server.may_bypass or not (http.caller is None or http.caller.may_choose(BYPASS)):
            raise BadRequest("x-penstock-bypass is not allowed here; leave it out", code="bypass_not_allowed")
        return True

    async def run(
        self, body: Body, route: Route, steps: Chain, http: Exchange, seen: Observation, *, sends: bool = True
    ) -> Rewritten:
        """Run the steps over a body. Raises `PenstockError` where a policy says no, or one that must not fail did.

        With `sends`, what the client does not send back of earlier turns is put back first. Without, nothing runs
        these tools, and the steps are told so.
        """
        sent = incoming = body.parse(self._server.max_messages)
        outage = Outage()
        identity = identify(http.headers, sent, None if http.caller is None else http.caller.tenant)
        scope = f"{identity.tenant}\0{identity.scope}"
        brings_tools = sent.tools and any(policy.internal_tools for _, policy in steps)
        if sends and (brings_tools or route.upstream.signs or signed_places(sent.messages)):
            incoming = await self._services.replay.restored(sent, scope, outage, signed=route.upstream.signs)
        profile = await route.upstream.profile(route.profile)
        if profile.cache.marked:
            profile = replace(profile, cache=_used_cache(profile.cache, steps, incoming))
        tokens = self._services.tokens.bound(profile, identity.tenant)
        deadline = asyncio.get_running_loop().time() + self._server.chain_deadline
        archive = self._services.archives.bound(
            identity.tenant, identity.scope, own=not identity.is_named, outage=outage
        )
        once = self._services.once.bound(identity.tenant)
        memo = self._services.memos.bound(identity.tenant, identity.scope, outage)
        headers = without_credentials(http.headers)
        drafts = self._services.drafts(identity.tenant, route, http.headers, outage)
        embedding = self._services.embedding
        embedder = None if embedding is None else embedding.bound(identity.tenant)
        judge = self._services.judging(identity.tenant, route, http.headers)
        runs_tools = sends and sent.rest.get("n") in (None, 1)
        observers = [each for _, policy in steps if (each := policy.observer) is not None]
        service = self._services.corrections if observers else None
        notes = None if service is None else service.bound(identity.tenant, identity.scope, observers, outage)
        memories = self._services.memories
        remembered = None if memories is None else _remembered(memories, identity, outage)
        inbox = self._services.shares.inbox(identity, outage)
        ctx = Context(
            incoming,
            profile,
            identity,
            tokens,
            deadline,
            archive,
            once,
            memo,
            drafts,
            embedder,
            headers,
            runs_tools=runs_tools,
            judge=judge,
            now=time.time() // 60 * 60,
            corrections=notes,
            memories=remembered,
            inbox=inbox,
            outage=outage,
        )
        settled = self._services.prefixes.bound(identity.tenant, identity.scope, outage)
        try:
            outcome = await bound.run(steps, ctx, settled)
        except asyncio.CancelledError:  # the client has left; what a late step has begun goes on, for the next try
            once.give_up()
            raise
        refusal = None if outcome.rejected is None else _refusal(outcome.rejected, outcome.late, archive.failed)
        _tell(outcome, refusal, profile, http, seen)
        if outage.begun or archive.failed:
            seen.without_state()
        if refusal is not None:
            raise refusal
        if sends:
            await seen.expect(sent, outcome.request, ctx)
        watch = notes.watch(sent) if notes is not None and sends else None
        ctx = replace(ctx, incoming=outcome.incoming or incoming)
        tools = self._tools(steps, outcome, ctx) if sends else ()
        return Rewritten(sent, outcome, ctx, tokens, tools, scope, watch)

    def _tools(self, steps: Chain, outcome: Outcome, ctx: Context) -> Sequence[InternalTool]:
        """The internal tools that a request offers, ready to run."""
        request = outcome.request
        # what is held may offer more than the chain does now
        chains = (*self._chains.values(), steps) if ctx.model.binds_reasoning else (steps,)
        names = {tool.name for tool in request.tools}
        bringing = [
            policy
            for chain in chains
            for _, policy in chain
            if any(kind.definition.name in names for kind in policy.internal_tools)
        ]
        free = ctx.model.usable(request) - (0 if outcome.after is None else outcome.after.total)
        made = ToolContext(ctx, request, free, self._services.recalls)
        return [*{tool.name: tool for policy in bringing for tool in policy.build_tools(made)}.values()]


def _used_cache(rules: CacheRules, steps: Chain, request: ChatRequest) -> CacheRules:
    """How the provider charges where it caches only what is marked: as ever, unless nobody marks anything."""
    marked = (policy.marked_cache(rules) for _, policy in steps)
    return next((each for each in marked if each is not None), rules if find_marks(request) else UNCACHED)


def _remembered(memories: MemoryService, who: Identity, outage: Outage) -> BoundMemories:
    """What a request may see of memories; a conversation without a name has none of its own."""
    return memories.bound(who.tenant, who.user, who.session if who.is_named else "", who.agent, who.task, outage)


def _tell(
    outcome: Outcome, refusal: PenstockError | None, profile: ModelProfile, http: Exchange, seen: Observation
) -> None:
    """Say what the steps did: in the answer's headers, in telemetry, and in the log where one failed."""
    if outcome.before is not None and outcome.after is not None:
        before, after, usable = outcome.before.total, outcome.after.total, profile.usable(outcome.request)
        is_too_large = outcome.rejected is not None and outcome.rejected.code == OVERFLOW
        refused = refusal.code if refusal is not None and is_too_large else None
        seen.ran(outcome.steps, before=before, after=after, window=usable, refused=refused)
        http.own_headers += [
            (b"x-penstock-context", context_header(before, after, profile.window).encode()),
            (b"server-timing", server_timing(outcome.steps).encode()),
        ]
    elif not outcome.steps:
        http.own_headers.append((b"x-penstock-context", context_header(None, None, profile.window).encode()))
    found = findings_header(outcome.steps)
    if found:
        http.own_headers.append((b"x-penstock-findings", found.encode()))
    for step in outcome.steps:
        if step.verdict == "fail":
            fields = {"policy": step.policy, "fault": step.why, "request_id": http.request_id}
            _log.warning("policy failed", extra={"fields": fields})


def _refusal(verdict: Reject, late: bool, failed: bool) -> PenstockError:
    if late and verdict.code == OVERFLOW:
        # what was begun in time is remembered when it is done, so that the next try has less to do
        told = "The prompt does not fit, and a step that shortens it was not done in time. Try again soon."
        return NotInTime(told, param=verdict.param, headers=retry_after(1.0))
    if failed and verdict.code == OVERFLOW:
        told = "The prompt does not fit, and what would be taken out of it cannot be kept right now. Try again soon."
        return NotKept(told, param=verdict.param)
    kind = Rejected if verdict.status < 500 else PenstockError
    return kind(verdict.why, param=verdict.param, code=verdict.code, status=verdict.status)
