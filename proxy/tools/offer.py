"""The client's tools that a conversation is offered: found for its last moment, and remembered for all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import filterfalse, zip_longest
from typing import NamedTuple

from proxy.chat import ChatRequest, Tool, listed
from proxy.chat.wire import called_tools
from proxy.context import Context, Memo
from proxy.economics import may_be_cached
from proxy.text.bm25 import ends
from proxy.tools.deferral import deferrable, is_ours
from proxy.tools.ranking import EACH, LONGEST, Pool, Relevance, matches, noise, pooled, relevance, together
from proxy.tools.selection import Moment, Offer, OfferLimits, Standing, State, Want, moments

_MANY = 16
"""Fewer tools are left in whatever order they come."""
_STRIDE = 32
"""User messages that a conversation is walked through anew, at least; twice as many at most."""

_NEARLY = 0.1
"""A tool's score may be so much lower than the floor of relevance, which is the cosine of the nearest small talk."""
_ALL = "all"
_AS_BEFORE = "as before"

Chosen = tuple[int, ...] | None
"""The places of tools, the most wanted first; None for all."""


@dataclass(frozen=True, eq=False)
class Wishes:
    """The operator's wishes for what is wanted, as the fields of `filter_tools` say; only the same object is equal."""

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
    """Return the tools of a request that the client sent; all of them where it sent none of them."""
    sent = None if request.tools is ctx.incoming.tools else {id(tool) for tool in ctx.incoming.tools}
    tools = tuple([tool for tool in request.tools if (sent is None or id(tool) in sent) and not is_ours(tool)])
    deferrable_tools = deferrable(request, ctx.incoming.tools) if ctx.conditions.runs_tools else ()
    reachable = frozenset([tool.name for tool in deferrable_tools])
    others = sum([tool.name not in reachable for tool in tools])
    return Clients(tools if 0 < len(tools) < len(request.tools) else request.tools, reachable, others)


async def in_first_order(request: ChatRequest, ctx: Context) -> ChatRequest:
    """Return the request with its tools in the order in which its conversation sent them first, to keep the prefix."""
    tools, memo = listed(request.tools), ctx.memo
    if memo is None or len(tools) < _MANY:
        return request

    def work() -> tuple[str, str, tuple[int, ...]]:
        raws = tools.raws
        by_content = sorted(range(len(raws)), key=raws.__getitem__)
        places = {place: rank for rank, place in enumerate(by_content)}
        key = blake2b(b"\0".join([raws[place] for place in by_content]), digest_size=16).hexdigest()
        return f"tools-order-{key}", ",".join([str(places[place]) for place in range(len(raws))]), tuple(by_content)

    key, mine, by_content = tools.derive("order", work)
    first = await memo.settle(key, mine)
    if first == mine:
        return request
    return request.with_tools([tools[by_content[int(rank)]] for rank in first.split(",")])


class _Ready(NamedTuple):
    """Tools that are ready to be chosen from."""

    pool: Pool
    pinned: frozenset[int]
    """The places of tools that are always offered."""
    about: bytes
    """Stands for all that a choice depends on besides the conversation."""


