"""Forward only the recent turns of a long conversation, and a summary of the others."""

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from pydantic import Field

from proxy.chat import ChatRequest, Message, legal_cuts, split_head, turns
from proxy.compaction.references import make_standing
from proxy.context import Context
from proxy.economics import pays
from proxy.history.cuts import as_sent
from proxy.history.pins import Pattern
from proxy.history.summaries import Leaving, SummarySize, archived, is_summarised, summarised
from proxy.policy import SHORTER_HISTORY, Decision, Keep, Policy, Rewrite, Stage
from proxy.text import counted

_SMALL = 1000
"""Tokens that a summary may have, however little left."""
_RECALLED = 800
"""Tokens of passages that a request brings back behind a cut, at full price: about what long chats were given."""


class WindowHistory(Policy):
    """Let the oldest turns leave a long conversation; at least the last `keep_turns` stand word for word.

    A turn is a user message and all that answers it. Turns leave in strides, so that the prompt cache holds between two
    of them: `keep_turns: 8, stride: 4` keeps 8 to 11 turns. What leaves is archived first, and a summary with its
    handles stands in its place, made as `compress_history` makes it. What cannot be archived, or is no longer than its
    summary, stays.
    """

    stage: ClassVar = Stage.SHORTENS
    prefix_breaks_per_turn: ClassVar[float] = 0.1
    counted: ClassVar = {"dropped_messages": SHORTER_HISTORY}

    keep_turns: int = Field(default=40, ge=1)
    """The fewest turns that stay. System messages stay."""

    stride: int = Field(default=10, ge=1)
    """Turns that leave at once. A stride of 10 breaks the cached prefix at most every 10 turns."""

    only_if_paid_back: bool = False
    """Let turns leave only where that lowers the bill, counting the prefix that is written anew and the passages that
    come back, within as many requests as there were since the last cut. Nothing leaves where neither prices nor cache
    rules of the model are known."""

    summary: bool = True
    """Archive and summarise what leaves. Without it, turns that leave are gone for good."""

    summary_share: float = Field(default=0.12, gt=0, le=0.4)
    """The share of the usable window that the digest may take."""

    pins: tuple[Pattern, ...] = ()
    """Regular expressions: lines that match one survive word for word. A repeated repetition is refused."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Cut before the turn that the stride names, or the next one where a call's result stands behind that."""
        head, talk = split_head(request.messages)
        if is_summarised(talk, ctx):
            return Keep("the history was cut by an earlier step")
        starts = [0, *accumulate(map(len, turns(talk)))]
        count = len(starts) - 1
        if count < self.keep_turns + self.stride:
            return Keep(f"{counted(count, 'turn')}")
        cuts = await self._cuts(request, talk, starts, ctx)
        if not cuts:
            unpaid = "that pays for itself" if self.only_if_paid_back else "between a call and its result"
            return Keep(f"{counted(count, 'turn')}, but no place to cut {unpaid}")
        start, why = starts[cuts[-1]], f"dropped {cuts[-1]} of {count} turns"
        facts = {"dropped_turns": cuts[-1], "dropped_messages": start}
        ends = tuple(starts[cut] for cut in cuts)
        leaving = Leaving(talk, as_sent(request, len(head), ctx.incoming) or talk, ends, starts[self._newest(cuts[-1])])
        head = (*head, *leaving.controls)
        if not self.summary:
            return Rewrite(request.with_messages([*head, *await make_standing(talk[start:], ctx)]), why, facts)
        handles = await archived(leaving, ctx)
        if handles is None:
            return Keep(f"{counted(count, 'turn')}, but what would leave could not be archived")
        usable_handles = handles if request.tools else ()
        gone = sum(await ctx.tokens.sizes(talk[:start]))
        made = await summarised(leaving, usable_handles, SummarySize(self._room(request, gone, ctx), self.pins), ctx)
        if made is None:
            return Keep(f"{counted(count, 'turn')}, but the summary would be longer than what it replaces")
        after = request.with_messages([*head, *made, *await make_standing(talk[start:], ctx)])
        if (await ctx.tokens.count(after)).total > (await ctx.tokens.count(request)).total:
            return Keep(f"{counted(count, 'turn')}, but later results refer to longer lines of what would leave")
        return Rewrite(after, f"{why} into a summary", facts)

    def _room(self, request: ChatRequest, gone: int, ctx: Context) -> int:
        """Return the most tokens that the summary of so many may have: in a large window no more than a third."""
        most = int(ctx.model.usable(request) * self.summary_share)
        return min(max(_SMALL, gone // 3), most) if self.summary else 0

    def _newest(self, cut: int) -> int:
        """Return the newest turn of the request with which a cut began."""
        return cut + self.keep_turns - 1

    async def _cuts(
        self, request: ChatRequest, talk: Sequence[Message], starts: Sequence[int], ctx: Context
    ) -> list[int]:
        """Return the turns in front of which all cuts so far fell, in order; each depends on what stood there."""
        rules, legal, last = ctx.model.cache, legal_cuts(talk), len(starts) - 1 - self.keep_turns
        if self.only_if_paid_back and not (rules.ttl or ctx.model.prices.known):
            return []
        before = [0, *accumulate(await ctx.tokens.sizes(talk))]
        requests = [0, *accumulate(message.get("role") == "assistant" for message in talk)]

        def pays_back(previous: int, cut: int) -> bool:
            start, end = starts[cut], starts[self._newest(cut)]
            summary, gone = self._room(request, before[start], ctx), before[start] - before[starts[previous]]
            # the first cut begins to bring passages back; each of their tokens costs as much as reading many
            back = int(_RECALLED / rules.read) if self.summary and rules.ttl and rules.read else 0
            known = self._room(request, before[starts[previous]], ctx) if previous else -back
            since = requests[end] - (requests[starts[self._newest(previous)]] if previous else 0)
            return pays(rules, gone - summary + known, summary + before[end] - before[start], since)

        found = [0]
        for wanted in range(self.stride, last + 1, self.stride):
            cut = next((turn for turn in range(wanted, last + 1) if starts[turn] in legal), 0)
            if cut > found[-1] and (not self.only_if_paid_back or pays_back(found[-1], cut)):
                found.append(cut)
        return found[1:]
