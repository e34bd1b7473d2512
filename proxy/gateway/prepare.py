"""From a body to the call that goes upstream: whose request it is, which chain it gets, and what the chain makes of it.

The only place that builds the `Context` of a request: the same for those that are served, for `/v1/compress` and for
`penstock explain`. Nothing is sent here, and nothing is told to the client or to telemetry.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

from msgspec import Struct, structs

from proxy.access.callers import Caller
from proxy.chat import ChatRequest, Message, listed
from proxy.chat.cache_marks import find_marks, write_marks
from proxy.chat.errors import BadRequest, PenstockError, Rejected
from proxy.chat.parse import Body, ParsedList, do_sized
from proxy.chat.reasoning import SIGNS, signed_places
from proxy.config.settings import BYPASS, Chain, Settings
from proxy.context import Conditions, Context, ContextServices, Identity, ModelProfile, Outage
from proxy.economics import UNCACHED
from proxy.gateway import signed
from proxy.gateway.answer_notes import BoundCorrections, CorrectionService
from proxy.gateway.chain import Outcome, guards, run, with_guards
from proxy.gateway.hidden import Hidden, HiddenParts, Record, Settle, digest
from proxy.gateway.relay import Observer
from proxy.gateway.signed import Prefixes, Settled, SignedAnswer
from proxy.http.headers import CREDENTIALS, forwarded, without_credentials
from proxy.identity import TAG, identify, untagged
from proxy.llm.judge import UpstreamJudge
from proxy.llm.writer import DraftService
from proxy.memories.service import MemoryService
from proxy.models.tokens import BoundTokens, TokenService
from proxy.models.usage import ReportMemory
from proxy.policy import (
    AnswerObserver,
    BringsTools,
    Guard,
    InternalTool,
    MarksCache,
    Need,
    ObservesAnswers,
    ToolContext,
)
from proxy.state.archive import Archives, BoundArchive
from proxy.state.cache import Cache, OnceService, TenantCache
from proxy.state.decisions import Memos
from proxy.state.inbox import Shares
from proxy.state.threads import Threads
from proxy.upstreams.base import Call
from proxy.upstreams.routing import Route
from proxy.vectors.embedding import EmbeddingService
from proxy.work_time import begin_work

CHAT_WIRE = "chat"
_STORED = ("previous_response_id", "conversation", "background")
"""Fields of Responses of which the answer is a part of something that the vendor stores."""

_PARSING = 4
"""To parse the messages of a body takes so many times as long as to find its fields, or more."""
_DIGESTED = 16 * 1024
"""Bytes from which on messages are digested where they are parsed, maybe in a thread; fewer are when it is needed."""
_EDITS, _BETA = "context_management", "context-management-2025-06-27"
"""Anthropic's field for its own edits, and the beta that it belongs to."""


