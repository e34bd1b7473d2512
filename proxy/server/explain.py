"""What a chain does to a request, shown without sending it."""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any

from proxy import __version__
from proxy.access.callers import Callers, without_account
from proxy.chat import ChatRequest, Message
from proxy.chat.errors import BadRequest, UpstreamFailed
from proxy.chat.parse import Body
from proxy.config.load import Config
from proxy.config.settings import Settings
from proxy.config.state_settings import RedisStateSettings, StateSettings
from proxy.context import Material, ModelProfile, TokenCount
from proxy.context.services import Pair, Question
from proxy.economics import money, prompt_cost
from proxy.gateway.chain import Outcome
from proxy.gateway.prepare import Asked, Chosen, Preparation, Rewritten, Services
from proxy.llm.verdicts import Asker, VerdictService
from proxy.models import Models
from proxy.server.build import build_index, build_services, build_store, build_upstreams, build_writing, profiles
from proxy.state.overlay import Overlay
from proxy.step import Step
from proxy.telemetry import Telemetry
from proxy.telemetry.bill import Bills, Estimate, estimated
from proxy.telemetry.metrics import Metrics
from proxy.upstreams.routing import Route, Routes

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Explained:
    """A request, and what its chain made of it."""

    incoming: ChatRequest
    route: Route
    profile: ModelProfile
    chain: str
    outcome: Outcome
    body: bytes | None
    """What would go to the upstream; None where the chain refuses the request."""
    seconds: float
    estimate: Estimate | None = None
    """What the prompt costs where the provider has the request before it in its cache; None without prices."""
    ignored: Sequence[str] = ()
    """The fields that the upstream has nothing for."""
    unasked: Mapping[str, int] = field(default_factory=dict)
    """By step, the pairs of texts that a running proxy would show the judge; here no model is asked."""

    @property
    def usable(self) -> int:
        """The tokens of the window that the prompt may have."""
        return self.profile.usable(self.incoming)


class _SilentJudge(VerdictService):
    """Stands for the judge: it knows no answer, and notes how much it was asked, and when."""

    def __init__(self) -> None:
        super().__init__(batch=1, most=0, most_of_one=0)
        self._asked: list[tuple[float, int]] = []

    async def of(
        self, tenant: str, question: Question, pairs: Sequence[Pair], wait: float, headers: Mapping[str, str]
    ) -> list[float | None]:
        """None for each."""
        self._asked.append((perf_counter(), len(pairs)))
        return [None] * len(pairs)

    async def judged(self, asker: Asker, question: Question, pairs: Sequence[Pair]) -> Sequence[float | None]:
        """None for each."""
        return [None] * len(pairs)

    def by_step(self, steps: Sequence[Step]) -> dict[str, int]:
        """How many pairs each step asked about; steps run one after the other."""
        found: Counter[str] = Counter()
        for when, count in self._asked:
            found[[step.policy for step in steps if step.started <= when][-1]] += count
        return dict(found)


async def explain(
    config: Config, raw: bytes, *, chain_name: str | None = None, headers: Mapping[str, str] = _NO_HEADERS
) -> Explained:
    """Prepare a request as it would be served, and send nothing. `headers` are the client's, names in lower case.

    The state is read as it is configured and nothing in it is changed; no model is asked, and the steps have all the
    time that they need. Raises `PenstockError` for what the proxy would refuse before the chain runs.
    """
    settings = config.settings
    server = settings.server.model_copy(update={"chain_deadline": float("inf"), "may_choose_chain": True})
    settings = settings.model_copy(update={"server": server, "state": _existing(settings.state)})
    caller = Callers(settings.auth).of(headers) if headers else None
    body, routes = Body(raw), Routes(settings, build_upstreams(settings), profiles(Models()))
    route = routes.of(body.model, caller)
    name = chain_name or route.chain
    if name not in settings.chains:
        raise BadRequest(f"there is no chain {name!r}; known: {', '.join(settings.chains)}")
    kept = without_account(headers) if caller is not None and caller.key is not None else headers
    asked = Asked({**kept, "x-penstock-chain": chain_name} if chain_name else kept, caller=caller)
    judge = None if settings.judge is None else _SilentJudge()
    async with _reading(settings, routes, judge) as (services, store):
        preparation = Preparation(settings, services)
        chosen = preparation.chain_of(route, asked)
        incoming = body.parse(server.max_messages)
        await services.tokens.bound(route.profile, "").count(incoming)  # loading a vocabulary is not the chain's time
        if services.embedding is not None and any(step.needs_embedding for _, step in chosen.steps):
            await services.embedding.ready()  # nor is loading a model
        started = perf_counter()
        prepared = await preparation.prepare(body, route, chosen, asked)
        seconds = perf_counter() - started
        done = prepared.rewritten
        if done is None:
            outcome = Outcome(incoming, (), None, None)
            return Explained(incoming, route, route.profile, name, outcome, prepared.call.body, seconds)
        unasked = {} if judge is None else judge.by_step(done.outcome.steps)
        await store.clear()
        estimate = await _estimate(preparation, done, route, chosen, asked)
        ignored: Sequence[str] = ()
        with suppress(UpstreamFailed):  # what reads the request is not installed here
            ignored = await route.upstream.ignored(prepared.call)
    sent = prepared.call.body if done.outcome.rejected is None else None
    return Explained(done.sent, route, done.ctx.model, name, done.outcome, sent, seconds, estimate, ignored, unasked)


