"""Estimated cost of a prompt as it is sent and as the client sent it, and the share of each step in the difference.

A provider's prompt cache holds the prefixes of earlier requests. For each form of a conversation the prefixes are
remembered that would be in the cache if all its requests had been sent in this form: as the client sends them, as each
step leaves them, and as they are sent. So a chain that breaks the cache is charged for it, turn by turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from time import monotonic
from typing import NamedTuple

from proxy.chat import ChatRequest, Message, raws
from proxy.chat.cache_marks import find_marks
from proxy.context import ModelProfile, Tokens
from proxy.economics import UNCACHED, cached_tokens, money, pays_after, prompt_cost
from proxy.models.vendor_reports import ReportMemory
from proxy.state.cache import Cache
from proxy.step import Step

MOST_PREFIXES = 200_000
"""Prefixes that are remembered, about 300 bytes each (LRU)."""

_FRESH = 1 / 16
"""The part of a cache's lifetime within which a prefix counts as used just now."""

Prefixes = Sequence[tuple[int, int]]
"""All prefixes of a request, the shortest first: a hash of each, and its tokens."""

_CAME, _SENT, _PRICED, _MARKED = 1, 2, 4, 8
"""Forms are bits: as the client sends it, as it goes out; of requests whose steps were priced; ending at a mark for the
cache."""


class Bill(NamedTuple):
    """The cost of a prompt in one form of its conversation."""

    request: ChatRequest
    prefixes: Prefixes
    cached: int
    """The tokens that the provider is expected to read from its cache."""
    cost: float
    """In input tokens at full price."""
    usd: float

    @property
    def tokens(self) -> int:
        """The tokens of the prompt."""
        return self.prefixes[-1][1]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of a prompt in US dollars, worked out before it is sent."""

    scope: str
    profile: ModelProfile
    came: Bill
    """Of the request as the client sent it."""
    sent: Bill
    is_known: bool
    """True if this process knows the request before this one of the conversation, or there was none: else the cache of
    the client's own form is unknown."""
    rounds: int = 1
    """Number of times that it was sent, because the model called tools that Penstock runs."""

    @property
    def usd(self) -> float:
        """The cost of the sent prompt, in all rounds."""
        again = _bill(self.sent.request, self.sent.prefixes, self.sent.tokens, self.profile)
        return self.sent.usd + (self.rounds - 1) * again.usd

    @property
    def usd_unchanged(self) -> float | None:
        """The cost as the client sent it, where that is known."""
        return self.came.usd if self.is_known else None

    @property
    def usd_saved(self) -> float | None:
        """The net saving of the chain: below zero where the prompt costs more with it."""
        return self.came.usd - self.usd if self.is_known else None

    def after(self, rounds: int) -> "Estimate":
        """Return the estimate of a prompt that was sent so many times."""
        return replace(self, rounds=rounds)


class Effect(NamedTuple):
    """The net saving of a step's change of one request: below zero where the prompt costs more with it.

    All None where it is not known.
    """

    net_tokens: float | None = None
    """Input tokens at full price."""
    usd_saved: float | None = None
    pays_after: int | None = None
    """Number of further requests after which it has paid for itself; None for never."""


_NOTHING = Effect(0.0, 0.0, 0)
"""Of a step that left the request as it was."""


