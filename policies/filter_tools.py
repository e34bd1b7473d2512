"""Offer the tools that a conversation is about, and keep to them."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from proxy.chat import ChatRequest, Message, Tool, chosen_tools
from proxy.context import Context
from proxy.economics import UNCACHED
from proxy.policy import SETTINGS, Decision, Keep, Policy, Rewrite
from proxy.sections import without_sections
from proxy.tool_groups import named
from proxy.tool_ranking import Pool, pooled, relevance
from proxy.tool_set import Limits, Moment, Offer, Want, moments, request_ends

_STRIDE = 32
"""User messages that a conversation is walked through anew, at least; twice as many at most."""
_ALL = "all"
"""What is remembered where all tools are offered."""


class ToolGroup(BaseModel):
    """Tools that belong together: of one server, or for one kind of task."""

    model_config = SETTINGS

    tools: tuple[str, ...]
    """Globs of their names: `github_*`, `mcp__calendar__*`."""

    examples: tuple[str, ...] = ()
    """What people say who need them, in their own language: `apaga la luz`."""

    sections: tuple[str, ...] = ()
    """Sections of the system prompt that are only about them, by heading (`Flight rules`) or XML tag: they are left out
    while none of the tools is offered."""


class FilterTools(Policy):
    """Offer the tools that the user's messages are about, by words and meaning, in the client's order.

    `select` leaves the others out. The set is worked out from the whole conversation, so every replica has the same; it
    changes only when a message clearly wants a tool that is missing, and only if what the set saved so far pays for the
    prompt that is then written anew. Tools that were called or that `tool_choice` names, and `always`, stay. `narrow`
    leaves all of them in place, so that the prompt cache holds, and names those that may be called (`allowed_tools`).
    `auto` selects where that lowers the cost, narrows where the provider can, and else does nothing. A forced
    `tool_choice` and few tools are left alone. Put it before steps that offer tools of Penstock's own.
    """

    prefix_breaks_per_turn: ClassVar[float] = 0.1
    may_grow: ClassVar[bool] = True
    needs_embedding: ClassVar[bool] = True

    strategy: Literal["auto", "select", "narrow"] = "auto"
    """How tools are filtered: `select`, `narrow`, or what costs less (`auto`)."""

    keep: int = Field(default=30, ge=1, le=512)
    """The most tools to offer; models choose worse among more than 30 to 50."""

    max_tokens: int = Field(default=20_000, ge=100)
    """The most tokens that the definitions may take."""

    provider_most: int = Field(default=128, ge=1)
    """The most tools that the provider takes. More are brought down to it in any case."""

    always: tuple[str, ...] = (
        "think", "*sequential*thinking*", "plan", "finish", "done", "submit", "final_answer", "respond", "ask_user",
        "ask_human", "transfer_to_human*", "bash", "shell", "terminal", "python", "code_interpreter", "run_command",
        "execute_command", "run_code", "execute_code", "call*tool", "execute*tool", "run*tool", "use*tool",
    )  # fmt: skip
    """Globs of tools that are always offered. What is about no subject, or runs anything, cannot be ranked by it."""

    groups: dict[str, ToolGroup] = Field(default_factory=dict)
    """Tools that belong together, by a name of your own: who needs one is likely to need the others, and they stay for
    a follow-up that could mean anything. Tools that no group names are grouped by the server or subject that begins
    their names, or by a first sentence that their descriptions share."""

    examples: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """What people say who need a tool, by globs of its name."""

    small_talk: Literal["none", "select", "all"] = "none"
    """What is offered while a conversation is only small talk: no tools but `always`, those that fit best, or all."""

    allowed_tools_models: tuple[str, ...] = ("gpt-5*", "openai/gpt-5*")
    """Globs of the models whose provider takes `tool_choice: allowed_tools`."""

    wait: float = Field(default=1.0, ge=0)
    """Seconds to wait for vectors that are not there yet; until they are, words alone decide."""

    timeout: float = Field(default=4.0, gt=0)
    """Seconds after which the step is given up."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Select or narrow, if there is anything to gain."""
        sent = {id(tool) for tool in ctx.incoming.tools}
        tools = tuple(tool for tool in request.tools if id(tool) in sent)
        sizes = await ctx.tokens.tool_sizes(tools)
        most = self.provider_most - (len(request.tools) - len(tools))
        is_forced = len(tools) > most
        why = None if is_forced else self._nothing_to_gain(request, tools, sum(sizes))
        if why is not None:
            return Keep(why)
        filtering = _Filtering(self, request, ctx, tools, tuple(sizes))
        is_open = self.strategy != "narrow" and _is_open(request)
        if is_forced or is_open:
            most_kept = max(1, min(self.keep if is_open else len(tools), most))
            kept = await filtering.selected(most_kept, is_forced=is_forced)
            if kept is not None:
                return _selected(self, request, tools, kept, filtering.how)
        if self.strategy == "select" or not self._can_narrow(request, ctx):
            return Keep(f"{len(tools)} tools, and nothing to gain by fewer")
        kept = await filtering.narrowed()
        return _narrowed(request, tools, kept, filtering.how) if kept is not None else Keep("nothing is asked for")

    def _nothing_to_gain(self, request: ChatRequest, tools: Sequence[Tool], tokens: int) -> str | None:
        if len(tools) <= self.keep and tokens <= self.max_tokens:
            return f"{len(tools)} tools"
        return None if _is_open(request) else "tool_choice is the client's"

    def _can_narrow(self, request: ChatRequest, ctx: Context) -> bool:
        can = any(fnmatchcase(ctx.model.name, glob) for glob in self.allowed_tools_models)
        return can and request.rest.get("tool_choice") in (None, "auto")

    @property
    def globs(self) -> Mapping[str, Sequence[str]]:
        """The globs of each group."""
        return {name: group.tools for name, group in self.groups.items()}

    @property
    def said(self) -> Mapping[str, Sequence[str]]:
        """All examples, by globs of tools."""
        found: dict[str, tuple[str, ...]] = dict(self.examples)
        for group in self.groups.values():
            for glob in group.tools:
                found[glob] = (*found.get(glob, ()), *group.examples)
        return found


