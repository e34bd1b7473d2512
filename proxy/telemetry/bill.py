"""Prompts in the provider's cache: the estimated cost of a request, the share of each step in it, and broken prefixes.

A provider's prompt cache holds the prompts of earlier requests. Of each conversation the last requests are remembered
in each form that they had: as the client sent them, as each step left them, and as they were sent. So a chain that
breaks the cache is charged for it, turn by turn.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import compress, count, filterfalse, groupby, pairwise
from operator import attrgetter, or_
from time import monotonic
from typing import Any, NamedTuple

from msgspec import Struct

from proxy.chat import ChatRequest, Message, raws
from proxy.chat.cache_marks import find_marks, unmarked
from proxy.context import ModelProfile, Tokens
from proxy.economics import UNCACHED, pays_after
from proxy.models.usage import ReportMemory
from proxy.state.cache import REMEMBERED, Cache, SharedLimit
from proxy.step import Step

_TURNS = 4
"""Requests of a conversation that are remembered: agents at work side by side may share one."""

_CLIENT, _START, _SENT = "", "\0start", "\0sent"
"""In place of a step: the request as the client sent it, in front of the first step, and as it went out."""


class PromptPrefixes(NamedTuple):
    """All prefixes of a request, the shortest first. Nobody changes them."""

    keys: "array[int]"
    sums: "array[int]"

    @property
    def tokens(self) -> int:
        return self.tokens_of(len(self.sums))

    def tokens_of(self, count: int) -> int:
        """Return the tokens of the first messages and tools, so many of them."""
        return self.sums[count - 1] if count else 0

    def shared(self, later: "PromptPrefixes") -> int:
        """Return the number of prefixes that a later request has too."""
        mine, other = self.keys, later.keys
        same = different = min(len(mine), len(other))
        step = 1
        while same and mine[same - 1] != other[same - 1]:  # most differ near their end
            same, different, step = max(0, same - step), same - 1, 2 * step
        while same < different:
            place = (same + different + 1) // 2
            same, different = (place, different) if mine[place - 1] == other[place - 1] else (same, place - 1)
        return same


class Bill(NamedTuple):
    """The cost of a prompt in one form of its conversation."""

    tokens: int
    cached: int
    """The tokens that the provider is expected to read from its cache."""
    cost: float
    """In input tokens at full price."""
    usd: float


class _Turn(NamedTuple):
    at: float
    forms: dict[str, PromptPrefixes]
    """By the step behind which it stood."""
    marks: Sequence[int]
    """The numbers of prefixes at which the provider was told to cache it."""


class Estimate(Struct):
    """The expected cost of a prompt in US dollars, worked out before it is sent; 0 where its prices are not known."""

    key: tuple[str, str]
    profile: ModelProfile
    came: Bill
    sent: Bill
    is_known: bool
    """True if this process knows the request before this one of the conversation, or there was none: else the cache of
    the client's own form is unknown."""
    turn: _Turn
    fresh: Sequence[_Turn]
    """Earlier requests of the conversation that the provider has in its cache."""
    before: _Turn | None
    """The earlier request that it goes on from."""
    request: ChatRequest
    """As the client sent it."""
    rounds: int = 1
    """Number of times that it was sent, because the model called tools that Penstock runs."""

    @property
    def usd(self) -> float:
        prompt, again = self.turn.forms[_SENT], self.rounds - 1
        return self.sent.usd + (again and again * _bill(prompt, len(prompt.keys), self.profile).usd)

    @property
    def usd_unchanged(self) -> float | None:
        return self.came.usd if self.is_known else None

    @property
    def usd_saved(self) -> float | None:
        """The net saving of the chain: below zero where the prompt costs more with it."""
        return self.came.usd - self.usd if self.is_known else None

    def broken(self, tools: int) -> dict[str, Any] | None:
        """Return the change of the prefix if the provider's cache had it; None for none. `tools` is as in `changed`."""
        cached = [turn for turn in self.fresh if turn.forms[_SENT].tokens >= self.profile.cache.minimum]
        return self.changed(tools) if any(turn is self.before for turn in cached) else None

    def changed(self, tools: int) -> dict[str, Any] | None:
        """Return the place at which the prompt departs from the one before it, and the step; None if nowhere."""
        if self.before is None:
            return None
        last, sent = self.before.forms[_SENT], self.turn.forms[_SENT]
        place = last.shared(sent)
        if place == len(last.keys):
            return None
        at, message = sent.tokens_of(place), place - tools
        known = {"at": at, "message": message if message >= 0 else None, "lost": last.tokens - at}
        return {**known, "step": _culprit(self.before.forms, self.turn.forms)}


