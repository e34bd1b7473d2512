"""Cost of a request under a provider's prompt cache, and the payback of an edit of the cached prefix. Pure.

Costs are in input tokens at full price: one that is read from the cache costs `CacheRules.read`, one written `write`.
"""

from math import ceil

from proxy.chat import ChatRequest
from proxy.chat.blocks import CEILING, SHARE, injected
from proxy.chat.provenance import added
from proxy.context import CacheRules, Context

UNCACHED = CacheRules()
"""The rules of a provider without a prompt cache: every token costs the same in every request."""

_NEARLY = 7 / 8
"""Share of the provider's minimum from which a prompt may be cached, because token counts are estimates."""


async def room(request: ChatRequest, ctx: Context) -> int:
    """Return the tokens that a step may still inject, within the budget of all blocks and the bound of the prompt."""
    places = injected(request.messages, added(request, ctx.incoming))
    used = sum(await ctx.tokens.sizes([request.messages[place] for place in places]))
    usable, total = ctx.model.usable(request), (await ctx.tokens.count(request)).total
    return max(0, min(int(usable * SHARE) - used, int(usable * CEILING) - total))


def may_be_cached(rules: CacheRules, tokens: int) -> bool:
    """Return whether the provider may cache a prompt of so many tokens, even if the count is a little too low."""
    return rules.ttl > 0 and tokens >= rules.minimum * _NEARLY


def cost_ahead(rules: CacheRules, shared: int, total: int, turns: int, growth: int = 0) -> float:
    """Return the cost in input tokens of the next `turns` requests of a conversation that nobody edits.

    The first has `total` tokens, of which the first `shared` were sent before; each later one has `growth` more.
    """
    cost = 0.0
    for _ in range(turns):
        cost += rules.prompt_cost(shared, total)
        shared, total = total, total + growth
    return cost


def turns_to_pay(rules: CacheRules, removed: int, rewritten: int) -> float:
    """Return after how many requests an edit has paid: N = (write - read) * `rewritten` / (read * `removed`)."""
    if removed <= 0:
        return float("inf")
    if not rules.ttl or rewritten <= 0:
        return 0.0
    if rules.read <= 0:
        return float("inf")
    return max(0.0, (rules.write - rules.read) * rewritten / (rules.read * removed))


def pays_after(rules: CacheRules, before: int, after: int, net: float) -> int | None:
    """Return after how many requests, of `after` not `before` tokens, a change that saved `net` has paid."""
    if net > -0.5:
        return 0
    saved = rules.prompt_cost(before, before) - rules.prompt_cost(after, after)
    return ceil(-net / saved) if saved > 0 else None


def pays(rules: CacheRules, removed: int, rewritten: int, turns: float) -> bool:
    """Return whether an edit pays within `turns` further requests. Without a cache every removal pays."""
    return turns_to_pay(rules, removed, rewritten) < turns if rules.ttl else removed > 0