class Asked(NamedTuple):
    """The circumstances of a request."""

    headers: Mapping[str, str]
    """The client's, names in lower case."""
    caller: Caller
    query: str = ""
    """Without the question mark."""
    may_choose_model: bool = False
    """True if a policy may send it to another model."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services that the steps of a chain, and the loop behind it, use."""

    tokens: TokenService
    archives: Archives
    hidden: HiddenParts
    once: OnceService
    memos: Memos
    shares: Shares
    prefixes: Prefixes
    """The prefixes sent before the answers of conversations."""
    corrections: CorrectionService
    memories: MemoryService
    parsed: Cache[tuple[str, bytes], ParsedList[Any]]
    """Parsed lists of earlier requests."""
    recalls: Threads
    """Threads in which the parts of archived texts are looked for."""
    reports: ReportMemory
    embedding: EmbeddingService | None = None
    judge: UpstreamJudge | None = None
    drafts: DraftService | None = None

    def bind(
        self,
        needs: Collection[Need],
        who: Identity,
        corrections: BoundCorrections | None,
        route: Route,
        headers: Mapping[str, str],
        outage: Outage,
    ) -> ContextServices:
        """Return the services that the steps of a chain need, for one request of a conversation."""
        embedding, drafts, judge = self.embedding, self.drafts if "writer" in needs else None, self.judge
        return ContextServices(
            embedder=embedding.bind(who) if embedding is not None and "embedding" in needs else None,
            drafts=None if drafts is None else drafts.bind(who, drafts.authorization(route.upstream, headers), outage),
            judge=judge.bind(who, judge.authorization(route.upstream, headers)) if judge and "judge" in needs else None,
            memories=self.memories.bind(who, outage) if "memories" in needs else None,
            corrections=corrections,
            inbox=self.shares.bind(who, outage) if who.is_named else None,  # else nobody could give it a text
        )

    @property
    def threads(self) -> tuple[Threads, ...]:
        return (*self.once.lanes.threads, *self.tokens.lanes.threads, self.recalls, self.corrections.threads)

    def forget(self, tenant: str) -> int:
        """Forget what this process has in memory of a tenant; how much that was."""
        forget: list[Callable[[str], int]] = [self.once.forget, self.parsed.forget, self.memos.forget]
        forget += [self.prefixes.forget, self.reports.forget]
        forget += [self.archives.forget_seen, self.memories.forget_read]
        forget += [each.forget for each in (self.embedding, self.judge, self.drafts) if each is not None]
        return sum(each(tenant) for each in forget)

    async def aclose(self) -> None:
        """Stop what they do in the background, but for writing, and give back their threads."""
        for service in (self.corrections, self.prefixes, self.embedding, self.judge):
            if service is not None:
                await service.aclose()
        self.tokens.close()
        self.once.close()
        self.recalls.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Chosen:
    """The chain that a request gets, one object for all requests that get it."""

    name: str | None
    """None where the request skips its chain."""
    steps: Chain
    """The guards of the model's own chain are among them in any case."""
    others: Sequence[BringsTools] = ()
    """The steps of other chains that bring tools."""

    @cached_property
    def guards(self) -> Sequence[tuple[str, Guard]]:
        return guards(self.steps)

    @cached_property
    def needs(self) -> frozenset[Need]:
        """The services that its steps work with; a step finds no other in its context."""
        return frozenset().union(*(policy.needs for _, policy in self.steps))

    @cached_property
    def bringing(self) -> Sequence[BringsTools]:
        return [policy for _, policy in self.steps if isinstance(policy, BringsTools)]

    @cached_property
    def observers(self) -> Sequence[AnswerObserver]:
        """The observers of answers that steps bring."""
        return [policy.observer for _, policy in self.steps if isinstance(policy, ObservesAnswers)]

    @cached_property
    def without_tools(self) -> "Chosen":
        steps = tuple(step for step in self.steps if not isinstance(step[1], BringsTools))
        return Chosen(self.name, steps, (*self.others, *self.bringing))


class Rewritten(Struct):
    """A request, and what its chain made of it."""

    sent: ChatRequest
    """As the client sent it."""
    outcome: Outcome
    ctx: Context
    """The context of its last step."""
    tokens: BoundTokens
    archive: BoundArchive
    tools: Sequence[InternalTool]
    """The internal tools that the model may call."""
    record: Record
    """Remembers what the client does not see of the answer."""
    settle: Settle | None = None
    """Keeps what is sent for the requests that follow; None where no answer can have signed reasoning."""
    watch: Observer | None = None
    """The observer of the answer, if a step wants to know its flaws."""
    is_guarded: bool = False
    """True if a guard may have removed something: then only `ctx.incoming` may be stored."""


class Prepared(Struct):
    """A request, ready to be sent."""

    route: Route
    call: Call
    rewritten: Rewritten | None
    """None where the client's bytes pass through and nobody reads the messages."""
    settle: Settle | None = None
    """Keeps what is sent for the requests that follow; None where no answer can have signed reasoning."""

    @property
    def chosen(self) -> tuple[str, str] | None:
        """The step that chose another model for the request, and that model."""
        return None if self.rewritten is None else self.rewritten.outcome.chosen

    @property
    def lowered(self) -> str | None:
        """The limit of the answer that was lowered to the room for it, as `max_tokens=7012`; None if none was."""
        sent, made = self.call.request, self.rewritten and self.rewritten.outcome.request
        if not sent or not made or sent.rest is made.rest or sent.max_output_tokens == made.max_output_tokens:
            return None
        return next(f"{name}={limit}" for name, limit in sent.output_limits.items())

    @property
    def watches(self) -> tuple[Observer, ...]:
        """The observers of the answer: for steps, and for its signature."""
        done = self.rewritten
        watches = () if done is None or done.watch is None else (done.watch,)
        return watches if self.settle is None else (*watches, SignedAnswer(self.settle))


