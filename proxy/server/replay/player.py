"""Requests played through the path of served ones, and what follows an answer, without an upstream."""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any

from proxy import __version__
from proxy.access.callers import Caller, without_account
from proxy.chat import Message, encode
from proxy.chat.errors import BadRequest, UpstreamFailed
from proxy.chat.parse import Body
from proxy.chat.reasoning import is_signed
from proxy.config.settings import Chain, RedisStateSettings, Settings, StateSettings
from proxy.context import Identity, Material, ModelProfile, Pair, Question, TokenCount
from proxy.gateway.hidden import Hidden
from proxy.gateway.prepare import Asked, Chosen, Preparation, Prepared, Rewritten, Services
from proxy.gateway.relay import learn
from proxy.identity import tenant_of
from proxy.llm.judge import UpstreamJudge
from proxy.models.tokens import BoundTokens
from proxy.models.usage import Usage
from proxy.server.build import build_index, build_services, build_stores, build_upstreams, build_writing, services_over
from proxy.server.replay.reading import answer_in
from proxy.state.sqlite import Overlay
from proxy.state.store import Store
from proxy.telemetry.bill import Bills, Effect, Estimate
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Telemetry
from proxy.upstreams.base import Reply
from proxy.upstreams.routing import Route, Routes
from proxy.wires import body_of

_PATIENCE = 3600.0
"""Seconds that a step has: nobody waits for an answer here."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A request after its chain, unsent."""

    prepared: Prepared
    done: Rewritten
    chain: str
    before: TokenCount
    after: TokenCount
    seconds: float
    estimate: Estimate | None
    """The price of the prompt if the provider has the requests before it in its cache; None if it is refused."""
    effects: Sequence[Effect]
    unasked: Mapping[str, int]
    """Pairs of texts that a running proxy would show the judge, and texts that it would compare by meaning: here no
    small model is asked, and a large one of meaning is not loaded."""
    ignored: Sequence[str] = ()

    @property
    def body(self) -> bytes | None:
        """The body for the upstream; None if the chain refuses the request."""
        return self.prepared.call.body if self.done.outcome.rejected is None else None

    @property
    def usable(self) -> int:
        return self.done.ctx.model.usable(self.done.sent)


def check_chain(settings: Settings, name: str | None) -> None:
    """Raise `BadRequest` for the name of a chain that the configuration does not have."""
    if name is not None and name not in settings.chains:
        raise BadRequest(f"there is no chain {name!r}; known: {', '.join(settings.chains)}")


