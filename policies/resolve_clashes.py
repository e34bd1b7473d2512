"""Tell the model which of the user's statements no longer hold."""

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar, Literal

from pydantic import Field

from proxy.chat import ChatRequest, Message
from proxy.clashes.dialogue import Clash
from proxy.clashes.search import found
from proxy.clashes.wording import NOTED, is_brief, is_told, line, marked, removed
from proxy.context import Context
from proxy.economics import may_be_cached
from proxy.policy import Decision, Keep, Policy, Rewrite


class ResolveClashes(Policy):
    """Where the user says something that contradicts what they said before, say that the later statement holds.

    It sees changed choices, preferences, amounts, dates, times and places, denials and opposites, in English and
    Spanish, by words alone; it would rather miss one than invent one. Questions, suppositions, quotations and what
    others are said to think are no statements.

    As long as the prompt is too short for the provider's cache, or the model has none, the older statement is marked
    where it stands. Behind that, its bytes are cached and stay: one line in front of the message that changes it says
    what holds now and what it replaces, if both are short enough to be quoted. It stays there, so that each later
    prompt begins as the one before. Two statements of one message, and two that are both uncertain, are counted and
    left as they are.
    """

    may_grow: ClassVar[bool] = True
    gives_way: ClassVar[bool] = True
    prefix_breaks_per_turn: ClassVar[float] = 0.1  # marks, as long as nothing is cached

    older: Literal["auto", "keep", "mark", "remove"] = "auto"
    """What happens to the older statement. `auto`: it is marked where that costs nothing, and stays as it is elsewhere.
    `keep`: it always stays as it is. `mark`: it is always marked, which costs the provider's cache of what stands
    behind it. `remove`: it leaves the message, which is archived first; where it cannot be archived it is marked."""

    timeout: float = Field(default=2.0, gt=0)
    """Seconds after which the step is given up. Only the first request of a long conversation takes more than a few
    milliseconds."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Find the pairs that clash, and say of each what holds."""
        theirs = {id(message) for message in ctx.incoming.messages}
        if any(is_told(message) for message in request.messages if id(message) not in theirs):
            return Keep("an earlier step has resolved clashes already")
        # what is not theirs, such as a summary, an earlier step wrote
        said = [message if id(message) in theirs else _SILENT for message in request.messages]
        clashes = await found(said, ctx.once)
        solved = [clash for clash in clashes if clash.solvable]
        facts = {"clashes": len(clashes), "clashes_resolved": len(solved), "irresolvable": len(clashes) - len(solved)}
        if not solved:
            return Keep(_why(facts), facts)
        in_place = await self._in_place(solved, request, ctx)
        changed = await self._changed(request.messages, [clash for clash in solved if clash in in_place], ctx)
        told = _lines(request.messages, [clash for clash in solved if clash not in in_place and is_brief(clash)])
        messages: list[Message] = []
        for place, message in enumerate(request.messages):
            messages += [told[place], NOTED] if place in told else []
            messages.append(changed.get(place, message))
        if not changed and not told:
            return Keep(f"{len(solved)} statements are superseded, none in so few words that a line pays", facts)
        facts |= {"marked_messages": len(changed), "lines": len(told)}
        return Rewrite(request.with_messages(messages), _why(facts), facts)

    async def _in_place(self, clashes: Sequence[Clash], request: ChatRequest, ctx: Context) -> frozenset[Clash]:
        """Those whose older statement is changed where it stands.

        By the size of the conversation up to the newer one: later requests find the same.
        """
        rules = ctx.model.cache
        if self.older == "keep":
            return frozenset()
        if self.older != "auto" or not rules.ttl:
            return frozenset(clashes)
        head = sum(await ctx.tokens.tool_sizes(request.tools))
        ends = list(accumulate(await ctx.tokens.sizes(request.messages), initial=head))
        return frozenset(each for each in clashes if not may_be_cached(rules, ends[each.newer + 1]))

    async def _changed(self, messages: Sequence[Message], clashes: Sequence[Clash], ctx: Context) -> dict[int, Message]:
        """The older messages as they are sent, by their places."""
        changed: dict[int, Message] = {}
        for place in sorted({clash.older for clash in clashes}):
            of_one = [clash for clash in clashes if clash.older == place]
            handle = None
            if self.older == "remove" and ctx.archive is not None:
                handle = await ctx.archive.keep(messages[place].text)
            changed[place] = marked(messages, of_one) if handle is None else removed(messages, of_one, handle)
        return changed


_SILENT = Message({"role": "system", "content": ""})


def _lines(messages: Sequence[Message], clashes: Sequence[Clash]) -> dict[int, Message]:
    """What is told in front of the newer messages, by their places."""
    places = sorted({clash.newer for clash in clashes})
    return {place: line(messages, [clash for clash in clashes if clash.newer == place]) for place in places}


def _why(facts: dict[str, int]) -> str:
    if not facts["clashes"]:
        return "no statement of the user's contradicts an earlier one"
    open_ones = f", {facts['irresolvable']} cannot be resolved" if facts["irresolvable"] else ""
    return f"{facts['clashes_resolved']} statements are superseded by later ones{open_ones}"
