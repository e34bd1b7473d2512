"""What a chain does to a request, shown without sending it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body
from proxy.config.load import Config
from proxy.config.settings import Chain
from proxy.context import Context, ModelProfile, TokenCount
from proxy.context.services import Pair
from proxy.economics import money, prompt_cost
from proxy.gateway import bound
from proxy.gateway.chain import Outcome, with_guards
from proxy.identity import ANONYMOUS
from proxy.models import Models
from proxy.models.tokens import TokenService
from proxy.server.build import build_embedding, build_upstreams, profiles
from proxy.state.archive import Archives
from proxy.state.store import MemoryStore
from proxy.step import Step
from proxy.telemetry.bill import Bills, Estimate, estimated
from proxy.upstreams.routing import Route, Routes


@dataclass(frozen=True, slots=True)
class Explained:
    """A request, and what its chain made of it."""

    incoming: ChatRequest
    route: Route
    chain: str
    outcome: Outcome
    usable: int
    seconds: float
    estimate: Estimate | None = None
    """What the prompt costs where the provider has the request before it in its cache; None without prices."""
    unasked: Mapping[str, int] = field(default_factory=dict)
    """By step, the pairs of texts that a running proxy would show the judge; here no model is asked."""


class _SilentJudge:
    """Stands for the judge: it knows no answer, and notes how much it was asked, and when."""

    def __init__(self) -> None:
        self._asked: list[tuple[float, int]] = []

    async def contradictions(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        """None for each."""
        self._asked.append((perf_counter(), len(pairs)))
        return [None] * len(pairs)

    replacements = contradictions

    def by_step(self, steps: Sequence[Step]) -> dict[str, int]:
        """How many pairs each step asked about; steps run one after the other."""
        found: Counter[str] = Counter()
        for when, count in self._asked:
            found[[step.policy for step in steps if step.started <= when][-1]] += count
        return dict(found)


async def explain(config: Config, raw: bytes, *, chain_name: str | None = None) -> Explained:
    """Run the chain over a request body. Raises `PenstockError` for a body or model that the proxy would refuse."""
    settings = config.settings
    routes = Routes(settings, build_upstreams(settings), profiles(Models()))
    incoming = Body(raw).parse()
    route = routes.of(incoming.model)
    name = chain_name or route.chain
    if name not in settings.chains:
        raise BadRequest(f"there is no chain {name!r}; known: {', '.join(settings.chains)}")
    steps = with_guards(settings.chains[name], settings.chains[route.chain])
    service = TokenService()
    tokens = service.bound(route.profile, ANONYMOUS.tenant)
    await tokens.count(incoming)  # loading a vocabulary is not the chain's time
    embedding = build_embedding(settings, None)
    embedder = None if embedding is None else embedding.bound(ANONYMOUS.tenant)
    if embedding is not None and any(step.needs_embedding for _, step in steps):
        await embedding.ready()  # nor is loading a model
    started = perf_counter()
    # what a step archives here is forgotten: nothing is sent that could refer to it
    archive = Archives(MemoryStore(2**28)).bound(ANONYMOUS.tenant, "explain")
    judge = None if settings.judge is None else _SilentJudge()
    ctx = Context(incoming, route.profile, ANONYMOUS, tokens, float("inf"), archive, embedder=embedder, judge=judge)
    outcome = await bound.run(steps, ctx)
    seconds = perf_counter() - started
    estimate = await _estimate(settings.chains[name], replace(ctx, judge=None), outcome)
    service.close()
    if embedding is not None:
        await embedding.aclose()
    unasked = {} if judge is None else judge.by_step(outcome.steps)
    return Explained(incoming, route, name, outcome, route.profile.usable(incoming), seconds, estimate, unasked)


async def _estimate(steps: Chain, ctx: Context, outcome: Outcome) -> Estimate | None:
    """What the prompt costs if the request before it, up to the last answer, was sent a moment ago."""
    bills, came = Bills(), ctx.incoming
    answers = [place for place, message in enumerate(came.messages) if message.get("role") == "assistant"]
    if outcome.rejected is not None or not ctx.model.prices.known:
        return None
    if answers and answers[-1]:
        before = came.with_messages(came.messages[: answers[-1]])
        sent = (await bound.run(steps, replace(ctx, incoming=before))).request
        known = await bills.estimate("", before, sent, ctx.model, ctx.tokens)
        if known is not None:
            bills.sent(known)
    return await bills.estimate("", came, outcome.request, ctx.model, ctx.tokens)


def render_table(explained: Explained, *, diff: bool = False) -> str:
    """A table for people: each step, its verdict, tokens before and after, and why."""
    about = "" if explained.route.profile.exact else "about "
    profile = explained.route.profile
    lines = [
        f"model {explained.incoming.model} -> {explained.route.upstream.name} ({profile.name}), chain "
        f"{explained.chain}; window {profile.window} ({profile.source}), usable {explained.usable}",
        "",
        *_columns([("step", "verdict", "before", "after", "ms", "why"), *map(_row, explained.outcome.steps)]),
        *_findings(explained.outcome.steps),
        *_unasked(explained.unasked),
        "",
        _conclusion(explained, about),
        *_cost(explained),
    ]
    if diff:
        lines += ["", *_diff(explained.incoming.messages, explained.outcome.request.messages)]
    return "\n".join(lines)


def render_json(explained: Explained, *, diff: bool = False) -> str:
    """The same for machines."""
    outcome, profile = explained.outcome, explained.route.profile
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
    profile, outcome = explained.route.profile, explained.outcome
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