class Player:
    """The player of requests, one after the other. For use on one event loop."""

    def __init__(self, settings: Settings, routes: Routes, services: Services, store: Overlay, unasked: Counter[str]):
        """Nothing is written but to `store`. The services here count in `unasked` what they cannot answer."""
        self._settings, self._routes, self._services, self._store = settings, routes, services, store
        self._unasked = unasked
        self._now = time.time()  # stands still while a request is played
        self._preparation = Preparation(settings, services, lambda: self._now)
        self._bills = Bills(clock=lambda: self._now)

    async def play(
        self,
        raw: bytes,
        *,
        chain: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        caller: Caller | None = None,
        at: float | None = None,
        conversation: str | None = None,
    ) -> Explained:
        """Prepare a request as served `at` seconds since 1970, with its `conversation` in the provider's cache."""
        self._now = self._now if at is None else at
        body, caller = body_of(raw), caller or Caller(tenant_of(headers))
        route = self._routes.of(body.model, caller.may_use)
        check_chain(self._settings, chain)
        kept = without_account(headers) if caller.key is not None else headers
        asked = Asked({**kept, "x-penstock-chain": chain} if chain else kept, caller)
        chosen = self._preparation.chain_of(route, asked)
        # loading a vocabulary, or an embedding model, is not the chain's time
        count = await self.counter(route.profile).count(body.parse(self._settings.server.max_messages))
        embedding = self._services.embedding
        if embedding is not None and any("embedding" in policy.needs for _, policy in chosen.steps):
            await embedding.loaded()
        self._unasked.clear()  # of the work behind an earlier request
        started, prepared = perf_counter(), await self._preparation.prepare(body, route, chosen, asked)
        seconds, done, unasked = perf_counter() - started, prepared.rewritten, dict(+self._unasked)
        if done is None:  # the bytes pass through
            done = await self._preparation.rewrite(body, route, Chosen(None, ()), asked)
        bills, key = self._bills, (conversation or "", f"{route.upstream.name}\0{done.ctx.model.name}")
        if conversation is None:
            await self._store.clear()
            bills = await self._bills_before(key, type(body), done, route, chosen, asked)
        estimate, effects = await _priced(bills, key, done)
        # without steps nobody counted
        before, after, chain = done.outcome.before or count, done.outcome.after or count, chosen.name or route.chain
        return Explained(prepared, done, chain, before, after, seconds, estimate, effects, unasked)

    async def commit(self, played: Explained, answer: Message | None = None, usage: Usage | None = None) -> None:
        """Do the work that follows an answer. The answer and the reported usage are optional."""
        done, call, upstream = played.done, played.prepared.call, played.prepared.route.upstream
        if played.body is None:
            return
        if played.estimate is not None:
            self._bills.sent(played.estimate)
            if usage is not None and (model := done.ctx.model).prices.known:
                read = played.estimate.sent.cached
                self._services.reports.note(done.ctx.identity, upstream.name, model.name, read, usage.cached)
        if done.settle is not None and (answer is None or is_signed(answer)):
            done.settle(())
        if answer is not None and upstream.abilities.signs and is_signed(answer):
            await done.record(Hidden(answer, (), answer))
        if answer is not None and done.watch is not None:
            done.watch.feed(encode({"choices": [{"index": 0, "message": answer, "finish_reason": None}]}))
            done.watch.ended(Reply(200), Usage())
        if usage is not None:
            learn(call, Reply(200), usage, translates=False)
        await self._settle()

    def counter(self, profile: ModelProfile) -> BoundTokens:
        """Return the model's counter as it was before it learned from usage: the same in each turn."""
        return self._services.tokens.bind(Identity(""), profile)

    async def originals(self, played: Explained, handles: Sequence[str]) -> list[str]:
        found = [await played.done.archive.fetch(handle) for handle in handles]
        return [text for text in found if text is not None]

    async def forget(self) -> None:
        await self._store.clear()

    async def _settle(self) -> None:
        """Wait for what is done in the background: a client takes longer to send its next request."""
        services = self._services
        await services.corrections.settled()
        await services.prefixes.aclose()  # it waits for what is being kept
        if services.drafts is not None:
            await services.drafts.drain()
        if services.embedding is not None:
            await services.embedding.settled()

    async def _bills_before(
        self, key: tuple[str, str], kind: type[Body], done: Rewritten, route: Route, chosen: Chosen, asked: Asked
    ) -> Bills:
        """Return the bills of a conversation that has just sent its messages up to the last answer."""
        bills, came = Bills(), done.sent
        answers = [place for place, message in enumerate(came.messages) if message.get("role") == "assistant"]
        if answers and answers[-1] and done.outcome.rejected is None and done.ctx.model.prices.known:
            before = came.with_messages(came.messages[: answers[-1]])
            if before.flaw() is None:
                earlier = await self._preparation.rewrite(kind(before.encode()), route, chosen, asked)
                known, _ = await _priced(bills, key, earlier)
                if known is not None:
                    bills.sent(known)
        return bills


async def _priced(bills: Bills, key: tuple[str, str], done: Rewritten) -> tuple[Estimate | None, Sequence[Effect]]:
    outcome, unknown = done.outcome, [Effect()] * len(done.outcome.steps)
    if outcome.rejected is not None:
        return None, unknown
    estimate = await bills.estimate(key, done.sent, outcome.request, done.ctx.model, done.tokens)
    effects = await bills.effects(estimate, outcome.start, outcome.stages, outcome.steps, done.tokens)
    return estimate, effects if done.ctx.model.prices.known else unknown