class _Filtering:
    """The work on one request."""

    def __init__(
        self, policy: FilterTools, request: ChatRequest, ctx: Context, tools: Sequence[Tool], sizes: tuple[int, ...]
    ) -> None:
        self._policy, self._request, self._ctx, self._tools, self._sizes = policy, request, ctx, tools, sizes
        self._messages = ctx.incoming.messages
        self._pinned: frozenset[int] = frozenset()
        self.how = "as before"
        """How the tools were found."""
        self._now = 0

    async def selected(self, keep: int, *, is_forced: bool) -> frozenset[int] | None:
        """The places of the tools to offer; None for all of them."""
        pool = await self._pool()
        limits = Limits(
            keep, self._policy.max_tokens, self._sizes, pool.groups, self._ctx.model.cache,
            is_forced=is_forced, idle_has_all=self._policy.small_talk == "all" and not is_forced,
        )  # fmt: skip
        return await self._chosen(pool, limits)

    async def narrowed(self) -> frozenset[int] | None:
        """The places of the tools that may be called; changing them costs nothing."""
        pool = await self._pool()
        limits = Limits(
            self._policy.keep, sum(self._sizes), self._sizes, pool.groups, UNCACHED, is_forced=True, idle_has_all=True
        )
        return await self._chosen(pool, limits)

    async def _pool(self) -> Pool:
        pool = await pooled(self._tools, self._ctx, self._policy.said, self._policy.globs)
        key = ("tools always offered", pool.digest, self._policy.always)
        always = await self._ctx.once.of_key(key, sum(map(len, pool.texts)), self._always)
        names = chosen_tools(self._request.rest.get("tool_choice"))
        self._pinned = frozenset([*always, *(place for place, tool in enumerate(self._tools) if tool.name in names)])
        return pool

    def _always(self) -> tuple[int, ...]:
        globs = self._policy.always
        return tuple(
            place for place, tool in enumerate(self._tools) if any(fnmatchcase(tool.name, glob) for glob in globs)
        )

    async def _chosen(self, pool: Pool, limits: Limits) -> frozenset[int] | None:
        found = moments(self._messages)
        # where the walk begins moves in strides: not with each message
        found = found[max(0, (len(found) // _STRIDE - 1) * _STRIDE) :]
        if not found:  # nobody asked for anything
            return self._with_called(tuple(range(len(self._tools))) if limits.is_forced else None, limits.keep)
        keys = self._keys(pool, limits, found)
        memo = self._ctx.memo
        known = (await memo.known(keys[-1:]))[0] if memo is not None else None
        if known is None:
            known = await self._walked(pool, limits, found, keys)
            if memo is not None:
                known = await memo.settle(keys[-1], known)
        return self._with_called(_read(known), limits.keep)

    async def _walked(self, pool: Pool, limits: Limits, found: Sequence[Moment], keys: Sequence[str]) -> str:
        """The tools of the last moment, worked out from the first one on, as they are remembered."""
        memo = self._ctx.memo
        known = await memo.known(keys[:-1]) if memo is not None else [None] * (len(keys) - 1)
        self._now = found[-1].end
        scores = await asyncio.gather(*(self._scores(pool, moment) for moment in found))
        message_sizes = await self._ctx.tokens.sizes(self._messages)
        offer = Offer(limits, request_ends(self._messages), message_sizes, self._pinned)
        called: frozenset[int] = frozenset()
        begin = 0
        for moment, each, settled in zip(found, scores, [*known, None], strict=True):
            called |= self._called(self._messages[begin : moment.end])
            begin = moment.end
            offer.decide(Want(moment.end, each, None if settled is None else _read(settled)), called)
        return _ALL if offer.chosen is None else ",".join(map(str, offer.chosen))

    async def _scores(self, pool: Pool, moment: Moment) -> tuple[float, ...] | None:
        if not moment.queries or (moment.is_idle and self._policy.small_talk != "select"):
            return None
        wait = self._policy.wait
        found = await asyncio.gather(*(relevance(query, pool, self._ctx, wait) for query in moment.queries))
        if moment.end == self._now:
            self.how = "by words and meaning" if all(each.has_meaning for each in found) else "by their words"
        return tuple(map(max, zip(*(each.scores for each in found), strict=True)))

    def _with_called(self, chosen: tuple[int, ...] | None, keep: int) -> frozenset[int] | None:
        """What was chosen, and what has been called since then: for that the least wanted leaves."""
        if chosen is None:
            return None
        must = self._called(self._messages) | self._called(self._request.messages) | self._pinned
        return must | frozenset([place for place in chosen if place not in must][: max(0, keep - len(must))])

    def _called(self, messages: Sequence[Message]) -> frozenset[int]:
        names = {name for message in messages for name in message.called_tools}
        return (
            frozenset(place for place, tool in enumerate(self._tools) if tool.name in names) if names else frozenset()
        )

    def _keys(self, pool: Pool, limits: Limits, found: Sequence[Moment]) -> list[str]:
        """A key for each moment, of all that its tools depend on."""
        policy, model = self._policy, self._ctx.model
        about = (
            pool.digest,
            limits.keep,
            limits.max_tokens,
            limits.is_forced,
            policy.small_talk,
            sorted(self._pinned),
        )
        running = blake2b(repr((about, limits.rules, model.name)).encode(), digest_size=16)
        keys: list[str] = []
        begin = 0
        for moment in found:
            for message in self._messages[begin : moment.end]:
                running.update(b"%d " % len(message.raw))
                running.update(message.raw)
            begin = moment.end
            keys.append(f"tools-{running.hexdigest()}")
        return keys


def _read(known: str) -> tuple[int, ...] | None:
    return None if known == _ALL else tuple(int(place) for place in known.split(",") if place)


def _is_open(request: ChatRequest) -> bool:
    """Whether the model is free to choose among the tools."""
    return request.rest.get("tool_choice") in (None, "auto", "required")


def _selected(
    policy: FilterTools, request: ChatRequest, tools: Sequence[Tool], kept: Collection[int], how: str
) -> Decision:
    if len(kept) == len(tools):
        return Keep(f"all {len(tools)} tools are wanted")
    gone = {id(tool) for place, tool in enumerate(tools) if place not in kept}
    # what was left out stays within reach by `search_tools`: its definition goes behind the others
    made = request.with_tools([tool for tool in request.tools if id(tool) not in gone])
    made = _without_their_sections(policy, made, [tools[place] for place in sorted(kept)], tools)
    why = f"offered {len(kept)} of {len(tools)} tools, {how}"
    return Rewrite(made, why, {"tools": len(tools), "tools_offered": len(kept)})


def _narrowed(request: ChatRequest, tools: Sequence[Tool], kept: Collection[int], how: str) -> Decision:
    if len(kept) == len(tools):
        return Keep(f"all {len(tools)} tools are wanted")
    others = [tool for tool in request.tools if not any(tool is one for one in tools)]
    allowed = [_choice(tool) for tool in (*(tools[place] for place in sorted(kept)), *others)]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}}
    why = f"allowed {len(kept)} of {len(tools)} tools, {how}"
    return Rewrite(request.with_field("tool_choice", choice), why, {"tools": len(tools), "tools_allowed": len(kept)})


def _choice(tool: Tool) -> Mapping[str, Any]:
    kind = "custom" if tool.get("type") == "custom" else "function"
    return {"type": kind, kind: {"name": tool.name}}


def _without_their_sections(
    policy: FilterTools, request: ChatRequest, kept: Sequence[Tool], tools: Sequence[Tool]
) -> ChatRequest:
    """The request without the system prompt's sections about groups that the client has and that are not offered."""
    had, has = ({named(tool.name, policy.globs) for tool in some} for some in (tools, kept))
    leaving = [one for name, group in policy.groups.items() if name in had - has for one in group.sections]
    if not leaving:
        return request
    messages = [_shortened(message, leaving) if message.is_system else message for message in request.messages]
    return request.with_messages(messages)


def _shortened(message: Message, sections: Sequence[str]) -> Message:
    content = message.get("content")
    if not isinstance(content, str):
        return message
    text = without_sections(content, sections)
    return message if text == content or not text.strip() else message.with_changes(content=text)
