"""What a request costs under a provider's prompt cache, and whether an edit of what was sent before pays. Pure.

Costs are in input tokens at full price: a token that is read from the cache counts as the rules' `read`, one that
enters it as `write`. Multiply by the model's input price for money. A provider caches the longest unchanged prefix of
tools, system and messages, so an edit re-prices all that stands behind it.
"""

from math import ceil

from proxy.chat import ChatRequest
from proxy.chat.blocks import CEILING, SHARE, injected
from proxy.chat.provenance import of_client
from proxy.context import CacheRules, Context, Prices

UNCACHED = CacheRules()
"""No prompt cache: every token costs the same in every request."""

_NEARLY = 7 / 8
"""Counts are estimates: what came one request too late would break a prefix that is cached already."""


async def room(request: ChatRequest, ctx: Context) -> int:
    """The tokens that a step may still inject: all blocks have one budget, and the prompt one bound."""
    places = injected(request.messages, of_client(request, ctx.incoming))
    taken = sum(await ctx.tokens.sizes([request.messages[place] for place in places]))
    usable, total = ctx.model.usable(request), (await ctx.tokens.count(request)).total
    return max(0, min(int(usable * SHARE) - taken, int(usable * CEILING) - total))


def cached_tokens(rules: CacheRules, shared: int) -> int:
    """How many tokens of a shared prefix are read from the cache: none below the provider's minimum."""
    return shared if rules.ttl and shared >= rules.minimum else 0


def may_be_cached(rules: CacheRules, tokens: int) -> bool:
    """Whether the provider keeps a prompt of so many tokens, or may where the count is a little short.

    What is to stand at the head of a conversation's later prompts, such as a tool, must stand there from then on.
    """
    return rules.ttl > 0 and tokens >= rules.minimum * _NEARLY


def prompt_cost(rules: CacheRules, shared: int, total: int) -> float:
    """What a prompt of `total` tokens costs, in input tokens, if the last one had its first `shared` tokens too."""
    read = cached_tokens(rules, shared)
    # what is too short to be cached is not written either
    rest = rules.write if rules.ttl and total >= rules.minimum else 1.0
    return read * rules.read + (total - read) * rest


def cost_ahead(rules: CacheRules, shared: int, total: int, turns: int, growth: int = 0) -> float:
    """What the next `turns` requests of a conversation cost, in input tokens, if it stays as it is now.

    The first has `total` tokens, the first `shared` of which were sent before; each later one has `growth` more.
    Compare two of these to decide between two forms of a conversation: a prompt that is too short to be cached may cost
    less in full than a long one at the cache's price.
    """
    cost = 0.0
    for _ in range(turns):
        cost += prompt_cost(rules, shared, total)
        shared, total = total, total + growth
    return cost


def reported_cost(rules: CacheRules, tokens: int, cached: int, written: int) -> float:
    """Cost of a prompt in input tokens, from what the provider reports as read from and written to its cache."""
    return max(0, tokens - cached - written) + cached * rules.read + written * rules.write


def money(prices: Prices, cost: float, output_tokens: int = 0) -> float:
    """US dollars for a cost in input tokens, and for the answer."""
    return (cost * prices.input + output_tokens * prices.output) / 1e6


def is_cold(rules: CacheRules, idle: float | None) -> bool:
    """Whether nothing of a conversation is in the cache: after `idle` seconds without a request, None for its first.

    Then an edit costs nothing, because the whole prompt is written anyway.
    """
    return not rules.ttl or idle is None or idle > rules.ttl


def turns_to_pay(rules: CacheRules, removed: int, rewritten: int) -> float:
    """After how many further requests an edit has paid for itself; 0 at once, infinity for never.

    The edit removes `removed` tokens, each of which would be read again with every request, and changes bytes in front
    of `rewritten` tokens, which are written again instead of read: N = (write - read) * P / (read * S).
    """
    if removed <= 0:
        return float("inf")
    if not rules.ttl or rewritten <= 0:
        return 0.0
    if rules.read <= 0:
        return float("inf")
    return max(0.0, (rules.write - rules.read) * rewritten / (rules.read * removed))


def pays_after(rules: CacheRules, before: int, after: int, net: float) -> int | None:
    """After how many further requests a change has paid for itself that saved `net` input tokens when it was made.

    The conversation stays as it is, of so many tokens before and after the change, and all of it is read from the
    cache. 0 where it paid at once; None where it never does, because it makes no later request cheaper.
    """
    if net > -0.5:
        return 0
    saved = prompt_cost(rules, before, before) - prompt_cost(rules, after, after)
    return ceil(-net / saved) if saved > 0 else None


def pays(rules: CacheRules, removed: int, rewritten: int, turns: float, *, idle: float | None = 0.0) -> bool:
    """Whether an edit pays within so many further requests; on a cold cache any edit does that removes something."""
    if is_cold(rules, idle):
        return removed > 0
    return turns_to_pay(rules, removed, rewritten) < turns
