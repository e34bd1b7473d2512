"""What a request costs as it is sent, what the client's own would have cost, and what each step of the chain is worth.

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
from proxy.models.cache_use import CacheUse
from proxy.state.cache import Cache
from proxy.step import Step

MOST_PREFIXES = 200_000
"""Prefixes that are remembered, about 300 bytes each. The least recently used are forgotten first."""

_FRESH = 1 / 16
"""The part of a cache's lifetime within which a prefix counts as used just now."""

Prefixes = Sequence[tuple[int, int]]
"""All prefixes of a request, the shortest first: a hash of each, and its tokens."""

_CAME, _SENT, _PRICED, _MARKED = 1, 2, 4, 8
"""Forms are bits: as the client sends it, as it goes out; what came with requests whose steps were priced; and what
ended at a mark for the cache."""


class Bill(NamedTuple):
    """What a prompt costs in one form of its conversation."""

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
    """What a prompt is expected to cost in US dollars, worked out before it is sent."""

    scope: str
    profile: ModelProfile
    came: Bill
    """Of the request as the client sent it."""
    sent: Bill
    is_known: bool
    """Whether this process knows the request before this one of the conversation, or there was none: else nobody can
    say what the provider has of the client's own."""
    rounds: int = 1
    """How often it was sent, because the model called tools that Penstock runs."""

    @property
    def usd(self) -> float:
        """Cost of what is sent, in all rounds."""
        again = _bill(self.sent.request, self.sent.prefixes, self.sent.tokens, self.profile)
        return self.sent.usd + (self.rounds - 1) * again.usd

    @property
    def usd_unchanged(self) -> float | None:
        """What it would have cost as the client sent it, where that is known."""
        return self.came.usd if self.is_known else None

    @property
    def usd_saved(self) -> float | None:
        """What the chain saves, net: below zero where the prompt costs more with it."""
        return self.came.usd - self.usd if self.is_known else None

    def after(self, rounds: int) -> "Estimate":
        """The same for a prompt that was sent so many times."""
        return replace(self, rounds=rounds)


class Effect(NamedTuple):
    """What a step's change of one request is worth, net: below zero where the prompt costs more with it.

    All None where that is not known.
    """

    net_tokens: float | None = None
    """Input tokens at full price."""
    usd_saved: float | None = None
    pays_after: int | None = None
    """After how many further requests it has paid for itself; None for never."""


_NOTHING = Effect(0.0, 0.0, 0)
"""Of a step that left the request as it was."""


def estimated(estimate: Estimate | None) -> dict[str, float | None]:
    """An estimate for machines; all None where there is none."""
    if estimate is None:
        return dict.fromkeys(("usd_estimated", "usd_unchanged", "usd_saved", "cached_expected"))
    return {
        "usd_estimated": estimate.usd,
        "usd_unchanged": estimate.usd_unchanged,
        "usd_saved": estimate.usd_saved,
        "cached_expected": estimate.sent.cached,
    }


