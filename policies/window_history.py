"""Forward only the recent turns of a long conversation, and a summary of the others."""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from typing import ClassVar, Self

from pydantic import Field, model_validator

from proxy.chat import ChatRequest, Message, legal_cuts, split_head, turns
from proxy.context import Context
from proxy.history.cuts import as_sent
from proxy.history.pins import compiled
from proxy.history.summaries import Leaving, Measure, archived, is_summarised, summarised
from proxy.policy import Decision, Keep, Policy, Rewrite

_SMALL = 1000
"""Tokens that a summary may have, however little left."""


class WindowHistory(Policy):
    """Let the oldest turns leave once a conversation outgrows `keep_turns`.

    A turn is a user message and all that answers it. Turns leave in strides, not one by one: between two strides the
    prefix stays byte for byte the same, so that the provider's prompt cache keeps hitting. The cut depends on the
    conversation alone; nothing is stored but what leaves: that is archived first, and a summary with its handles
    stands in its place, made as `compress_history` makes it. What cannot be archived, or is no longer than its
    summary, stays.
    """

    prefix_breaks_per_turn: ClassVar[float] = 0.1

    keep_turns: int = Field(default=40, ge=1)
    """The most turns to forward. System messages are always kept."""

    stride: int = Field(default=10, ge=1)
    """How many turns leave at once; at most `keep_turns`. A stride of 10 breaks the cached prefix every 10 turns."""

    summary: bool = True
    """Whether what leaves is archived and summarised. Without it, turns that leave are gone for good."""

    summary_share: float = Field(default=0.08, gt=0, le=0.2)
    """The share of the usable window that the extracts may take."""

    pins_share: float = Field(default=0.08, ge=0, le=0.2)
    """The share of the usable window that the pinned texts may take. What does not fit is behind the handle."""

    pins: tuple[str, ...] = ()
    """Regular expressions: lines that match one survive word for word. A repeated repetition is refused."""

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        if self.stride > self.keep_turns:
            raise ValueError(f"stride ({self.stride}) must not exceed keep_turns ({self.keep_turns})")
        for pattern in self.pins:
            compiled(pattern)
        return self

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Cut before the turn that the stride names, or the next one where a call's result lies behind that."""
        head, talk = split_head(request.messages)
        if is_summarised(talk, ctx):
            return Keep("the history was cut by an earlier step")
        starts = [0, *accumulate(map(len, turns(talk)))]
        count = len(starts) - 1
        if count <= self.keep_turns:
            return Keep(f"{count} turns")
        cuts = self._cuts(talk, starts)
        if not cuts:
            return Keep(f"{count} turns, but no place to cut between a call and its result")
        start, why = starts[cuts[-1]], f"dropped {cuts[-1]} of {count} turns"
        facts = {"dropped_turns": cuts[-1], "dropped_messages": start}
        if not self.summary:
            return Rewrite(request.with_messages([*head, *talk[start:]]), why, facts)
        decided = max(cuts[-1], ceil(cuts[-1] / self.stride - 1) * self.stride + self.keep_turns)
        ends = tuple(starts[cut] for cut in cuts)
        leaving = Leaving(talk, as_sent(talk, ctx.incoming.messages), ends, starts[min(count - 1, decided)])
        handles = await archived(leaving, ctx)
        if handles is None:
            return Keep(f"{count} turns, but what would leave could not be archived")
        made = await summarised(leaving, handles, await self._measure(request, talk[:start], ctx), ctx)
        if made is None:
            return Keep(f"{count} turns, but the summary would be longer than what it replaces")
        after = request.with_messages([*head, *made.messages, *talk[start:]])
        return Rewrite(after, f"{why} into a summary", facts | made.facts)

    async def _measure(self, request: ChatRequest, gone: Sequence[Message], ctx: Context) -> Measure:
        """The shares of the window, but in a large one no more than a third of a long history."""
        shares = self.summary_share + self.pins_share
        third = max(_SMALL, sum(await ctx.tokens.sizes(gone)) // 3)
        return Measure(min(third, int(ctx.model.usable(request) * shares)), self.pins_share / shares, self.pins)

    def _cuts(self, talk: Sequence[Message], starts: Sequence[int]) -> list[int]:
        """The turns that all cuts so far fell before, in order."""
        legal, count = legal_cuts(talk), len(starts) - 1
        most = ceil((count - self.keep_turns) / self.stride) * self.stride
        found: list[int] = []
        for wanted in range(self.stride, most + 1, self.stride):
            place = next((turn for turn in range(wanted, count) if starts[turn] in legal), None)
            if place is not None and place not in found[-1:]:
                found.append(place)
        return found