@asynccontextmanager
async def _reading(
    settings: Settings, routes: Routes, judge: VerdictService | None
) -> AsyncGenerator[tuple[Services, Overlay]]:
    """The services of a configuration, over state of which nothing is changed; no model writes or judges for them."""
    telemetry, store, index = (
        Telemetry(Metrics(__version__)),
        Overlay(build_store(settings.state)),
        build_index(settings),
    )
    writing = build_writing(settings, routes, store, telemetry, _write_nothing)
    services = replace(build_services(settings, store, index, telemetry), writing=writing, judge=judge)
    try:
        yield services, store
    finally:
        drafts = None if writing is None else writing.drafts
        for each in (drafts, services, index, *routes.upstreams, store, telemetry):
            if each is not None:
                await each.aclose()


def _existing(state: StateSettings | RedisStateSettings) -> StateSettings | RedisStateSettings:
    """The settings of the state, but in memory where its directory is not there yet: reading must not make it."""
    if isinstance(state, StateSettings) and not Path(state.directory).expanduser().exists():
        return state.model_copy(update={"kind": "memory"})
    return state


async def _write_nothing(material: Material, headers: Mapping[str, str]) -> None:
    """Stands for the writer: what it has not written yet is not there."""


async def _estimate(
    preparation: Preparation, done: Rewritten, route: Route, chosen: Chosen, asked: Asked
) -> Estimate | None:
    """What the prompt costs if the request before it, up to the last answer, was sent a moment ago."""
    bills, came, model = Bills(), done.sent, done.ctx.model
    answers = [place for place, message in enumerate(came.messages) if message.get("role") == "assistant"]
    if done.outcome.rejected is not None or not model.prices.known:
        return None
    if answers and answers[-1]:
        before = came.with_messages(came.messages[: answers[-1]])
        earlier = await preparation.rewrite(Body(before.encode()), route, chosen, asked)
        known = await bills.estimate("", before, earlier.outcome.request, model, done.tokens)
        if known is not None:
            bills.sent(known)
    return await bills.estimate("", came, done.outcome.request, model, done.tokens)


def render_table(explained: Explained, *, diff: bool = False) -> str:
    """A table for people: each step, its verdict, tokens before and after, and why."""
    profile = explained.profile
    about = "" if profile.exact else "about "
    lines = [
        f"model {explained.incoming.model} -> {explained.route.upstream.name} ({profile.name}), chain "
        f"{explained.chain}; window {profile.window} ({profile.source}), usable {explained.usable}",
        "",
        *_columns([("step", "verdict", "before", "after", "ms", "why"), *map(_row, explained.outcome.steps)]),
        *_findings(explained.outcome.steps),
        *_unasked(explained.unasked),
        *(["", f"the upstream has nothing for {', '.join(explained.ignored)}"] if explained.ignored else []),
        "",
        _conclusion(explained, about),
        *_cost(explained),
    ]
    if diff:
        lines += ["", *_diff(explained.incoming.messages, explained.outcome.request.messages)]
    return "\n".join(lines)


def render_json(explained: Explained, *, diff: bool = False) -> str:
    """The same for machines."""
    outcome, profile = explained.outcome, explained.profile
    data: dict[str, Any] = {
        "model": explained.incoming.model,
        "upstream": explained.route.upstream.name,
        "chain": explained.chain,
        "window": profile.window,
        "usable": explained.usable,
        "exact": profile.exact,
        "tokens_before": outcome.before.total if outcome.before else None,
        "tokens_after": outcome.after.total if outcome.after else None,
        "prompt_usd_before": _prompt_usd(profile, outcome.before),
        "prompt_usd_after": _prompt_usd(profile, outcome.after),
        **estimated(explained.estimate),
        "rejected": outcome.rejected.why if outcome.rejected else None,
        "steps": [step.shown() for step in outcome.steps],
        "judge_not_asked": dict(explained.unasked),
        "ignored": list(explained.ignored),
    }
    if diff:
        data["diff"] = _diff(explained.incoming.messages, outcome.request.messages)
    return json.dumps(data, indent=2, ensure_ascii=False)