class Bills:
    """Estimates what prompts cost. One for a process; for use on one event loop."""

    def __init__(self, most: int = MOST_PREFIXES, clock: Callable[[], float] = monotonic) -> None:
        """At most so many prefixes are remembered; `clock` is in seconds."""
        self._clock = clock
        self._used: Cache[int, _Use] = Cache(most)
        self._forms: dict[tuple[str, ...], int] = {}
        """Those that steps are given, by the steps in front of them."""
        self.use = CacheUse()

    async def estimate(
        self, scope: str, came: ChatRequest, sent: ChatRequest, profile: ModelProfile, tokens: Tokens
    ) -> Estimate | None:
        """What `sent` costs, and what `came` would have cost; None where the model's prices are not known.

        `scope` names the conversation and the model. Conversations are followed one by one: what others that begin
        alike left in the cache would make both forms cheaper, and depends on chance.
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
        given: ChatRequest | None,
        stages: Sequence[tuple[str, ChatRequest]],
        steps: Sequence[Step],
        tokens: Tokens,
    ) -> Sequence[Effect]:
        """What each step is worth: the cost of the prompt that it was given, less that of the one it left.

        A prompt of T tokens of which the provider reads C from its cache costs C * read + (T - C) * write input tokens
        (`economics.prompt_cost`). C is the longest prefix that it has in common with what the earlier requests of the
        conversation would have left in the cache, had all of them been sent as they stood behind this same step. So a
        step that rewrites what it has sent before is charged for it, and no other step is. The effects of a request add
        up to what its chain saves, but for the rounds of internal tools, now and in `given`.

        `given` is what the first step was given, `stages` what those that changed it left. Call it once for each
        request, in their order. The effect of a step that only observes is not known; nor is any where `given` is None,
        or where the request before this one is not known.
        """
        ran = [step for step in steps if not step.observed]
        if given is None or not ran:
            return [Effect()] * len(steps)
        request, last, bills, rest = given, estimate.came, list[Bill](), iter(stages)
        names, shared = tuple(step.policy for step in ran), -1
        forms = [self._form(names[:place]) for place in range(len(ran))]
        for step, form in zip(ran, forms, strict=True):
            is_same, before = _is_same(request, last.request), shared
            found = last.prefixes if is_same else await prefixes(estimate.scope, request, tokens)
            shared = self._shared(found, form, estimate.profile)
            if not is_same or shared != before:
                last = _bill(request, found, shared, estimate.profile)
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
        """The bill of a prompt in one of the forms."""
        return _bill(request, prefixes, self._shared(prefixes, form, profile), profile)

    def _shared(self, prefixes: Prefixes, form: int, profile: ModelProfile) -> int:
        """The tokens of the longest prefix that one of the forms has in the provider's cache."""
        if not profile.cache.ttl:
            return 0
        oldest = self._clock() - profile.cache.ttl
        for key, size in reversed(prefixes):
            used = self._used.get(key)
            if used is not None and used.forms & form == form and used.at >= oldest:
                return size
        return 0

    def _form(self, steps: tuple[str, ...]) -> int:
        """The form that is given to the step behind these."""
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
        """Whether the request before this one, which ended before the last answer, is known in a form; or was none."""
        messages, tools = came.request.messages, len(came.request.tools)
        places = range(len(messages) - 1, -1, -1)
        answer = next((place for place in places if messages[place].get("role") == "assistant"), None)
        if answer is None:
            return True
        found = self._used.get(came.prefixes[tools + answer - 1][0])
        return found is not None and bool(found.forms & form)


@dataclass(slots=True)
class _Use:
    """When a prefix was used last, and the forms that have it."""

    at: float
    forms: int


def _bill(request: ChatRequest, prefixes: Prefixes, shared: int, profile: ModelProfile) -> Bill:
    """The bill of a prompt whose first `shared` tokens the provider has."""
    total, rules = prefixes[-1][1], profile.cache
    cost = prompt_cost(rules, shared, total)
    return Bill(request, prefixes, cached_tokens(rules, shared), cost, money(profile.prices.at(total), cost))


def _effect(before: Bill, after: Bill, profile: ModelProfile) -> Effect:
    net = before.cost - after.cost
    turns = pays_after(profile.cache, before.tokens, after.tokens, net)
    return Effect(round(net, 1), round(before.usd - after.usd, 9), turns)


def _is_same(one: ChatRequest, other: ChatRequest) -> bool:
    """Whether a provider reads both alike."""
    return one.messages is other.messages and one.tools is other.tools


async def prefixes(scope: object, request: ChatRequest, tokens: Tokens) -> Prefixes:
    """The prefixes of a request as a provider reads it, tools first."""
    of_tools, sizes = await tokens.tool_sizes(request.tools), await tokens.sizes(request.messages)
    tools = tuple(raws(request.tools))

    def extend(before: Prefixes, messages: Sequence[Message]) -> Prefixes:
        new = [*(() if before else tools), *raws(messages)]
        key, size = before[-1] if before else (hash(scope), 0)
        found, start = list(before), len(before)
        for raw, tokens in zip(new, (*of_tools, *sizes)[start : start + len(new)], strict=True):
            key, size = hash((key, hash(raw))), size + tokens
            found.append((key, size))
        return tuple(found)

    nothing: Prefixes = ()
    name = ("prefixes", scope, tools, sizes[:8])  # sizes change with the correction of counts
    return request.form.fold(name, nothing, extend)
