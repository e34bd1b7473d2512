"""The runner: a fold of policies over a request, each gated, timed, checked and recorded."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import structs

from proxy.chat import ChatRequest, with_fields
from proxy.chat.reasoning import is_signed
from proxy.chat.wire import damage, flaws
from proxy.context import Context, TokenCount
from proxy.policy import ActsNatively, Choose, Decision, Fact, Guard, Keep, Policy, Reject, Rewrite
from proxy.step import Step, Verdict
from proxy.work_time import current_work

_FULL = 0.94
"""The share of the usable window that what gives way may fill: just below what `reject_oversize` refuses."""

_BOUND = "signed reasoning is bound to what was sent before"
"""The reason for which a step does not run that would change it."""

_MOST_FINDINGS = 20
"""Findings of one step that are told; of more, only their number."""

_QUOTED = re.compile(r"'[^']*'")

Steps = Sequence[tuple[str, Policy]]
"""Policies with their names in YAML, in order."""


class BrokenRequest(Exception):
    """A policy returned a request that breaks a wire rule; the message names the rules."""


class _Undecided(NamedTuple):
    """The outcome of a step that did not run, or that failed."""

    verdict: Literal["skip", "fail"]
    why: str
    facts: Mapping[str, Fact] = MappingProxyType({})
    findings: Sequence[str] = ()


@dataclass
class Outcome:
    """The result of a chain for a request."""

    request: ChatRequest
    steps: tuple[Step, ...]
    before: TokenCount | None
    after: TokenCount | None
    rejected: Reject | None = None
    late: bool = False
    """True if a step before the rejecting one timed out: with it, the request might have passed."""
    incoming: ChatRequest | None = None
    """The request that counts as the client's from here on, as a step may define it."""
    stages: tuple[tuple[str, ChatRequest], ...] = ()
    """The request behind each step that changed it."""
    restores: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Originals to restore in the answer's texts, by their placeholders."""
    is_emptied: bool = False
    """True if a guard rejected it: the texts of the request are gone, and it has no form on a wire."""
    chosen: tuple[str, str] | None = None
    """The step that chose another model, and that model: the chain ended there."""
    start: ChatRequest | None = None
    """The first step's input; None if a later step's input was not its predecessor's output."""


def guards(own: Steps) -> Sequence[tuple[str, Guard]]:
    """Return the steps of a model's own chain that no request may skip."""
    return [(name, step) for name, step in own if step.is_guard and isinstance(step, Guard) and step.mode == "enforce"]


def with_guards(steps: Steps, own: Steps) -> tuple[tuple[str, Policy], ...]:
    """Return the steps of a chain that a request chose, behind the guards of the model's own chain that they lack."""
    return (*(each for each in guards(own) if each not in steps), *steps)


async def run(chain: Steps, ctx: Context, *, start: ChatRequest | None = None, strict: bool = False) -> Outcome:
    """Run a chain over `ctx.incoming`, or over what was made of it already (`start`).

    A fault leaves the request as it was before the step, or rejects it with status 500 where the step's `on_error`
    says so. With `strict`, as in tests, it is raised instead.
    """
    first = ctx.incoming if start is None else start
    if not chain:
        return Outcome(first, (), None, None, start=first)
    before, count = await ctx.tokens.count(ctx.incoming), await ctx.tokens.count(first)
    work = _Run(ctx, first, count, strict=strict)
    with work.time:
        for name, policy in chain:
            ending = await work.step(name, policy)
            if ending is not None:
                outcome = Outcome(work.request, tuple(work.steps), before, work.count, late=work.late)
                return _ended(with_fields(outcome, incoming=work.ctx.incoming), name, policy, ending)
    return Outcome(
        work.request,
        tuple(work.steps),
        before,
        work.count,
        incoming=work.ctx.incoming,
        stages=tuple(work.stages),
        restores=work.restores,
        start=first,
    )


def _ended(outcome: Outcome, name: str, policy: Policy, decision: Reject | Choose) -> Outcome:
    """Return an outcome at the step that ends the chain. Texts that a guard rejected are stored nowhere."""
    if isinstance(decision, Choose):
        return with_fields(outcome, chosen=(name, decision.model))
    if not policy.is_guard:
        return with_fields(outcome, rejected=decision)
    empty = outcome.request.with_messages(()).with_tools(())
    return with_fields(outcome, request=empty, incoming=empty, rejected=decision, is_emptied=True)


