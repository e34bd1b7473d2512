"""The client's tools that a conversation is offered: found for its last moment, and remembered for all of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import zip_longest
from typing import NamedTuple

from proxy.chat import ChatRequest, Tool, chosen_tools, listed
from proxy.chat.wire import called_tools
from proxy.context import Context
from proxy.economics import may_be_cached
from proxy.text.bm25 import ends
from proxy.tools.deferral import deferrable, is_ours
from proxy.tools.ranking import EACH, LONGEST, Pool, Relevance, matches, noise, pooled, raws_of, relevance, together
from proxy.tools.selection import Moment, Offer, OfferLimits, Standing, Want, moments

_MANY = 16
"""Fewer tools are left in whatever order they come."""
_STRIDE = 32
"""User messages that a conversation is walked through anew, at least; twice as many at most."""

_NEARLY = 0.1
"""A tool's score may be so much lower than the floor of relevance, which is the cosine of the nearest small talk."""
_ALL = "all"

Chosen = tuple[int, ...] | None
"""The places of tools, the most wanted first; None for all."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The operator's wishes for what is wanted, as the fields of `filter_tools` say."""

    always: tuple[str, ...]
    small_talk: str
    wait: float
    examples: Mapping[str, Sequence[str]]
    groups: Mapping[str, Sequence[str]]


class Clients(NamedTuple):
    """The client's tools in a request."""

    tools: tuple[Tool, ...]
    reachable: frozenset[str]
    others: int


def clients_tools(request: ChatRequest, ctx: Context) -> Clients:
    """Return the tools of a request that the client sent."""
    work = partial(_clients_tools, request, ctx)
    if request.tools is ctx.incoming.tools:
        key = ("client's", ctx.conditions.runs_tools, chosen_tools(request.rest.get("tool_choice")))
        clients = listed(request.tools).derive(key, work)
    else:
        clients = work()
    return clients if clients.tools else clients._replace(tools=request.tools)


def _clients_tools(request: ChatRequest, ctx: Context) -> Clients:
    """Return the client's tools; none stands for all of the request."""
    sent = None if request.tools is ctx.incoming.tools else {id(tool) for tool in ctx.incoming.tools}
    tools = tuple([tool for tool in request.tools if (sent is None or id(tool) in sent) and not is_ours(tool)])
    deferrable_tools = deferrable(request, ctx.incoming.tools) if ctx.conditions.runs_tools else ()
    reachable = frozenset([tool.name for tool in deferrable_tools])
    others = sum([tool.name not in reachable for tool in tools])
    return Clients(request.tools if len(tools) == len(request.tools) else tools, reachable, others)


async def in_first_order(request: ChatRequest, ctx: Context) -> ChatRequest:
    """Return the request with its tools in the order in which its conversation sent them first, to keep the prefix."""
    tools, memo = request.tools, ctx.memo
    if memo is None or len(tools) < _MANY:
        return request
    raws = raws_of(tools)

    def work() -> tuple[str, str, tuple[int, ...]]:
        by_content = sorted(range(len(raws)), key=lambda place: raws[place])
        places = {place: rank for rank, place in enumerate(by_content)}
        key = blake2b(b"\0".join([raws[place] for place in by_content]), digest_size=16).hexdigest()
        return f"tools-order-{key}", ",".join([str(places[place]) for place in range(len(raws))]), tuple(by_content)

    key, mine, by_content = await ctx.once.of_key(("order of tools", hash(raws), len(raws)), EACH * len(raws), work)
    first = await memo.settle(key, mine)
    if first == mine:
        return request
    return request.with_tools([tools[by_content[int(rank)]] for rank in first.split(",")])