def estimated(estimate: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as JSON values; all None where there is none."""
    if estimate is None:
        return dict.fromkeys(("usd_estimated", "usd_unchanged", "usd_saved", "cached_expected"))
    return {
        "usd_estimated": estimate.usd,
        "usd_unchanged": estimate.usd_unchanged,
        "usd_saved": estimate.usd_saved,
        "cached_expected": estimate.sent.cached,
    }


class Bills:
    """Estimates of the cost of prompts. One for a process; for use on one event loop."""

    def __init__(self, most: int = MOST_PREFIXES, clock: Callable[[], float] = monotonic) -> None:
        """At most so many prefixes are remembered; `clock` is in seconds."""
        self._clock = clock
        self._used: Cache[int, _Use] = Cache(most)
        self._forms: dict[tuple[str, ...], int] = {}
        """The forms in front of each step, by the steps before it."""
        self.reports = ReportMemory()

    async def estimate(
        self, scope: str, came: ChatRequest, sent: ChatRequest, profile: ModelProfile, tokens: Tokens
    ) -> Estimate | None:
        """Return the cost of `sent` and of `came`; None where the model's prices are not known.

        `scope` names the conversation and the model. Conversations are followed one by one: prefixes of others that
        begin alike would make both forms cheaper, by chance.
        """
        if not profile.prices.known:
            return None
        unchanged = await prefixes(scope, came, tokens)
        ours = unchanged if _is_same(came, sent) else await prefixes(scope, sent, tokens)
        bill, form, charged = self._bill(came, unchanged, _CAME, profile), _SENT, profile
        if profile.cache.marked and sent.cache_marks is not None:
            form |= _MARKED
        elif profile.cache.marked and not find_marks(sent):
            charged = replace(profile, cache=UNCACHED)
        return Estimate(scope, profile, bill, self._bill(sent, ours, form, charged), self._knows(bill, _CAME))

    def sent(self, estimate: Estimate) -> None:
        """Remember a prompt that the upstream has answered: now its prefixes are in the provider's cache."""
        if estimate.sent.prefixes is estimate.came.prefixes:
            self._remember(estimate.sent.prefixes, _CAME | _SENT, estimate.profile)
        else:
            self._remember(estimate.came.prefixes, _CAME, estimate.profile)
            self._remember(estimate.sent.prefixes, _SENT, estimate.profile)
        request, marks = estimate.sent.request, estimate.sent.request.cache_marks
        if marks is not None:
            places = [len(request.tools) + place for place in marks.messages]
            places += [len(request.tools) - 1] if marks.tools and request.tools else []
            for used in self._used.get_each([estimate.sent.prefixes[place][0] for place in places]):
                if used is not None:
                    used.forms |= _MARKED

    async def effects(
        self,
        estimate: Estimate,
        first: ChatRequest | None,
        stages: Sequence[tuple[str, ChatRequest]],
        steps: Sequence[Step],
        tokens: Tokens,
    ) -> Sequence[Effect]:
        """Return the saving of each step: the cost of the prompt in front of it, less that of the one behind it.

        A prompt of T tokens of which the provider reads C from its cache costs C * read + (T - C) * write input tokens
        (`economics.prompt_cost`). C is the longest prefix that it shares with the earlier requests of the conversation
        as they stood behind this same step. So a step that rewrites a sent prefix is charged for it, and no other step
        is. The effects of a request add up to the saving of its chain, but for the rounds of internal tools.

        `first` is the request in front of the first step, `stages` those behind each step that changed it. Call it once
        for each request, in their order. The effect of a step that only observes is not known; nor is any where `first`
        is None, or where the request before this one is not known.
        """
        ran = [step for step in steps if not step.observed]
        if first is None or not ran:
            return [Effect()] * len(steps)
        request, last, bills, rest = first, estimate.came, list[Bill](), iter(stages)
        names, shared = tuple(step.policy for step in ran), -1
        forms = [self._form(names[:place]) for place in range(len(ran))]
        for step, form in zip(ran, forms, strict=True):
            is_same, before = _is_same(request, last.request), shared
            keys = last.prefixes if is_same else await prefixes(estimate.scope, request, tokens)
            shared = self._shared(keys, form, estimate.profile)
            if not is_same or shared != before:
                last = _bill(request, keys, shared, estimate.profile)
            bills.append(last)
            if step.verdict == "rewrite":
                request = next(rest)[1]
        if bills[0].prefixes is estimate.came.prefixes:
            bills[0] = estimate.came
        is_known = estimate.is_known and self._knows(estimate.came, _PRICED)
        for _, run in groupby(zip(bills, forms, strict=True), key=lambda pair: id(pair[0].prefixes)):
            alike = list(run)
            self._remember(alike[0][0].prefixes, sum(form for _, form in alike), estimate.profile)
        self._remember(estimate.came.prefixes[-1:], _PRICED, estimate.profile)
        if not is_known:
            return [Effect()] * len(steps)
        pairs = pairwise([*bills, estimate.sent])
        each = (_NOTHING if one is other else _effect(one, other, estimate.profile) for one, other in pairs)
        return [Effect() if step.observed else next(each) for step in steps]

    def _bill(self, request: ChatRequest, prefixes: Prefixes, form: int, profile: ModelProfile) -> Bill:
        """Return the bill of a prompt in one of the forms."""
        return _bill(request, prefixes, self._shared(prefixes, form, profile), profile)

    def _shared(self, prefixes: Prefixes, form: int, profile: ModelProfile) -> int:
        """Return the tokens of the longest prefix that one of the forms has in the provider's cache."""
        if not profile.cache.ttl:
            return 0
        oldest = self._clock() - profile.cache.ttl
        for key, size in reversed(prefixes):
            used = self._used.get(key)
            if used is not None and used.forms & form == form and used.at >= oldest:
                return size
        return 0

    def _form(self, steps: tuple[str, ...]) -> int:
        """Return the form in front of the step behind these."""
        return self._forms.setdefault(steps, 2 * _MARKED << len(self._forms))

    def _remember(self, prefixes: Prefixes, form: int, profile: ModelProfile) -> None:
        now, ttl = self._clock(), profile.cache.ttl

        def is_fresh(key: int) -> bool:
            used = self._used.get(key)
            return used is not None and bool(used.forms & form == form) and used.at > now - ttl * _FRESH

        # where the first is fresh, so is all that was sent with it: only what is new behind that is remembered
        start = 0 if ttl else len(prefixes) - 1  # without a cache, the last tells that this process knows the request
        if ttl and prefixes and is_fresh(prefixes[0][0]):
            start = next(place for place in range(len(prefixes) - 1, -1, -1) if is_fresh(prefixes[place][0])) + 1
        keys = [key for key, _ in prefixes[start:]]
        for key, used in zip(keys, self._used.get_each(keys), strict=True):
            if used is None:
                self._used.put(key, _Use(now, form))
            else:
                if 0 < ttl < now - used.at:  # the provider has it again in this form alone
                    used.forms &= _PRICED
                used.at, used.forms = now, used.forms | form

    def _knows(self, came: Bill, form: int) -> bool:
        """Return whether the request before this one is known in a form; or there was none."""
        messages, tools = came.request.messages, len(came.request.tools)
        places = range(len(messages) - 1, -1, -1)
        answer = next((place for place in places if messages[place].get("role") == "assistant"), None)
        if answer is None:
            return True
        used = self._used.get(came.prefixes[tools + answer - 1][0])
        return used is not None and bool(used.forms & form)


@dataclass(slots=True)
class _Use:
    """The last use of a prefix, and the forms that have it."""

    at: float
    forms: int


def _bill(request: ChatRequest, prefixes: Prefixes, shared: int, profile: ModelProfile) -> Bill:
    """Return the bill of a prompt whose first `shared` tokens the provider has."""
    total, rules = prefixes[-1][1], profile.cache
    cost = prompt_cost(rules, shared, total)
    return Bill(request, prefixes, cached_tokens(rules, shared), cost, money(profile.prices.at(total), cost))


def _effect(before: Bill, after: Bill, profile: ModelProfile) -> Effect:
    net = before.cost - after.cost
    turns = pays_after(profile.cache, before.tokens, after.tokens, net)
    return Effect(round(net, 1), round(before.usd - after.usd, 9), turns)


def _is_same(one: ChatRequest, other: ChatRequest) -> bool:
    """Return whether a provider reads both alike."""
    return one.messages is other.messages and one.tools is other.tools


async def prefixes(scope: object, request: ChatRequest, tokens: Tokens) -> Prefixes:
    """Return the prefixes of a request as a provider reads it, tools first."""
    of_tools, sizes = await tokens.tool_sizes(request.tools), await tokens.sizes(request.messages)
    tools = tuple(raws(request.tools))

    def extend(before: Prefixes, messages: Sequence[Message]) -> Prefixes:
        new = [*(() if before else tools), *raws(messages)]
        key, size = before[-1] if before else (hash(scope), 0)
        keys, start = list(before), len(before)
        for raw, tokens in zip(new, (*of_tools, *sizes)[start : start + len(new)], strict=True):
            key, size = hash((key, hash(raw))), size + tokens
            keys.append((key, size))
        return tuple(keys)

    nothing: Prefixes = ()
    name = ("prefixes", scope, tools, sizes[:8])  # sizes change with the correction of counts
    return request.form.fold(name, nothing, extend)