class OfferFinder:
    """Finds which of some tools to offer, in each request that has them."""

    def __init__(
        self,
        wishes: Wishes,
        tools: Sequence[Tool],
        limits: OfferLimits,
        within_reach: frozenset[str] = frozenset(),
        fixed: Sequence[str] = (),
        kind: type[Offer | Standing] = Offer,
    ) -> None:
        """Tools `within_reach` can be called though they are left out; where there are any, only they are.

        `fixed` are the names of tools that `tool_choice` names.
        """
        self._wishes, self._tools, self._limits, self._kind = wishes, tools, limits, kind
        self._within_reach, self._fixed = within_reach, tuple(fixed)
        self._ready: _Ready | None = None

    async def find(self, request: ChatRequest, ctx: Context) -> tuple[frozenset[int] | None, str]:
        """Return the places of the tools to offer, or of the sections that stand, and how they were found.

        None stands for all. Every call has the same model.
        """
        ready = self._ready = self._ready or await self._made_ready(ctx)
        walked = moments(ctx.incoming)
        # where the walk begins moves in strides: not with each message
        walked = walked[max(0, (len(walked) // _STRIDE - 1) * _STRIDE) :]
        if walked:
            chosen, how = await self._settled(ready, walked, ctx)
        else:  # nobody asked for anything
            chosen, how = tuple(range(len(self._tools))) if self._limits.is_forced else None, _AS_BEFORE
        if chosen is None:
            return None, how
        must = ready.pinned
        if self._kind is Offer and not self._within_reach:  # what was called must stay: the least wanted leaves for it
            must |= self._places(called_tools(ctx.incoming) | called_tools(request))
        others = [*filterfalse(must.__contains__, chosen)]
        return must | frozenset(others[: max(0, self._limits.keep - len(must))]), how

    async def _made_ready(self, ctx: Context) -> _Ready:
        pool = await pooled(self._tools, ctx, self._wishes.examples, self._wishes.groups)
        key = ("tools always offered", pool.digest, self._wishes.always, self._fixed, self._within_reach)

        def is_pinned(tool: Tool) -> bool:
            is_out_of_reach = bool(self._within_reach) and tool.name not in self._within_reach
            is_named = tool.name in self._fixed or matches(tool.name, self._wishes.always)
            return is_out_of_reach or is_named or is_hosted(tool)

        def work() -> frozenset[int]:
            return frozenset([place for place, tool in enumerate(self._tools) if is_pinned(tool)])

        pinned, limits = await ctx.once.of_key(key, EACH * len(self._tools), work), self._limits
        about = repr((
            self._kind.__name__, pool.digest, limits.keep, limits.least, limits.max_tokens, limits.is_forced,
            limits.rules, self._wishes.small_talk, sorted(pinned), ctx.model.name,
        )).encode()  # fmt: skip
        return _Ready(pool, pinned, about)

    async def _settled(self, ready: _Ready, walked: Sequence[Moment], ctx: Context) -> tuple[Chosen, str]:
        """Return what was chosen at the last moment, and how.

        The process remembers the state behind each moment, and decides only at new ones. The memo has the choices of
        all processes, of which the first at a moment counts.
        """
        memo, embedder, once = ctx.memo, ctx.services.embedder, ctx.once
        about = ctx.identity.scope, self._limits.sizes, embedder and embedder.name
        known: tuple[State, str] | None = None
        names: list[str] = []
        for moment in reversed(walked):
            names.insert(0, f"tools-{blake2b(ready.about + moment.prefix, digest_size=16).hexdigest()}")
            if (known := once.known([(about, names[0])])[0]) is not None:
                break
        new = names if known is None else names[1:]
        if known is not None and not new:
            return await _first(names[0], known[0][0], memo), known[1]
        if memo is not None and (known is None or embedder is not None):  # a look-up costs less than a vector
            (last,) = await memo.known(new[-1:])
            if last is not None:
                return _read(last), _AS_BEFORE
        settled = [] if memo is None else await memo.known(new[:-1])
        states, is_sure, how = await self._walked(ready, known and known[0], walked[-len(new) :], settled, ctx)
        chosen = states[-1][0]
        if is_sure or await self._stays(chosen, ctx):
            chosen = await _first(new[-1], chosen, memo)
            states[-1] = (chosen, *states[-1][1:])
        for name, state in zip(new, states if is_sure else (), strict=False):
            once.remember((about, name), (state, how))
        return chosen, how

    async def _stays(self, chosen: Chosen, ctx: Context) -> bool:
        """Return whether a choice stays that was made without some vectors; else the next request makes it again."""
        if ctx.services.embedder is None or ctx.services.embedder.is_behind:
            return False
        limits = self._limits
        sizes = limits.sizes if chosen is None or self._kind is Standing else [limits.sizes[place] for place in chosen]
        talk = await ctx.tokens.sizes(ctx.incoming.messages)
        return may_be_cached(limits.rules, sum(sizes) + sum(talk))

    async def _walked(
        self, ready: _Ready, state: State | None, walked: Sequence[Moment], settled: Sequence[str | None], ctx: Context
    ) -> tuple[list[State], bool, str]:
        """Return the state behind each moment, whether all vectors were there, and how the last choice was found.

        Choices at the first moments may be `settled`.
        """
        embedder = ctx.services.embedder
        wanted = [self._want(ready.pool, moment, ctx) for moment in walked]
        spread, *wants = await together([noise(ready.pool, ctx, self._wishes.wait), *wanted], embedder)
        limits = self._limits if spread is None else replace(self._limits, noise=spread)
        offer = self._kind(limits, await ctx.tokens.sizes(ctx.incoming.messages), ready.pinned, state)
        states = list[State]()
        for moment, want, known in zip_longest(walked, wants, settled):
            offer.decide(moment, want, partial(self._places, moment.called), None if known is None else _read(known))
            states.append(offer.state)
        is_sure = (spread is not None or embedder is None) and all([want.is_complete for want in wants])
        how = "by their words" if wants[-1].clear is None else "by words and meaning"
        return states, is_sure, _AS_BEFORE if wants[-1].scores is None else how

    async def _want(self, pool: Pool, moment: Moment, ctx: Context) -> Want:
        if moment.is_idle and self._wishes.small_talk != "select":
            return Want()
        # a short message is about no section that only the words before it are about: it keeps those that stand
        queries = moment.queries[:1] if self._kind is Standing else moment.queries
        wait, embedder = self._wishes.wait, ctx.services.embedder
        asked = [relevance(query, pool, ctx, wait) for query in queries]
        if embedder is None:
            near, relevances = 0.0, [await each for each in asked]
        else:
            near, *relevances = await together([embedder.floor(ends(queries[0], LONGEST), wait=wait), *asked], embedder)
        is_complete = near is not None and all([each.is_complete for each in relevances])
        return _wanted(relevances, (near or 0.0) - _NEARLY, is_complete=is_complete)

    def _places(self, names: frozenset[str]) -> frozenset[int]:
        return frozenset([n for n, tool in enumerate(self._tools) if tool.name in names] if names else ())


def _wanted(relevances: Sequence[Relevance], floor: float, *, is_complete: bool) -> Want:
    """Return what a moment wants by its words, and by those before them where they are short; clearly, by either."""
    alone, both = relevances[0], relevances[-1]
    scores = tuple(map(max, alone.scores, both.scores))
    if not (alone.has_meaning and both.has_meaning):
        return Want(scores, is_complete=is_complete)
    return Want(scores, tuple(map(min, alone.scores, both.scores)), floor, is_complete)


def is_hosted(tool: Tool) -> bool:
    """Return whether the provider runs a tool, such as its web search: nothing in it says what it is about."""
    return not tool.is_function and tool.get("type") != "custom"


async def _first(name: str, chosen: Chosen, memo: Memo | None) -> Chosen:
    """Return the choice at a moment that counts: the first one of any process."""
    told = _ALL if chosen is None else ",".join(map(str, chosen))
    first = told if memo is None else await memo.settle(name, told)
    return chosen if first == told else _read(first)


def _read(known: str) -> Chosen:
    return None if known == _ALL else tuple(int(place) for place in known.split(",") if place)