class Preparation:
    """Prepares requests with one configuration."""

    def __init__(self, settings: Settings, services: Services, clock: Callable[[], float] = time.time) -> None:
        """`clock` is in seconds since 1970."""
        self._clock = clock
        self._server = settings.server
        self._chains = settings.chains
        self._services = services
        self._chosen: dict[tuple[str | None, str], Chosen] = {}

    def chain_of(self, route: Route, asked: Asked) -> Chosen:
        """Return the chain of a request: its model's, that of its own choice, or none at all.

        Raises `BadRequest` where the request asks for what it may not: a client must know that its words were not
        followed.
        """
        named, skips = self._named(asked), self._skips(asked)
        return self._chain(None if skips else named or route.chain, route)

    def _chain(self, name: str | None, route: Route) -> Chosen:
        chosen = self._chosen.get((name, route.chain))
        if chosen is None:
            steps = with_guards(() if name is None else self._chains[name], self._chains[route.chain])
            own = {id(policy) for _, policy in steps}
            others = {id(policy): policy for chain in self._chains.values() for _, policy in chain}
            brings = [each for key, each in others.items() if key not in own and isinstance(each, BringsTools)]
            chosen = self._chosen[name, route.chain] = Chosen(name, steps, brings)
        return chosen

    def _named(self, asked: Asked) -> str | None:
        chosen = asked.headers.get("x-penstock-chain")
        if chosen is None:
            return None
        if not self._server.may_choose_chain:
            raise BadRequest("x-penstock-chain is not allowed here; leave it out", code="chain_not_allowed")
        if chosen not in self._chains or not asked.caller.may_choose(chosen):
            known = ", ".join(sorted(filter(asked.caller.may_choose, self._chains)))
            raise BadRequest(f"x-penstock-chain names no chain; known: {known}", code="unknown_chain")
        return chosen

    def _skips(self, asked: Asked) -> bool:
        may = self._server.may_bypass and asked.caller.may_choose(BYPASS)
        if asked.headers.get("x-penstock-bypass", "").lower() != "true":
            # what the client itself sums up, it sums up whole
            return may and asked.headers.get("x-claude-code-request-class") == "compaction"
        if not may:
            raise BadRequest("x-penstock-bypass is not allowed here; leave it out", code="bypass_not_allowed")
        return True

    async def prepare(self, body: Body, route: Route, chosen: Chosen, asked: Asked) -> Prepared:
        """Return the call that goes upstream, and what the chain did. Raises `BadRequest` for a body that is none.

        A request that its chain rejects is prepared all the same: `Outcome.rejected` says so, and it must not be sent.
        """
        is_chat = body.wire == CHAT_WIRE
        if body.is_compaction:
            chosen = self._chain(None, route)
        binds = route.profile.binds_reasoning
        # a prefix of signed reasoning is read also without a chain: what is sent without one must stay so
        is_held = binds and (chosen.name is None or any(map(body.holds, SIGNS)))
        if not (chosen.steps or (is_chat and route.upstream.abilities.translates) or is_held):
            settle = partial(self._settle_untouched, body, asked) if binds else None
            return Prepared(route, await _untouched(body, route, asked), None, settle)
        done = await self.rewrite(body, route, chosen, asked)
        request = untagged(write_marks(done.outcome.request)).with_model(route.model)
        options = _asking(route, request.rest.get("stream_options")) if is_chat and request.stream else None
        if options is not None:
            request = request.with_field("stream_options", options)
        headers = _headers(chosen.guards, asked)
        if _EDITS in request.rest and _EDITS not in done.sent.rest:  # a step has asked for edits of the provider
            betas = filter(None, (headers.get("anthropic-beta"), _BETA))
            headers = {**headers, "anthropic-beta": ",".join(betas)}
        call = Call(
            body.path,
            route.model,
            b"" if done.outcome.is_emptied else body.raw if request is done.sent else request.encode(),
            headers,
            query=asked.query,
            request=request,
            profile=done.ctx.model,
            counted=done.outcome.after,
            tokens=done.tokens,
            hide_usage=options is not None,
            keep=lambda message: done.record(Hidden(message, (), message)),
            restores=done.outcome.restores,
        )
        fits = route.upstream.abilities.limits_answers and not done.outcome.is_emptied
        return Prepared(route, call.fitted() if fits else call, done, done.settle)

    def _settle_untouched(self, body: Body, asked: Asked, rounds: Sequence[Message]) -> None:
        """Keep what was sent as it came: a chain that runs later must not change it any more."""

        async def keep() -> None:
            with suppress(BadRequest):
                sent, who = await self._read(body, asked)
                Settled(self._services.prefixes, f"{who.tenant}\0{who.scope}", Outage()).record(sent, sent)(rounds)

        self._services.prefixes.begin(keep())

    async def _read(self, body: Body, asked: Asked) -> tuple[ChatRequest, Identity]:
        """Return the request in a body, and whose it is; a large one is read in a thread. Raises `BadRequest`."""
        tenant = asked.caller.tenant

        def read() -> tuple[ChatRequest, Identity]:
            known = (
                body if body.earlier is not None else type(body)(body.raw, TenantCache(self._services.parsed, tenant))
            )
            sent = known.parse(self._server.max_messages)
            if len(body.raw) > _DIGESTED:
                digest(sent.messages)
            return sent, identify(asked.headers, sent, tenant)

        return await do_sized(len(body.raw) + _PARSING * body.unread, read)

    async def rewrite(self, body: Body, route: Route, chosen: Chosen, asked: Asked, *, sends: bool = True) -> Rewritten:
        """Run the steps over a body. Raises `BadRequest` for one that is none.

        With `sends`, what the client does not send back of earlier turns is put back first. Without, nothing runs
        these tools, and the steps are told so.
        """
        begin_work()
        services = self._services
        sent, who = await self._read(body, asked)
        is_guarded = bool(chosen.guards)
        if is_guarded:
            tuple(sent.rest.values())  # a guard reads every field: one that cannot be read is the client's fault
        outage, scope = Outage(), f"{who.tenant}\0{who.scope}"
        incoming, signs = sent, route.upstream.abilities.signs
        may_lack = (sent.tools and chosen.bringing) or (body.wire == CHAT_WIRE and (signs or signed_places(sent)))
        if sends and may_lack:
            incoming = await services.hidden.restored(sent, scope, outage, signed=signs)
        # what the vendor has stored is not seen here, and rounds in it would be stored too
        runs_tools = sends and not (body.wire == "responses" and any(sent.rest.get(name) for name in _STORED))
        if sends and not runs_tools:  # nothing may leave that the model could not read again
            chosen = chosen.without_tools
        profile = await self._profile(route, who, chosen, incoming)
        archive, memo = services.archives.bind(who, outage), services.memos.bind(who, outage)
        once, counts = services.once.bind(who), services.memos.bind(who)  # without them nothing stays in the context
        tokens = await services.tokens.bind_conversation(who, profile, counts, len(body.raw))
        corrections = services.corrections.bind(who, chosen.observers, outage) if chosen.observers else None
        may_guard = any(policy.is_guard for _, policy in chosen.steps)  # be it one that only observes
        secret = await memo.settle("placeholders", token_hex()) if may_guard else ""
        ctx = Context(
            incoming=incoming,
            model=profile,
            identity=who,
            tokens=tokens,
            archive=archive if runs_tools or not sends else None,
            once=once,
            memo=memo,
            services=services.bind(chosen.needs, who, corrections, route, asked.headers, outage),
            conditions=self._conditions(sent, route, who, asked, runs_tools=runs_tools, sends=sends),
            secret=secret.encode(),
            outage=outage,
        )
        try:
            if profile.binds_reasoning:
                outcome, settle = await signed.run(chosen.steps, ctx, Settled(services.prefixes, scope, outage))
            else:
                outcome, settle = await run(chosen.steps, ctx), None
        except asyncio.CancelledError:  # the client has left; what a late step has begun goes on, for the next try
            once.give_up()
            raise
        if settle is not None and not sends:  # nobody sees the answer here
            settle(())
        watch = corrections.watch(sent) if corrections is not None and sends else None
        if outcome.incoming is not ctx.incoming:
            ctx = structs.replace(ctx, incoming=outcome.incoming or incoming)
        tools = self._tools(chosen, outcome, ctx) if sends else ()
        record = partial(services.hidden.record, request=sent, scope=scope, settle=settle, restores=outcome.restores)
        return Rewritten(sent, outcome, ctx, tokens, archive, tools, record, settle, watch, is_guarded)

    def _conditions(
        self, sent: ChatRequest, route: Route, who: Identity, asked: Asked, *, runs_tools: bool, sends: bool
    ) -> Conditions:
        edits = route.upstream.abilities.native_edits.get(sent.wire, frozenset())
        return Conditions(
            deadline=self._server.chain_deadline,
            patience=self._server.patience,
            headers=without_credentials(asked.headers),
            now=self._clock() // 60 * 60,
            runs_tools=runs_tools and sent.rest.get("n") in (None, 1),
            on_hold=self._services.reports.on_hold(who),
            native_edits=edits if sends else frozenset(),
            may_choose_model=sends and asked.may_choose_model,
        )

    async def _profile(self, route: Route, who: Identity, chosen: Chosen, request: ChatRequest) -> ModelProfile:
        """Return the model's profile, with the rules of the cache as the conversation uses it."""
        known = await route.upstream.profile(route.profile)
        profile = self._services.reports.applied(who, route.upstream.name, known)
        if not profile.cache.marked:
            return profile
        # the provider caches what is marked alone
        marked = (policy.marked_cache(profile.cache) for _, policy in chosen.steps if isinstance(policy, MarksCache))
        return replace(profile, cache=next(marked, profile.cache if find_marks(request) else UNCACHED))

    def _tools(self, chosen: Chosen, outcome: Outcome, ctx: Context) -> Sequence[InternalTool]:
        request = outcome.request
        if not request.tools:
            return ()
        names = listed(request.tools).names
        # what is held may offer more than the chain does now; of two that bring a tool, the chain's own runs it
        held = chosen.others if ctx.model.binds_reasoning else ()
        bringing = [
            policy
            for policy in (*held, *chosen.bringing)
            if not names.isdisjoint([kind.definition.name for kind in policy.internal_tools])
        ]
        if not bringing:
            return ()
        free = ctx.model.usable(request) - (0 if outcome.after is None else outcome.after.total)
        made = ToolContext(ctx, request, free, self._services.recalls)
        return [*{tool.name: tool for policy in bringing for tool in policy.build_tools(made)}.values()]


