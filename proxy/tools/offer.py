"""The client's tools that a conversation is offered: found for its last moment, and remembered for all of them."""

import asyncio
import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from proxy.chat import ChatRequest, Tool, chosen_tools, listed
from proxy.chat.wire import called_tools
from proxy.context import Context
from proxy.economics import UNCACHED, may_be_cached
from proxy.text.bm25 import ends
from proxy.tools.deferral import deferrable, is_ours
from proxy.tools.ranking import EACH, LONGEST, Pool, Relevance, matches, noise, pooled, raws_of, relevance, together
from proxy.tools.selection import Moment, Offer, OfferLimits, Standing, Want, moments, request_ends

_MANY = 16
"""Fewer tools are left in whatever order they come."""
_STRIDE = 32
"""User messages that a conversation is walked through anew, at least; twice as many at most."""

_ALONE = 0.8
"""The weight of a short message by itself, beside that of it and the words before it."""
_NEARLY = 0.1
"""A tool's score may be so much lower than the floor of relevance, which is the cosine of the nearest small talk."""
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Wishes:
    """The operator's wishes for the offer, as the fields of `filter_tools` say."""

    least: int
    max_tokens: int
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
        key = ("client's", ctx.runs_tools, chosen_tools(request.rest.get("tool_choice")))
        clients = listed(request.tools).derive(key, work)
    else:
        clients = work()
    return clients if clients.tools else clients._replace(tools=request.tools)