async def count_checked(
    policy: Policy, request: ChatRequest, before: TokenCount, decision: Decision, ctx: Context
) -> TokenCount:
    """Return the tokens of the request after a decision about it.

    Raises `BrokenRequest` where the decision may not stand: it breaks a wire rule, or the policy has not declared what
    it does.
    """
    if isinstance(decision, (Keep, Reject, Choose)):
        return before
    if not isinstance(decision, Rewrite):
        raise BrokenRequest(f"apply() returned {type(decision).__name__}, not Keep, Rewrite, Reject or Choose")
    if ignored := sorted(_ignored(request, decision.request)):
        raise BrokenRequest("; ".join(ignored))
    if broken := _broken(policy, request, decision.request):
        raise BrokenRequest("; ".join(sorted(broken)))
    after = await ctx.tokens.count(decision.request)
    if after.total > before.total and not policy.may_grow:
        raise BrokenRequest(f"the request grew from {before.total} to {after.total} tokens")
    return after


def _broken(policy: Policy, before: ChatRequest, after: ChatRequest) -> frozenset[str]:
    # what is no part of the conversation may leave even if it is the last user message
    if policy.defines_conversation:
        broken = flaws(after) - flaws(before)
    else:
        broken = damage(before, after, changes_last_user_message=policy.changes_last_user_message)
    if policy.is_guard:  # it may have renamed what the client's own flaw is about
        known = {_QUOTED.sub("", flaw) for flaw in flaws(before)}
        broken = frozenset(flaw for flaw in broken if _QUOTED.sub("", flaw) not in known)
    flaw = after.flaw()
    return broken if flaw is None else broken | {flaw}


def _ignored(before: ChatRequest, after: ChatRequest) -> Iterator[str]:
    """Yield the changes of a rewrite that nothing would follow."""
    if after.model != before.model:
        yield "the model was changed: return Choose(model, why) to send a request to another one"
    if after.stream != before.stream:
        yield "stream was changed, but the client reads the answer in the form that it asked for"
    if {"model", "messages", "tools"} & after.rest.keys() - before.rest.keys():
        yield "rest has what is a field of its own: use with_messages() or with_tools()"


class _Run:
    """A chain at work on a request."""

    def __init__(self, ctx: Context, request: ChatRequest, count: TokenCount, *, strict: bool) -> None:
        self.ctx, self._strict = ctx, strict
        self.time = current_work()
        self.steps: list[Step] = []
        self.stages: list[tuple[str, ChatRequest]] = []
        self.restores: dict[str, str] = {}
        self.late = False
        self._is_bound = bool(ctx.frozen or ctx.conditions.on_hold)
        self._deadline = ctx.conditions.deadline
        """It moves by the work that does not count against it."""
        self._goes_on(request, count)

    def _goes_on(self, request: ChatRequest, count: TokenCount) -> None:
        self.request, self.count, self._tokens = request, count, count.total
        self._usable = self.ctx.model.usable(request)
        self._is_full = self._fills(count)

    def _fills(self, count: TokenCount) -> bool:
        return count.total > _FULL * self._usable

    async def step(self, name: str, policy: Policy) -> Reject | Choose | None:
        """Run one step, and return its decision where that ends the chain."""
        started, tokens = perf_counter(), self._tokens
        unmet = self._unmet(name, policy) if self._is_bound or policy.when is not None else None
        after = self.count
        if unmet is None:
            decision, after = await self._decide(policy)
        else:
            decision = (self._natively(policy) if unmet == _BOUND else None) or _Undecided("skip", unmet)
        verdict, why, facts = _verdict(decision)
        left = after.total if verdict == "rewrite" else tokens
        is_observed, seconds = policy.mode == "observe", perf_counter() - started
        findings = _limited(decision.findings) if decision.findings else ()
        self.steps.append(Step(name, verdict, why, seconds, started, tokens, left, facts, is_observed, findings))
        if is_observed or verdict in ("keep", "skip"):
            return None
        if verdict == "fail" and policy.on_error == "reject":
            return Reject(f"policy {name!r} failed: {why}", code="policy_failed", status=500)
        if isinstance(decision, Rewrite):
            self._rewritten(name, policy, decision, after)
        return decision if isinstance(decision, (Reject, Choose)) else None

    def _rewritten(self, name: str, policy: Policy, decision: Rewrite, after: TokenCount) -> None:
        before, request, ctx = self.request, decision.request, self.ctx
        self.stages.append((name, request))
        self.restores |= decision.restores
        if (policy.defines_conversation or policy.is_guard) and not ctx.frozen:
            # tools that an earlier step has left out can still be searched
            same_tools = request.tools is before.tools
            self.ctx = structs.replace(ctx, incoming=request.with_tools(ctx.incoming.tools) if same_tools else request)
        self._goes_on(request, after)

    async def _decide(self, policy: Policy) -> tuple[Decision | _Undecided, TokenCount]:
        """Return the decision, or what went wrong, and the tokens behind it.

        A guard is waited for, and so is a step without which the prompt may not fit. The first request of a long
        conversation has the most to do: on a busy machine it would be refused again and again.
        """
        patience, seconds, until, used = self.ctx.conditions.patience, policy.timeout, self._deadline, None
        if policy.is_guard or (self._is_full and not policy.may_grow):
            seconds, until, used = max(patience, seconds), inf, self.time.used()
        work, started = self._checked(policy), perf_counter()
        try:
            awaited = work.send(None)
            return await self.time.finish(work, awaited, seconds - (perf_counter() - started), until, patience)
        except StopIteration as done:  # most work waits for nothing, and so needs no timer
            decided: tuple[Decision, TokenCount] = done.value
            return decided
        except Exception as error:
            if self._strict:
                raise
            self.late = self.late or (isinstance(error, TimeoutError) and policy.mode == "enforce")
            return _Undecided("fail", _fault(error, seconds)), self.count
        finally:
            if used is not None:
                self._deadline += self.time.used() - used

    async def _checked(self, policy: Policy) -> tuple[Decision, TokenCount]:
        ctx, request, before = self.ctx, self.request, self.count
        decision = await policy.decide(request, ctx)
        if isinstance(decision, Keep):
            return decision, before
        if isinstance(decision, Choose):
            may_choose = ctx.conditions.may_choose_model and policy.mode == "enforce"
            if not may_choose or decision.model in (request.model, ctx.model.name):
                return Keep(f"{decision.why}; stays with its model", decision.facts, decision.findings), before
        if ctx.frozen and isinstance(decision, Rewrite) and not policy.is_guard:
            decision = _with_frozen(decision, request, ctx.frozen)
        after = await count_checked(policy, request, before, decision, ctx)
        if policy.gives_way and not policy.is_guard and not self._is_full and self._fills(after):
            return Keep(f"no room: {after.total} tokens would fill the window"), before
        return decision, after

    def _unmet(self, name: str, policy: Policy) -> str | None:
        """Return why a step does not run; None where it does."""
        ctx = self.ctx
        if ctx.conditions.on_hold and not policy.is_guard and (harm := ctx.conditions.on_hold.get(name)):
            return f"on hold in this conversation: the vendor reports {harm}"
        if ctx.frozen and not (policy.edits_at_birth or policy.prefix_breaks_per_turn == 0 or policy.is_guard):
            return _BOUND
        return self._condition(policy)

    def _condition(self, policy: Policy) -> str | None:
        when = policy.when
        return None if when is None else when.unmet(self.request, self.ctx, self._tokens / self._usable)

    def _natively(self, policy: Policy) -> Rewrite | None:
        """Return the edit as the provider makes it, in a conversation in which we may make none."""
        if not isinstance(policy, ActsNatively) or policy.native_edit not in self.ctx.conditions.native_edits:
            return None
        if self._condition(policy):
            return None
        request, fields = self.request, policy.native_fields(self.request, self.ctx)
        for field_name, value in fields.items():
            request = request.with_field(field_name, value)
        return Rewrite(request, f"the provider does it: {policy.native_edit}") if fields else None