class OfferFinder:
    """Finds the tools to offer in one request."""

    def __init__(
        self,
        wishes: Wishes,
        request: ChatRequest,
        ctx: Context,
        tools: Sequence[Tool],
        within_reach: frozenset[str] = frozenset(),
        kind: type[Offer | Standing] = Offer,
    ) -> None:
        """Tools `within_reach` can be called though they are left out; where there are any, only they are."""
        self._wishes, self._request, self._ctx, self._tools = wishes, request, ctx, tools
        self._within_reach, self._kind = within_reach, kind
        self.how = "as before"

    async def find(self, limits: OfferLimits) -> frozenset[int] | None:
        """Return the places of the tools to offer, or of the sections that stand; None for all."""
        pool = await pooled(self._tools, self._ctx, self._wishes.examples, self._wishes.groups)
        pinned = await self._pinned(pool)
        walked = moments(self._ctx.incoming)
        # where the walk begins moves in strides: not with each message
        walked = walked[max(0, (len(walked) // _STRIDE - 1) * _STRIDE) :]
        if walked:
            chosen = await self._settled(pool, limits, pinned, walked)
        else:  # nobody asked for anything
            chosen = tuple(range(len(self._tools))) if limits.is_forced else None
        if chosen is None:
            return None
        must = pinned
        if self._kind is Offer and not self._within_reach:  # what was called must stay: the least wanted leaves for it
            must |= self._places(called_tools(self._ctx.incoming) | called_tools(self._request))
        others = [place for place in chosen if place not in must]
        return must | frozenset(others[: max(0, limits.keep - len(must))])

    async def _pinned(self, pool: Pool) -> frozenset[int]:
        fixed = chosen_tools(self._request.rest.get("tool_choice"))
        key = ("tools always offered", pool.digest, self._wishes.always, fixed, self._within_reach)

        def is_pinned(tool: Tool) -> bool:
            is_out_of_reach = bool(self._within_reach) and tool.name not in self._within_reach
            is_named = tool.name in fixed or matches(tool.name, self._wishes.always)
            return is_out_of_reach or is_named or is_hosted(tool)

        def work() -> frozenset[int]:
            return frozenset([place for place, tool in enumerate(self._tools) if is_pinned(tool)])

        return await self._ctx.once.of_key(key, EACH * len(self._tools), work)

    async def _settled(
        self, pool: Pool, limits: OfferLimits, pinned: frozenset[int], walked: Sequence[Moment]
    ) -> Chosen:
        """Return what was chosen at the last moment, from the memo where it was chosen before."""
        memo, once = self._ctx.memo, self._ctx.once
        if memo is None:
            return (await self._walked(pool, limits, pinned, walked, []))[0]
        about = repr((
            self._kind.__name__, pool.digest, limits.keep, limits.least, limits.max_tokens, limits.is_forced,
            limits.rules, self._wishes.small_talk, sorted(pinned), self._ctx.model.name,
        )).encode()  # fmt: skip
        keys = [f"tools-{blake2b(about + moment.prefix, digest_size=16).hexdigest()}" for moment in walked]
        known: Sequence[str | None] = [None]
        if once.known(keys[-1:])[0]:  # most requests of an agent have nothing but results behind what they had
            known = await memo.known(keys[-1:])
        if known[-1] is None:
            known = await memo.known(keys)
        last = known[-1]
        if last is None:
            chosen, is_complete = await self._walked(pool, limits, pinned, walked, known)
            last = _ALL if chosen is None else ",".join(map(str, chosen))
            if is_complete or await self._stays(chosen, limits):
                last = await memo.settle(keys[-1], last)
        once.remember(keys[-1], True)
        return _read(last)

    async def _stays(self, chosen: Chosen, limits: OfferLimits) -> bool:
        """Return whether a choice stays that was made without some vectors; else the next request makes it again."""
        if self._ctx.services.embedder is None or self._ctx.services.embedder.is_behind:
            return False
        sizes = limits.sizes if chosen is None or self._kind is Standing else [limits.sizes[place] for place in chosen]
        talk = await self._ctx.tokens.sizes(self._ctx.incoming.messages)
        return may_be_cached(limits.rules, sum(sizes) + sum(talk))

    async def _walked(
        self,
        pool: Pool,
        limits: OfferLimits,
        pinned: frozenset[int],
        walked: Sequence[Moment],
        settled: Sequence[str | None],
    ) -> tuple[Chosen, bool]:
        """Return the choice at the last moment, and whether all vectors were there; earlier ones may be `settled`."""
        wanted = [self._want(pool, moment) for moment in walked]
        spread, *wants = await together(
            [noise(pool, self._ctx, self._wishes.wait), *wanted], self._ctx.services.embedder
        )
        limits = replace(limits, noise=math.inf if spread is None else spread)
        message_sizes = await self._ctx.tokens.sizes(self._ctx.incoming.messages)
        offer = self._kind(limits, message_sizes, pinned)
        for moment, want, known in zip_longest(walked, wants, settled):
            offer.decide(moment, want, self._places(moment.called), None if known is None else _read(known))
        last = wants[-1]
        if last.scores is not None:
            self.how = "by their words" if last.clear is None else "by words and meaning"
        return offer.chosen, last.is_complete and (spread is not None or self._ctx.services.embedder is None)

    async def _want(self, pool: Pool, moment: Moment) -> Want:
        if moment.is_idle and self._wishes.small_talk != "select":
            return Want()
        ctx, wait, embedder = self._ctx, self._wishes.wait, self._ctx.services.embedder
        key = ("tools wanted", self._kind, pool.digest, moment.queries, embedder.name if embedder else "")
        known: Want | None = ctx.once.known([key])[0]
        if known is not None:
            return known
        # a short message is about no section that only the words before it are about: it keeps those that stand
        queries = moment.queries[:1] if self._kind is Standing else moment.queries
        asked = [relevance(query, pool, ctx, wait) for query in queries]
        near, *relevances = await together([self._floor(queries[0]), *asked], embedder)
        is_complete = near is not None and all(each.is_complete for each in relevances)
        want = _wanted(relevances, (near or 0.0) - _NEARLY)._replace(is_complete=is_complete)
        if is_complete:
            ctx.once.remember(key, want)
        return want

    async def _floor(self, query: str) -> float | None:
        embedder = self._ctx.services.embedder
        return 0.0 if embedder is None else await embedder.floor(ends(query, LONGEST), wait=self._wishes.wait)

    def _places(self, names: frozenset[str]) -> frozenset[int]:
        return frozenset([n for n, tool in enumerate(self._tools) if tool.name in names] if names else ())


def _wanted(relevances: Sequence[Relevance], floor: float) -> Want:
    """Return what a moment wants by its words, and by those before them where they are short; clearly, by either."""
    alone, both = relevances[0], relevances[-1]
    pairs = [*zip(alone.scores, both.scores, strict=True)]
    scores = tuple(map(max, pairs))
    if not (alone.has_meaning and both.has_meaning):
        return Want(scores)
    return Want(scores, tuple(map(min, pairs)), floor)


def is_hosted(tool: Tool) -> bool:
    """Return whether the provider runs a tool, such as its web search: nothing in it says what it is about."""
    return not tool.is_function and tool.get("type") != "custom"


def _read(known: str) -> Chosen:
    return None if known == _ALL else tuple(int(place) for place in known.split(",") if place)