def render_models(config: Config) -> str:
    """The models of the configuration, and what is known about each."""
    upstreams = build_upstreams(config.settings)
    profile_of = profiles(Models())
    rows: list[tuple[str, ...]] = [("model", "upstream", "chain", "window", "reserve", "tokenizer", "counts", "source")]
    for entry in config.settings.models:
        for name in entry.match:
            upstream = upstreams[entry.upstream]
            profile = profile_of(entry.model or name, entry, upstream)
            counts = "exact" if profile.exact else f"estimate x{profile.factor:g}"
            known = (str(profile.window), str(profile.reserve), profile.encoding, counts, profile.source)
            if any(mark in name for mark in "*?[") and profile.source == "default":
                known = ("by model", "", "", "", "")
            rows.append((name, upstream.name, entry.chain, *known))
    return "\n".join(_columns(rows))


def _row(step: Step) -> tuple[str, ...]:
    verdict = f"({step.verdict})" if step.observed else step.verdict
    sizes = ["-" if size is None else str(size) for size in (step.tokens_before, step.tokens_after)]
    return (step.policy, verdict, *sizes, f"{step.seconds * 1000:.2f}", step.why)


def _findings(steps: Sequence[Step]) -> list[str]:
    lines = [f"  {step.policy}: {finding}" for step in steps for finding in step.findings]
    return ["", "findings", *lines] if lines else []


def _unasked(pairs: Mapping[str, int]) -> list[str]:
    lines = [f"  {step}: {count} {'pair' if count == 1 else 'pairs'} of texts" for step, count in pairs.items()]
    return ["", "the judge was not asked here; `penstock serve` would ask it about", *lines] if lines else []


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _conclusion(explained: Explained, about: str) -> str:
    outcome = explained.outcome
    if outcome.rejected is not None:
        return f"rejected with {outcome.rejected.status} {outcome.rejected.code}: nothing would be sent"
    if outcome.before is None or outcome.after is None:
        return "an empty chain: the bytes pass through as they are"
    before, after = outcome.before, outcome.after
    share = f"{after.total / explained.usable:.1%} of the usable window"
    sections = f"system {after.system}, tools {after.tools}, conversation {after.messages}"
    if outcome.request is explained.incoming:
        return f"unchanged: {about}{before.total} tokens ({sections}), {share}; the client's bytes pass through"
    return f"{about}{before.total} -> {after.total} tokens ({sections}), {share}; {explained.seconds * 1000:.1f} ms"


def _cost(explained: Explained) -> list[str]:
    profile, outcome = explained.profile, explained.outcome
    before, after = (_prompt_usd(profile, count) for count in (outcome.before, outcome.after))
    if outcome.rejected is not None or before is None or after is None:
        return []
    lines = [f"${before:.6f} -> ${after:.6f} for the prompt, if nothing of it is in the provider's cache"]
    running = explained.estimate
    if running is not None and running.usd_unchanged is not None and running.usd_saved is not None:
        lines.append(
            f"${running.usd_unchanged:.6f} -> ${running.usd:.6f} right after the request before it, of which "
            f"{running.cached} tokens are read from the cache: ${running.usd_saved:.6f} saved, net"
        )
    return lines


def _prompt_usd(profile: ModelProfile, count: TokenCount | None) -> float | None:
    """US dollars for a prompt of which nothing is in the provider's cache; None where prices are not known."""
    if count is None or not profile.prices.known:
        return None
    return round(money(profile.prices.at(count.total), prompt_cost(profile.cache, 0, count.total)), 9)


def _diff(before: Sequence[Message], after: Sequence[Message]) -> list[str]:
    """Which messages left (-) and came (+), with the first characters of each; unchanged ones are counted."""
    kept = {id(message) for message in after}
    old = {id(message) for message in before}
    lines = [f"- [{index}] {_short(message)}" for index, message in enumerate(before) if id(message) not in kept]
    lines += [f"+ [{index}] {_short(message)}" for index, message in enumerate(after) if id(message) not in old]
    return [*lines, f"  {len(kept & old)} messages unchanged"]


def _short(message: Message) -> str:
    calls = f" calls {', '.join(message.called_tools)}" if message.called_tools else ""
    text = " ".join(message.text.split())
    return f"{message.role}:{calls} {text[:80]}{'...' if len(text) > 80 else ''} ({len(message.raw)} bytes)"