def _headers(guarding: Sequence[tuple[str, Guard]], asked: Asked) -> Mapping[str, str]:
    """Return the headers to forward, without those that a guard removes. Raise `Rejected` for such a query."""
    headers = forwarded(asked.headers)
    for name, guard in guarding:
        try:
            if guard.holds(unquote_plus(asked.query)):
                raise Rejected("the query has what a guard takes out", code="unguarded_field")
            headers = {
                name: text
                for name, text in headers.items()
                if name in CREDENTIALS or not (guard.holds(name) or guard.holds(text))
            }
        except PenstockError:
            raise
        except Exception as error:
            told = f"policy {name!r} failed: {type(error).__name__}"
            raise PenstockError(told, code="policy_failed", status=500) from None
    return headers


async def _untouched(body: Body, route: Route, asked: Asked) -> Call:
    """Return the call that an empty chain makes: the client's bytes, but for another name of the model."""
    body.check_messages()
    if body.holds(TAG.encode()):  # tags of tasks are for Penstock alone
        request = await do_sized(len(body.raw), body.parse)
        body = body if (bare := untagged(request)) is request else type(body)(bare.encode())
    changes: dict[str, Any] = {} if body.model == route.model else {"model": route.model}
    options = _asking(route, body.get("stream_options")) if body.wire == CHAT_WIRE and body.stream else None
    if options is not None:
        changes["stream_options"] = options
    raw = body.encoded(changes) if changes else body.raw
    headers = forwarded(asked.headers)
    return Call(
        body.path, route.model, raw, headers, query=asked.query, profile=route.profile, hide_usage=options is not None
    )


def _asking(route: Route, options: Any) -> dict[str, Any] | None:
    """Return the options that ask for the usage of a stream; None where the client has asked, or nobody has to."""
    own = options if isinstance(options, dict) else {}
    asks = route.upstream.abilities.ask_usage and own.get("include_usage") is not True
    return {**own, "include_usage": True} if asks else None