async def play_all(player: Player, raw: bytes, before: Sequence[bytes], **how: Any) -> Explained:
    """Play a request behind those before it, each of which was answered as the next one says."""
    talk = "the request" if before else None
    for earlier, later in pairwise((*before, raw)):
        played = await player.play(earlier, conversation=talk, **how)
        await player.commit(played, answer_in(played.done.sent, body_of(later).parse()))
    explained = await player.play(raw, conversation=talk, **how)
    with suppress(UpstreamFailed):  # what reads the request is not installed here
        return replace(explained, ignored=await explained.prepared.route.upstream.ignored(explained.prepared.call))
    return explained


class SilentJudge(UpstreamJudge):
    """A judge without answers, whose questions are counted."""

    unasked: Counter[str]

    async def of(
        self, tenant: str, question: Question, pairs: Sequence[Pair], wait: float, headers: Mapping[str, str]
    ) -> list[float | None]:
        self.unasked["judge"] += len(pairs)
        return [None] * len(pairs)


@asynccontextmanager
async def open_player(settings: Settings, *, reads_state: bool = False, loads: bool = True) -> AsyncGenerator[Player]:
    """Return a player with services of its own, which may read the configured state, and load models of vectors."""
    settings, state = patient(settings, may_choose_chain=True), settings.state
    if not (reads_state and _exists(state)):
        settings = settings.model_copy(update={"state": StateSettings(kind="memory", ttl=state.ttl)})
    telemetry, unasked = Telemetry(Metrics(__version__)), Counter[str]()
    routes = Routes(settings, build_upstreams(settings))
    store, index = build_stores(settings).store, build_index(settings) if reads_state else None
    missing = None if loads else lambda count: unasked.update(vectors=count)
    services = build_services(settings, store, index, telemetry, patient=True, missing=missing)
    async with AsyncExitStack() as stack:
        for each in (telemetry, store, *routes.upstreams, index, services):
            if each is not None:
                stack.push_async_callback(each.aclose)
        yield await stack.enter_async_context(player_beside(settings, routes, services, store, unasked))


@asynccontextmanager
async def player_beside(
    settings: Settings, routes: Routes, services: Services, store: Store, unasked: Counter[str] | None = None
) -> AsyncGenerator[Player]:
    """Return a player beside services: it reads what they keep, changes nothing of it, and asks no small model."""
    over, metrics, judge = Overlay(store), Metrics(__version__), None
    unasked = Counter() if unasked is None else unasked
    if settings.judge is not None:
        judge = SilentJudge(settings.judge, routes, metrics)
        judge.unasked = unasked
    drafts = build_writing(settings, routes, over, metrics, _write_nothing)
    own = replace(services_over(services, over, settings, metrics), judge=judge, drafts=drafts)
    try:
        yield Player(settings, routes, own, over, unasked)
    finally:
        for each in (drafts, own.corrections, own.prefixes, over):
            if each is not None:
                await each.aclose()


def patient(settings: Settings, seconds: float = _PATIENCE, **server: Any) -> Settings:
    """Return the settings with so much time for the chain and each of its steps, and with these of the server."""
    chains: dict[str, Chain] = {
        name: tuple((step, policy.model_copy(update={"timeout": seconds})) for step, policy in steps)
        for name, steps in settings.chains.items()
    }
    of_server = settings.server.model_copy(update={"chain_deadline": seconds, **server})
    return settings.model_copy(update={"server": of_server, "chains": chains})


def _exists(state: StateSettings | RedisStateSettings) -> bool:
    """Return whether there is a state to read: reading must not make its directory."""
    return not isinstance(state, StateSettings) or Path(state.directory).expanduser().exists()


async def _write_nothing(material: Material, headers: Mapping[str, str]) -> None:
    pass