def _clients_tools(request: ChatRequest, ctx: Context) -> Clients:
    """Return the client's tools; none stands for all of the request."""
    sent = None if request.tools is ctx.incoming.tools else {id(tool) for tool in ctx.incoming.tools}
    tools = tuple([tool for tool in request.tools if (sent is None or id(tool) in sent) and not is_ours(tool)])
    deferrable_tools = deferrable(request, ctx.incoming.tools) if ctx.runs_tools else ()
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
    ) -> None:
        """Tools `within_reach` can be called though they are left out; where there are any, only they are."""
        self._wishes, self._request, self._ctx, self._tools = wishes, request, ctx, tools
        self._messages = ctx.incoming.messages
        self._within_reach = within_reach
        self._pinned: frozenset[int] = frozenset()
        self._now = 0
        self._kind: type[Offer | Standing] = Offer
        self._is_late = False
        self.how = "as before"

    async def selected(
        self, keep: int, sizes: tuple[int, ...], search: int, *, is_forced: bool
    ) -> frozenset[int] | None:
        """Return the places of at most `keep` tools; None for all. `search` are the tokens of what finds the others."""
        pool = await self._pool()
        limits = OfferLimits(
            keep,
            self._wishes.least if self._within_reach else keep,
            self._wishes.max_tokens,
            sizes,
            pool.groups,
            self._ctx.model.cache,
            is_forced=is_forced,
            idle_has_all=self._wishes.small_talk == "all" and not is_forced,
            called_must_stay=not self._within_reach,
            search=search,
        )
        return await self._chosen(pool, limits)

    async def narrowed(self, keep: int, sizes: tuple[int, ...]) -> frozenset[int] | None:
        """Return the places of the tools that may be called, where all are offered: changing them costs nothing."""
        pool = await self._pool()
        limits = OfferLimits(keep, keep, sum(sizes), sizes, pool.groups, UNCACHED, is_forced=True, idle_has_all=True)
        return await self._chosen(pool, limits)

    async def standing(self, count: int, tokens: int) -> frozenset[int] | None:
        """Return the places of the sections that stay, which the first `count` tools stand for; None for all."""
        pool = await self._pool()
        limits = OfferLimits(count, 0, 0, (tokens,), pool.groups, self._ctx.model.cache, called_must_stay=False)
        self._kind = Standing
        return await self._chosen(pool, limits)

    async def _pool(self) -> Pool:
        pool = await pooled(self._tools, self._ctx, self._wishes.examples, self._wishes.groups)
        fixed = chosen_tools(self._request.rest.get("tool_choice"))
        key = ("tools always offered", pool.digest, self._wishes.always, fixed, self._within_reach)
        size = EACH * len(self._tools)
        self._pinned = await self._ctx.once.of_key(key, size, lambda: frozenset(self._staying(fixed)))
        return pool

    def _staying(self, fixed: Collection[str]) -> Iterator[int]:
        for place, tool in enumerate(self._tools):
            is_out_of_reach = self._within_reach and tool.name not in self._within_reach
            if is_out_of_reach or tool.name in fixed or matches(tool.name, self._wishes.always):
                yield place

    async def _chosen(self, pool: Pool, limits: OfferLimits) -> frozenset[int] | None:
        walked = moments(self._ctx.incoming)
        if not limits.called_must_stay:  # then calls change nothing
            walked = [moment for moment in walked if moment.queries]
        # where the walk begins moves in strides: not with each message
        walked = walked[max(0, (len(walked) // _STRIDE - 1) * _STRIDE) :]
        if not walked:  # nobody asked for anything
            return self._as_it_is(tuple(range(len(self._tools))) if limits.is_forced else None, limits)
        memo = self._ctx.memo
        if memo is None:
            return self._as_it_is(_read(await self._walked(pool, limits, walked, [None] * (len(walked) - 1))), limits)
        about = repr((
            self._kind.__name__, pool.digest, limits.keep, limits.least, limits.max_tokens, limits.is_forced,
            limits.called_must_stay, limits.rules, self._wishes.small_talk, sorted(self._pinned), self._ctx.model.name,
        )).encode()  # fmt: skip
        keys = [f"tools-{blake2b(about + moment.prefix, digest_size=16).hexdigest()}" for moment in walked]
        # most requests of an agent have nothing but results behind what they had: their tools were worked out before
        is_known = self._ctx.once.known(keys[-1:])[0] is not None
        known = (await memo.known(keys[-1:]))[0] if is_known else None
        if known is None:
            *earlier, last = keys
            if self._ctx.embedder is None:
                # by words alone they are worked out sooner than the store says that it does not know them
                before = await memo.known(earlier)
            else:
                *before, known = await memo.known(keys)
            if known is None:
                known = await self._walked(pool, limits, walked, before)
                if not self._is_late or await self._stays(_read(known), limits):
                    known = await memo.settle(last, known)
            self._ctx.once.remember(last, True)
        return self._as_it_is(_read(known), limits)

    async def _stays(self, chosen: tuple[int, ...] | None, limits: OfferLimits) -> bool:
        """Return whether a choice stays that was made without some vectors; else the next request makes it again."""
        if self._ctx.embedder is None or self._ctx.embedder.is_behind:
            return False
        sizes = limits.sizes if chosen is None or self._kind is Standing else [limits.sizes[place] for place in chosen]
        talk = await self._ctx.tokens.sizes(self._messages)
        return may_be_cached(limits.rules, sum(sizes) + sum(talk))

    async def _walked(
        self, pool: Pool, limits: OfferLimits, walked: Sequence[Moment], known: Sequence[str | None]
    ) -> str:
        """Return the tools of the last moment, worked out from the first one on; `known` are the earlier ones."""
        self._now = walked[-1].end
        known_wants = [self._known_want(pool, moment) for moment in walked]
        new = [moment for moment, want in zip(walked, known_wants, strict=True) if want is None]
        spread, made_wants = await asyncio.gather(
            noise(pool, self._ctx, self._wishes.wait), together([self._want(pool, moment) for moment in new])
        )
        limits = replace(limits, noise=math.inf if spread is None else spread)
        self._is_late = self._is_late or (spread is None and self._ctx.embedder is not None)
        made = iter(made_wants)
        wants = [next(made) if want is None else want for want in known_wants]
        message_sizes = await self._ctx.tokens.sizes(self._messages)
        offer = self._kind(limits, request_ends(self._ctx.incoming), message_sizes, self._pinned)
        for moment, want, settled in zip(walked, wants, [*known, None], strict=True):
            called = self._places(moment.called)
            offer.decide(want if settled is None else want._replace(settled=_read(settled)), called)
        return _ALL if offer.chosen is None else ",".join(map(str, offer.chosen))

    def _known_want(self, pool: Pool, moment: Moment) -> Want | None:
        """Return what a moment wants, where that is known; None where it must be worked out, as for the last one."""
        if not moment.queries or (moment.is_idle and self._wishes.small_talk != "select"):
            return Want(moment.end, None)
        if moment.end == self._now:
            return None
        known: Want | None = self._ctx.once.known([self._key(pool, moment)])[0]
        return None if known is None else known._replace(end=moment.end)

    def _key(self, pool: Pool, moment: Moment) -> Hashable:
        name = self._ctx.embedder.name if self._ctx.embedder else ""
        return "tools wanted", self._kind, pool.digest, moment.queries, name

    async def _want(self, pool: Pool, moment: Moment) -> Want:
        wait = self._wishes.wait
        # a short message is about no section that only the words before it are about: it keeps those that stand
        queries = moment.queries[:1] if self._kind is Standing else moment.queries
        embedder = self._ctx.embedder
        asked = [relevance(query, pool, self._ctx, wait) for query in queries]
        if embedder is None:
            relevances, near = await together(asked), None
        else:
            floor = embedder.floor(ends(queries[0], LONGEST), wait=wait)
            near, relevances = await asyncio.gather(floor, together(asked))
        is_complete = all(each.is_complete for each in relevances) and (near is not None or embedder is None)
        if moment.end == self._now:
            self._is_late = not is_complete
            self.how = "by words and meaning" if all(each.has_meaning for each in relevances) else "by their words"
        want = _wanted(moment.end, relevances, (near or 0.0) - _NEARLY)
        if is_complete:
            self._ctx.once.remember(self._key(pool, moment), want)
        return want

    def _as_it_is(self, chosen: tuple[int, ...] | None, limits: OfferLimits) -> frozenset[int] | None:
        """Return what was chosen, and what must stay besides: for that the least wanted leaves."""
        if chosen is None:
            return None
        must = self._pinned
        if limits.called_must_stay:
            must |= self._places(called_tools(self._ctx.incoming) | called_tools(self._request))
        others = [place for place in chosen if place not in must]
        return must | frozenset(others[: max(0, limits.keep - len(must))])

    def _places(self, names: frozenset[str]) -> frozenset[int]:
        return frozenset([n for n, tool in enumerate(self._tools) if tool.name in names] if names else ())


def _wanted(end: int, relevances: Sequence[Relevance], floor: float) -> Want:
    """Return what a moment wants by its words, and by those before them where they are short; clearly, by either."""
    alone, both = relevances[0], relevances[-1]
    pairs = [*zip(alone.scores, both.scores, strict=True)]
    if not (alone.has_meaning and both.has_meaning):
        return Want(end, tuple(map(max, pairs)))
    scores = tuple([max(_ALONE * one, other) for one, other in pairs])
    return Want(end, scores, clear=tuple(map(min, pairs)), floor=floor)


def _read(known: str) -> tuple[int, ...] | None:
    return None if known == _ALL else tuple(int(place) for place in known.split(",") if place)
