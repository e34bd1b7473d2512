"""Forward only the recent turns of a long conversation."""

from math import ceil
from typing import ClassVar, Self

from pydantic import Field, model_validator

from proxy.chat import ChatRequest, legal_cuts, split_head, turns
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy, Rewrite


class WindowHistory(Policy):
    """Drop the oldest turns once a conversation outgrows `keep_turns`.

    A turn is a user message and all that answers it. Turns leave in strides, not one by one: between two strides the
    prefix stays byte for byte the same, so that the provider's prompt cache keeps hitting. The cut depends on the
    conversation alone; nothing is stored. What leaves is gone: keep the window wide, or summarise instead.
    """

    prefix_breaks_per_turn: ClassVar[float] = 0.1

    keep_turns: int = Field(default=40, ge=1)
    """The most turns to forward. System messages are always kept."""

    stride: int = Field(default=10, ge=1)
    """How many turns leave at once; at most `keep_turns`. A stride of 10 breaks the cached prefix every 10 turns."""

    @model_validator(mode="after")
    def _stride_leaves_something(self) -> Self:
        if self.stride > self.keep_turns:
            raise ValueError(f"stride ({self.stride}) must not exceed keep_turns ({self.keep_turns})")
        return self

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Cut before the turn that the stride names, or the next one where a call's result lies behind that."""
        head, talk = split_head(request.messages)
        groups = turns(talk)
        excess = len(groups) - self.keep_turns
        if excess <= 0:
            return Keep(f"{len(groups)} turns")
        starts = [0]
        for group in groups:
            starts.append(starts[-1] + len(group))
        legal = legal_cuts(talk)
        wanted = ceil(excess / self.stride) * self.stride
        dropped = next((turn for turn in range(wanted, len(groups)) if starts[turn] in legal), 0)
        if not dropped:
            return Keep(f"{len(groups)} turns, but no place to cut between a call and its result")
        kept = talk[starts[dropped] :]
        return Rewrite(
            request.with_messages([*head, *kept]),
            why=f"dropped {dropped} of {len(groups)} turns",
            facts={"dropped_turns": dropped, "dropped_messages": len(talk) - len(kept)},
        )
