"""Offer the tools that a conversation is about, and keep to them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, Field

from proxy.chat import ChatRequest, Listed, Message, Tool, chosen_tools, listed
from proxy.context import Context
from proxy.economics import UNCACHED
from proxy.policy import SETTINGS, BringsTools, Count, Decision, InternalTool, Keep, Need, Policy, Rewrite, ToolContext
from proxy.text import counted
from proxy.text.sections import sections_of, without_sections
from proxy.tools.deferral import OURS, CallTool, deferred, searching
from proxy.tools.offer import OfferFinder, Wishes, clients_tools, in_first_order, is_hosted
from proxy.tools.ranking import matches, text_of
from proxy.tools.search_tools import SearchTools, by_relevance
from proxy.tools.selection import OfferLimits, Standing

_BEHIND = 2
"""Internal tools that later steps may add."""

_DEFERS = "defer_loading"
"""Anthropic's field of tools that its search finds."""
_SEARCH = Tool({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"})

_FEWER_TOOLS = Count("confusion_mitigations", "Requests in which fewer tools were offered.", "requests")


class ToolGroup(BaseModel):
    """Tools that belong together: of one server, or for one kind of task."""

    model_config = SETTINGS

    tools: tuple[str, ...] = ()
    """Globs of their names: `github_*`, `mcp__calendar__*`. None for sections of a chat without tools."""

    examples: tuple[str, ...] = ()
    """Phrases of people who need them, in their own language: `apaga la luz`."""

    sections: tuple[str, ...] = ()
    """Sections of the system prompt that are only about them, by heading (`Flight rules`) or XML tag. They are left out
    while the user's words are not about them, however many tools there are; see the page on tools."""


class FilterTools(Policy, BringsTools):
    """Offer the tools that the user's messages are about, by words and meaning, in the client's order.

    `select` leaves the others out. The set changes only when a message clearly wants a missing tool, and only if what
    it saved so far pays for the change. `defer` offers only `always` tools, so that the tools never change. The model
    finds what is left out with `search_tools` and calls it with `call_tool`, which Penstock runs. `narrow` offers all
    and names those that may be called (`allowed_tools`). `auto` selects where that lowers the cost, narrows where the
    provider can, and else does nothing. A forced `tool_choice` and few tools are left alone. Put it behind the steps
    that shorten history, before those that offer tools of Penstock's own.
    """

    prefix_breaks_per_turn: ClassVar[float] = 0.1
    may_grow: ClassVar[bool] = True
    internal_tools: ClassVar = (SearchTools, CallTool)
    counted: ClassVar = {"tools_offered": _FEWER_TOOLS, "tools_allowed": _FEWER_TOOLS}

    strategy: Literal["auto", "select", "defer", "narrow", "native"] = "auto"
    """`native` has the provider search (Anthropic's `defer_loading`, in Messages), and is `auto` elsewhere. Where
    Penstock cannot run searches, as for `/v1/compress`, `auto` and `defer` leave out no tool; `select` does."""

    keep: int = Field(default=30, ge=1, le=512)
    """The most tools to offer; models choose worse among more than 30 to 50. Fewer where some fit far better than the
    others."""

    least: int = Field(default=5, ge=1, le=512)
    """The fewest tools to offer, where a search finds the others; as many as `keep` for a fixed number."""

    max_tokens: int = Field(default=20_000, ge=100)
    """The most tokens that the definitions may take."""

    provider_most: int = Field(default=128, ge=1)
    """The most tools that the provider takes. More are brought down to it in any case."""

    always: tuple[str, ...] = (
        "think", "*sequential*thinking*", "plan", "finish", "done", "submit", "final_answer", "respond", "ask_user",
        "ask_human", "transfer_to_human*", "bash", "shell", "terminal", "python", "code_interpreter", "run_command",
        "execute_command", "run_code", "execute_code", "call*tool", "execute*tool", "run*tool", "use*tool",
    )  # fmt: skip
    """Globs of tools that are always offered. Tools that are about no subject, or run anything, cannot be ranked."""

    groups: dict[str, ToolGroup] = Field(default_factory=dict)
    """Tools that belong together, by a name of your own. Others are grouped by the beginning of their names."""

    examples: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Phrases of people who need a tool, by globs of its name."""

    small_talk: Literal["none", "select", "all"] = "none"
    """The tools that `select` offers while a conversation is only small talk: only `always`, those that fit best, or
    all. Where `tool_choice` is `required`, `none` is `select`."""

    allowed_tools_models: tuple[str, ...] = ("gpt-5*", "openai/gpt-5*")
    """Globs of the models whose provider takes `tool_choice: allowed_tools`."""

    wait: float = Field(default=1.0, ge=0)
    """Seconds to wait for vectors; until they are there, words alone decide."""

    timeout: float = Field(default=4.0, gt=0)
    """Seconds after which the step is given up."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"embedding"})

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if not request.tools and not self.groups:
            return Keep(counted(0, "tool"))
        sent, request = request, await in_first_order(request, ctx)
        decision = await self._offer(request, ctx)
        if isinstance(decision, Keep) and request is not sent:
            decision = Rewrite(request, f"{decision.why}, in their first order")
        if chosen_tools(request.rest.get("tool_choice")):
            return decision
        names = [name for name, group in self.groups.items() if group.sections]
        if not names:
            return decision
        made = decision.request if isinstance(decision, Rewrite) else request
        leaving = await self._leaving(names, request.tools, made.tools, ctx)
        without = made.with_messages([_shortened(each, leaving) if each.is_system else each for each in made.messages])
        if all(one is other for one, other in zip(made.messages, without.messages, strict=True)):
            return decision
        why = f"left out the sections {', '.join(leaving)}"
        if isinstance(decision, Rewrite):
            return replace(decision, request=without, why=f"{decision.why}; {why}")
        return Rewrite(without, f"{decision.why}; {why}")

    async def _leaving(
        self, names: Sequence[str], tools: Sequence[Tool], offered: Sequence[Tool], ctx: Context
    ) -> Sequence[str]:
        prompt = "\n".join([each.text for each in ctx.incoming.messages if each.is_system])
        about, phrases, others = [], {}, tools
        for name in names:
            group = self.groups[name]
            inner = {"name": name, "description": sections_of(prompt, group.sections)}
            about.append(Tool({"type": "function", "function": inner}))
            its = [tool for tool in others if matches(tool.name, group.tools)]
            phrases[name] = (*group.examples, *[text_of(tool).meaning for tool in its])
            others = [tool for tool in others if not any(tool is one for one in its)]
        # what wants one of the other tools is not about a section that only comes near it
        wishes = replace(self._wishes, always=(), small_talk="none", examples=phrases, groups={})
        size = sum(await ctx.tokens.tool_sizes(offered))
        limits = OfferLimits(len(about), 0, 0, (size,), ctx.model.cache)
        finder = OfferFinder(
            wishes, (*about, *others), limits, fixed=chosen_tools(ctx.incoming.rest.get("tool_choice")), kind=Standing
        )
        standing, _ = await finder.find(ctx.incoming, ctx)
        if standing is None:
            return ()
        gone = [name for place, name in enumerate(names) if place not in standing]
        return [section for name in gone for section in self.groups[name].sections]

    async def _offer(self, request: ChatRequest, ctx: Context) -> Decision:
        sizes, search = await ctx.tokens.tool_sizes(request.tools), sum(await ctx.tokens.tool_sizes(OURS))
        make = partial(self._plan, request, ctx, sizes, search)
        choice = repr(request.rest.get("tool_choice"))
        key = (self._wishes, choice, ctx.conditions.runs_tools, ctx.model.name, ctx.model.cache, sizes, search)
        plan = listed(request.tools).derive(key, make) if request.tools is ctx.incoming.tools else make()
        if plan.why:
            return Keep(plan.why)
        if self.strategy == "native" and _is_open(request) and (deferred_there := self._natively(request, ctx)):
            return deferred_there
        chosen: Collection[int] | None = plan.staying
        how = "as always"
        if plan.finder is not None:
            chosen, how = await plan.finder.find(request, ctx)
        if chosen is not None:
            return self._left_out(request, plan.tools, chosen, plan.hidden, how)
        if not self._can_narrow(request, ctx):
            return Keep(f"{counted(len(plan.tools), 'tool')}, and nothing to gain by fewer")
        chosen, how = await plan.narrowing.find(request, ctx)
        return _narrowed(request, plan.tools, chosen, how) if chosen is not None else Keep("nothing is asked for")

    def _plan(self, request: ChatRequest, ctx: Context, sizes_of_all: Sequence[int], search: int) -> "_Plan":
        """Return what holds for every request with these tools, of these sizes, and for this choice among them."""
        tools, reachable, others = clients_tools(request, ctx)
        size_of = dict(zip(map(id, request.tools), sizes_of_all, strict=True))
        sizes, choice = tuple([size_of[id(tool)] for tool in tools]), request.rest.get("tool_choice")
        most, is_open = self.provider_most - (len(request.tools) - len(tools)), _is_open(request)
        is_forced = len(tools) > most
        hidden = reachable if others + len(OURS) < most else frozenset()
        is_allowed = self.strategy == "select" or (self.strategy != "narrow" and bool(hidden))
        may_leave = is_open and is_allowed
        # all are offered: a change of those that may be called costs nothing
        limits = OfferLimits(self.keep, self.keep, sum(sizes), sizes, UNCACHED, is_forced=True, idle_has_all=True)
        narrowing = OfferFinder(self._wishes, tools, limits, fixed=chosen_tools(choice))
        plan = _Plan(self._to_keep(request, tools, sum(sizes), is_forced=is_forced), tools, hidden, narrowing)
        if may_leave and self.strategy == "defer":
            always = [n for n, tool in enumerate(tools) if tool.name not in hidden or matches(tool.name, self.always)]
            return plan._replace(staying=always)
        if not (may_leave or is_forced):
            return plan
        must_call = choice == "required" and self.small_talk == "none"
        wishes = replace(self._wishes, small_talk="select") if must_call else self._wishes
        keep = min(self.keep if may_leave else len(tools), max(1, most - len(OURS) if hidden else most))
        least = self.least if hidden else keep
        if not is_open:  # as many as the provider takes, with the tools that steps behind this one offer
            keep = least = max(1, keep - _BEHIND)
        limits = OfferLimits(
            keep, least, self.max_tokens, sizes, ctx.model.cache, is_forced,
            idle_has_all=self.small_talk == "all" and not is_forced, search=search if hidden else 0,
        )  # fmt: skip
        return plan._replace(finder=OfferFinder(wishes, tools, limits, hidden, chosen_tools(choice)))

    def _natively(self, request: ChatRequest, ctx: Context) -> Decision | None:
        """Return the request with a search of the provider's in front of its tools; None where it has none.

        A tool with a mark for the cache cannot be deferred.
        """
        if _DEFERS not in ctx.conditions.native_edits:
            return None
        marked = [not tool.is_function or "cache_control" in tool for tool in request.tools]
        named = [matches(tool.name, self.always) for tool in request.tools]
        stays = [*map(any, zip(marked, named, strict=True))]
        if all(stays):
            return None
        pairs = zip(request.tools, stays, strict=True)
        tools = [tool if stay else tool.with_changes(**{_DEFERS: True}) for tool, stay in pairs]
        why = f"the provider searches {len(stays) - sum(stays)} of {len(stays)} tools"
        return Rewrite(request.with_tools([_SEARCH, *tools]), why, {"tools": len(stays), "tools_offered": sum(stays)})

    def _to_keep(self, request: ChatRequest, tools: Sequence[Tool], tokens: int, *, is_forced: bool) -> str | None:
        """Return why the tools stay as they are, if they do."""
        if any(tool.get(_DEFERS) or str(tool.get("type")).startswith("tool_search") for tool in request.tools):
            # what the provider found is named in the conversation, and must be among the tools
            return "the client has the provider search its tools"
        if is_forced:
            return None
        if len(tools) <= self.keep and tokens <= self.max_tokens:
            return counted(len(tools), "tool")
        return None if _is_open(request) else "tool_choice is the client's"

    def _can_narrow(self, request: ChatRequest, ctx: Context) -> bool:
        if self.strategy not in ("auto", "narrow", "native") or request.rest.get("tool_choice") not in (None, "auto"):
            return False
        return matches(ctx.model.name, self.allowed_tools_models)

    def _left_out(
        self, request: ChatRequest, tools: Sequence[Tool], chosen: Collection[int], hidden: frozenset[str], how: str
    ) -> Decision:
        """Return the request with the tools of these places; others that are `hidden` can be called through ours."""
        if len(chosen) == len(tools):
            return Keep(f"all {len(tools)} tools are wanted")
        offered = listed(tools).derive(("offered", frozenset(chosen)), lambda: _offered(request, tools, chosen))
        if hidden:
            made = deferred(request, hidden - offered.names, offered)
            others = "the others by search_tools"
        else:
            made, others = request.with_tools(offered), "the others out of reach"
        why = f"offered {len(chosen)} of {len(tools)} tools, {how}, {others}"
        return Rewrite(made, why, {"tools": len(tools), "tools_offered": len(chosen)})

    def build_tools(self, surroundings: ToolContext) -> Sequence[InternalTool]:
        sent = surroundings.ctx.incoming
        rank = by_relevance(sent.tools, surroundings.ctx, self._examples, self._groups)
        return [searching(sent, surroundings.request, rank), CallTool(sent.tools, surroundings.threads)]

    @property
    def _groups(self) -> Mapping[str, Sequence[str]]:
        return {name: group.tools for name, group in self.groups.items()}

    @property
    def _examples(self) -> Mapping[str, Sequence[str]]:
        phrases: dict[str, tuple[str, ...]] = dict(self.examples)
        for group in self.groups.values():
            for glob in group.tools:
                phrases[glob] = (*phrases.get(glob, ()), *group.examples)
        return phrases

    @cached_property
    def _wishes(self) -> Wishes:
        return Wishes(self.always, self.small_talk, self.wait, self._examples, self._groups)


class _Plan(NamedTuple):
    """The ways to offer some tools."""

    why: str | None
    """The reason to keep all of them; None where fewer may be offered."""
    tools: Sequence[Tool]
    """The client's."""
    hidden: frozenset[str]
    """The names of those that can be called though they are left out."""
    narrowing: OfferFinder
    """Finds those that may be called of all."""
    finder: OfferFinder | None = None
    """Finds those that are offered; None where that does not depend on the conversation."""
    staying: Sequence[int] | None = None
    """The places of those that are offered then; None for all."""


def _offered(request: ChatRequest, tools: Sequence[Tool], chosen: Collection[int]) -> Listed[Tool]:
    gone = {id(tool) for place, tool in enumerate(tools) if place not in chosen}
    return listed([tool for tool in request.tools if id(tool) not in gone])


def _is_open(request: ChatRequest) -> bool:
    """Return whether the client leaves the choice among the tools to the model, or wants none called."""
    return request.rest.get("tool_choice") in (None, "auto", "required", "none")


def _narrowed(request: ChatRequest, tools: Sequence[Tool], chosen: Collection[int], how: str) -> Decision:
    if len(chosen) == len(tools):
        return Keep(f"all {len(tools)} tools are wanted")
    others = [tool for tool in request.tools if not any(tool is one for one in tools)]
    allowed = [_choice(tool) for tool in (*(tools[place] for place in sorted(chosen)), *others)]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}}
    why = f"allowed {len(chosen)} of {len(tools)} tools, {how}"
    return Rewrite(request.with_field("tool_choice", choice), why, {"tools": len(tools), "tools_allowed": len(chosen)})


def _choice(tool: Tool) -> Mapping[str, Any]:
    if is_hosted(tool):
        return {key: tool[key] for key in ("type", "server_label") if key in tool}
    kind = "custom" if tool.get("type") == "custom" else "function"
    return {"type": kind, kind: {"name": tool.name}}


def _shortened(message: Message, sections: Sequence[str]) -> Message:
    """Return a system message without sections. Of a text, or a part of several, that would be empty they stay."""

    def shorter(text: str) -> str:
        left = without_sections(text, sections)
        return left if left.strip() else text

    return message.with_texts(shorter)