def _verdict(decision: Decision | _Undecided) -> tuple[Verdict, str, Mapping[str, Fact]]:
    """Return the verdict of a step, its reason and facts."""
    if isinstance(decision, Keep):
        return "keep", decision.why, decision.facts
    if isinstance(decision, Choose):
        return "rewrite", f"{decision.why}; goes to {decision.model}", decision.facts
    if isinstance(decision, Reject):
        return "reject", decision.why, {**decision.facts, "code": decision.code}
    return "rewrite" if isinstance(decision, Rewrite) else decision.verdict, decision.why, decision.facts


def _with_frozen(decision: Rewrite, before: ChatRequest, frozen: int) -> Decision:
    """Return the decision with unchanged tools, frozen messages and signed answers."""
    messages = decision.request.messages
    if messages[:frozen] != before.messages[:frozen] or len(messages) == len(before.messages):
        if len(messages) != len(before.messages):
            return Keep("signed reasoning is bound to the messages that it would change")
        pairs = enumerate(zip(before.messages, messages, strict=True))
        messages = tuple(old if place < frozen or is_signed(old) else new for place, (old, new) in pairs)
    rewritten = with_fields(decision.request, messages=messages, tools=before.tools)
    is_marked = rewritten.cache_marks not in (None, before.cache_marks)
    if rewritten.rest is before.rest and messages == before.messages and not is_marked:
        return Keep("signed reasoning is bound to what it would change")
    return replace(decision, request=rewritten)


def _limited(findings: Sequence[str]) -> tuple[str, ...]:
    more = len(findings) - _MOST_FINDINGS
    return (*findings[:_MOST_FINDINGS], f"and {more} more") if more > 0 else tuple(findings)


def _fault(error: Exception, timeout: float) -> str:
    """Return what went wrong, without any text of the request: an exception's own message may quote it."""
    if isinstance(error, BrokenRequest):
        # the names and ids in it are the client's own
        return f"broken request: {_QUOTED.sub('...', str(error))}"
    if isinstance(error, TimeoutError):
        return f"not done in {timeout:g} s or by the chain's deadline"
    return f"{type(error).__name__} at {_place(error)}"


def _place(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
