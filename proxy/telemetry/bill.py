"""What a request costs as it is sent, and what the client's own would have cost: both follow the provider's cache.

A provider's prompt cache holds the prefixes of earlier requests. Two sets of prefixes are remembered: those that were
sent, and those that would have been sent without the chain. So a chain that breaks the cache is charged for it, turn by
turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from proxy.chat import ChatRequest
from proxy.context import CacheRules, ModelProfile, Tokens
from proxy.economics import cached_tokens, money, prompt_cost
from proxy.models.cache_use import CacheUse
from proxy.state.cache import Cache

MOST_PREFIXES = 200_000
"""Prefixes that are remembered, about 100 bytes each. The least recently used are forgotten first."""

Prefixes = Sequence[tuple[int, int]]
"""All prefixes of a request, the shortest first: a hash of each, and its tokens."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a prompt is expected to cost in US dollars, worked out before it is sent."""

    tokens: int
    cached: int
    """The tokens that the provider is expected to read from its cache."""
    usd: float
    usd_again: float
    """What it costs to send it once more at once, as an internal tool's answer does."""
    usd_unchanged: float | None
    """What it would have cost as the client sent it. None where this process does not know the request before this one
    of the conversation: then nobody can say what the provider has of it."""
    came: Prefixes = ()
    """The prefixes of the request as the client sent it."""
    sent: Prefixes = ()
    """Those of what is sent."""

    @property
    def usd_saved(self) -> float | None:
        """What the chain saves, net: below zero where the prompt costs more with it."""
        return None if self.usd_unchanged is None else self.usd_unchanged - self.usd

    def after(self, rounds: int) -> "Estimate":
        """The same for a prompt that was sent so many times, because the model called tools that Penstock runs."""
        return replace(self, usd=self.usd + (rounds - 1) * self.usd_again)


def estimated(estimate: Estimate | None) -> dict[str, float | None]:
    """An estimate for machines; all None where there is none."""
    if estimate is None:
        return dict.fromkeys(("usd_estimated", "usd_unchanged", "usd_saved", "cached_expected"))
    return {
        "usd_estimated": estimate.usd,
        "usd_unchanged": estimate.usd_unchanged,
        "usd_saved": estimate.usd_saved,
        "cached_expected": estimate.cached,
    }


class Bills:
    """Estimates what prompts cost. One for a process; for use on one event loop."""

    def __init__(self, most: int = MOST_PREFIXES, clock: Callable[[], float] = monotonic) -> None:
        """At most so many prefixes are remembered; `clock` is in seconds."""
        self._clock = clock
        self._used: Cache[int, float] = Cache(most)
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
        rules = profile.cache
        unchanged = await prefixes(("came", scope), came, tokens)
        ours = await prefixes(("sent", scope), sent, tokens)

        def usd(prefixes: Prefixes, shared: int) -> float:
            total = prefixes[-1][1]
            return money(profile.prices.at(total), prompt_cost(rules, shared, total))

        total, shared = ours[-1][1], self._shared(ours, rules)
        return Estimate(
            tokens=total,
            cached=cached_tokens(rules, shared),
            usd=usd(ours, shared),
            usd_again=usd(ours, total),
            usd_unchanged=usd(unchanged, self._shared(unchanged, rules)) if self._knows(came, unchanged) else None,
            came=unchanged,
            sent=ours,
        )

    def sent(self, estimate: Estimate) -> None:
        """Remember a prompt that the upstream has answered: now its prefixes are in the provider's cache."""
        now = self._clock()
        for key, _ in (*estimate.came, *estimate.sent):
            self._used.put(key, now)

    def _shared(self, prefixes: Prefixes, rules: CacheRules) -> int:
        """The tokens of the longest prefix that is in the cache."""
        oldest = self._clock() - rules.ttl
        return next((size for key, size in reversed(prefixes) if (self._used.get(key) or -1.0) >= oldest), 0)

    def _knows(self, came: ChatRequest, prefixes: Prefixes) -> bool:
        """Whether the request before this one is known, or there was none: it ended before the last answer."""
        answers = [place for place, message in enumerate(came.messages) if message.get("role") == "assistant"]
        return not answers or prefixes[len(came.tools) + answers[-1] - 1][0] in self._used


async def prefixes(scope: object, request: ChatRequest, tokens: Tokens) -> Prefixes:
    """The prefixes of a request as a provider reads it, tools first."""
    sizes = (*await tokens.tool_sizes(request.tools), *await tokens.sizes(request.messages))
    key, total, found = hash(scope), 0, list[tuple[int, int]]()
    for part, size in zip((*request.tools, *request.messages), sizes, strict=True):
        key, total = hash((key, part.raw)), total + size
        found.append((key, total))
    return found