class Effect(NamedTuple):
    """The net saving of a step's change, below zero where it costs more; None where it is not known."""

    net_tokens: float | None = None
    """Input tokens at full price."""
    usd_saved: float | None = None
    pays_after: int | None = None
    """Number of further requests after which it has paid for itself; None for never."""


_NOTHING, _UNKNOWN = Effect(0.0, 0.0, 0), Effect()
_values = lru_cache(64)(Effect._asdict)


def estimated(estimate: Estimate | None) -> dict[str, float | None]:
    """Return an estimate as JSON values; all None where there is none, or no price."""
    if estimate is None or not estimate.profile.prices.known:
        return dict.fromkeys(("usd_estimated", "usd_unchanged", "usd_saved", "cached_expected"))
    return {
        "usd_estimated": estimate.usd,
        "usd_unchanged": estimate.usd_unchanged,
        "usd_saved": estimate.usd_saved,
        "cached_expected": estimate.sent.cached,
    }


def with_effects(steps: Sequence[Step], effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """Return steps as JSON values, each with its effect."""
    return [*map(or_, map(Step.shown, steps), map(_values, effects))]


class Bills:
    """The last prompts of conversations, and what a next one costs. One for a process; for use on one event loop."""

    def __init__(self, limit: SharedLimit | int = REMEMBERED, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._turns: Cache[tuple[str, str], Sequence[_Turn]] = Cache(limit)
        self.reports = ReportMemory()

    async def estimate(
        self, key: tuple[str, str], came: ChatRequest, sent: ChatRequest, profile: ModelProfile, tokens: Tokens
    ) -> Estimate:
        """Return the cost of `sent` and of `came`. `key` has the tenant, the conversation and the model."""
        unchanged = await prompt_of(came, tokens)
        ours = unchanged if _is_same(came, sent) else await prompt_of(sent, tokens)
        earlier = self._turns.get(key) or ()
        shares = [turn.forms[_CLIENT].shared(unchanged) for turn in earlier]
        before = earlier[shares.index(max(shares))] if earlier else None
        places = range(len(came.messages) - 1, -1, -1)
        answer = next((place for place in places if came.messages[place].get("role") == "assistant"), None)
        is_known = answer is None or max(shares, default=-1) >= len(came.tools) + answer
        turn, charged = _Turn(self._clock(), {_CLIENT: unchanged, _SENT: ours}, _marks(sent)), profile
        are_fresh = [0 < profile.cache.ttl >= turn.at - each.at for each in earlier]
        fresh = [*compress(earlier, are_fresh)]
        place = _read([each.forms[_SENT] for each in fresh], ours)
        if profile.cache.marked and sent.cache_marks is not None:
            reached = [(mark, min(place, each.forms[_SENT].shared(ours))) for each in fresh for mark in each.marks]
            place = max((mark for mark, most in reached if mark <= most), default=0)
        elif profile.cache.marked and not find_marks(sent):
            charged = replace(profile, cache=UNCACHED)
        first = max(compress(shares, are_fresh), default=0)
        bill = _bill(unchanged, first, profile)
        is_same = ours is unchanged and place == first and charged is profile
        bill_sent = bill if is_same else _bill(ours, place, charged)
        return Estimate(key, profile, bill, bill_sent, is_known, turn, fresh, before, came)

    def sent(self, estimate: Estimate) -> None:
        """Remember a prompt that the upstream has answered: now it is in the provider's cache."""
        turns = (estimate.turn, *(self._turns.get(estimate.key) or ())[: _TURNS - 1])
        # of each four forms, many of which are one
        size = sum(1000 + 64 * len(turn.forms[_CLIENT].keys) for turn in turns)
        self._turns.put(estimate.key, turns, size)

    async def effects(
        self,
        estimate: Estimate,
        first: ChatRequest | None,
        stages: Sequence[tuple[str, ChatRequest]],
        steps: Sequence[Step],
        tokens: Tokens,
    ) -> Sequence[Effect]:
        """Return the saving of each step: the cost of the prompt in front of it, less that of the one behind it.

        What the provider reads from its cache is the longest prefix that a prompt shares with the conversation's
        earlier requests as they stood behind this same step: so who rewrites a sent prefix is charged for it, and no
        other step is. `first` is the request in front of the first step, `stages` those behind each step that changed
        it. Call it once for each request, in their order.
        """
        ran = [*filterfalse(attrgetter("observed"), steps)]
        if first is None or not ran:
            return [_UNKNOWN] * len(steps)
        names, verdicts = [*map(attrgetter("policy"), ran)], [*map(attrgetter("verdict"), ran)]
        forms, place = estimate.turn.forms, 0
        start = forms[_CLIENT] if _is_same(first, estimate.request) else await prompt_of(first, tokens)
        prompts = [start] * (1 + len(ran))
        for _, request in stages:
            place = verdicts.index("rewrite", place) + 1
            prompts[place:] = [await prompt_of(request, tokens)] * (len(prompts) - place)
        came = _CLIENT if start.keys[-1:] == forms[_CLIENT].keys[-1:] else _START
        forms |= {_START: start, **dict(zip(names, prompts[1:], strict=True))}
        fronts, before = [came, *names[:-1]], estimate.before
        if not estimate.is_known or (before is not None and not before.forms.keys() >= {*fronts}):
            return [_UNKNOWN] * len(steps)
        earlier = [map(turn.forms.get, fronts) for turn in estimate.fresh]
        bills = list[tuple[Bill, int]]()
        for (prompt, *others), alike in groupby(zip(prompts[:-1], *earlier, strict=True)):
            is_first = prompt is forms[_CLIENT] and not bills
            bill = estimate.came if is_first else _bill(prompt, _read(others, prompt), estimate.profile)
            bills.append((bill, len([*alike])))
        effects = list[Effect]()
        for (bill, number), (after, _) in pairwise([*bills, (estimate.sent, 0)]):
            effects += [*[_NOTHING] * (number - 1), _effect(bill, after, estimate.profile)]
        for place in compress(count(), map(attrgetter("observed"), steps)):
            effects.insert(place, _UNKNOWN)
        return effects

    def forget(self, tenant: str) -> int:
        return self._turns.forget(tenant)


def _read(earlier: Iterable[PromptPrefixes | None], prompt: PromptPrefixes) -> int:
    """Return the number of prefixes that the provider has of earlier requests."""
    return max((each.shared(prompt) for each in earlier if each is not None), default=0)


def _bill(prompt: PromptPrefixes, place: int, profile: ModelProfile) -> Bill:
    """Return the bill of a prompt of which the provider has so many prefixes."""
    total, shared, rules = prompt.tokens, prompt.tokens_of(place), profile.cache
    cost = rules.prompt_cost(shared, total)
    return Bill(total, rules.cached_tokens(shared), cost, profile.prices.usd(total, cost))


def _effect(before: Bill, after: Bill, profile: ModelProfile) -> Effect:
    net = before.cost - after.cost
    turns = pays_after(profile.cache, before.tokens, after.tokens, net)
    return Effect(round(net, 1), round(before.usd - after.usd, 9), turns)


def _is_same(one: ChatRequest, other: ChatRequest) -> bool:
    return one.messages is other.messages and one.tools is other.tools


def _culprit(last: Mapping[str, PromptPrefixes], forms: Mapping[str, PromptPrefixes]) -> str | None:
    """Return the step by which most of the last prompt was lost; None where it was the client."""
    losses: dict[str, int] = {}
    before, prompt, lost = last[_CLIENT], None, 0
    for name in (_CLIENT, *(each for each in forms if each not in (_CLIENT, _START, _SENT)), _SENT):
        compared = before, prompt
        before, prompt = last.get(name, before), forms[name]
        if before is not compared[0] or prompt is not compared[1]:  # most steps change neither
            losses[name] = before.tokens - prompt.tokens_of(before.shared(prompt)) - lost
            lost += losses[name]
    name = max(losses, key=lambda name: losses[name])
    if name == _SENT:  # a step of the last prompt's chain is no longer there
        return next((each for each in last if each not in (*forms, _START)), None)
    return name or None


def _marks(sent: ChatRequest) -> Sequence[int]:
    marks, tools = sent.cache_marks, len(sent.tools)
    if marks is None:
        return ()
    return [*(tools + place + 1 for place in marks.messages), *([tools] if marks.tools else [])]


async def prompt_of(request: ChatRequest, tokens: Tokens) -> PromptPrefixes:
    """Return a request as a provider reads it, tools first."""
    of_tools, sizes = await tokens.tool_sizes(request.tools), await tokens.sizes(request.messages)
    tools = tuple(raws(request.tools))

    def extend(before: PromptPrefixes, messages: Sequence[Message]) -> PromptPrefixes:
        keys, sums = before.keys[:], before.sums[:]
        new, place = raws(map(unmarked, messages)), max(0, len(keys) - len(tools))
        counts = sizes[place : place + len(new)]  # unmarked, as a client moves its marks from request to request
        new, counts = (new, counts) if keys else ((*tools, *new), (*of_tools, *counts))
        key, size = (keys[-1], sums[-1]) if keys else (0, 0)
        for raw, tokens in zip(new, counts, strict=True):
            key, size = hash((key, hash(raw))), size + tokens
            keys.append(key)
            sums.append(size)
        return PromptPrefixes(keys, sums)

    name = ("prompt", tools, sizes[:8])  # sizes change with the correction of counts
    return request.form.fold(name, PromptPrefixes(array("q"), array("q")), extend)
