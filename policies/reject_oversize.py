"""Refuse a request that would not fit the model's window."""

from typing import ClassVar

from pydantic import Field

from proxy.chat import ChatRequest
from proxy.chat.errors import OVERFLOW
from proxy.context import Context
from proxy.history.handover import asks_for_summary
from proxy.policy import Decision, Keep, Policy, Reject, Stage


class RejectOversize(Policy):
    """Answer `context_length_exceeded` instead of sending a prompt that the provider would refuse, or cut silently.

    Put it behind the steps that shorten.
    """

    stage: ClassVar = Stage.BOUNDS

    share: float = Field(default=0.95, gt=0, le=1)
    """The most of the usable window that a prompt may take: 0.95 leaves 5 % for errors of counting."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        count = await ctx.tokens.count(request)
        usable = ctx.model.usable(request)
        limit = int(usable * self.share)
        if count.total > limit and asks_for_summary(ctx.incoming):  # which is made of all that fits
            limit = int(usable * max(self.share, 1.0))
        used = f"{count.total} of {usable} usable tokens ({count.total / usable:.0%})"
        if count.total <= limit:
            return Keep(used)
        reserved = ctx.model.window - usable
        with_tools = f" ({count.tools} of them for tools)" if count.tools else ""
        what = "messages" if request.max_output_tokens is None else "messages or completion"
        return Reject(
            f"This model's maximum context length is {ctx.model.window} tokens. However, your messages resulted in "
            f"{count.total} tokens{with_tools}, and {reserved} are reserved for the answer: at most "
            f"{limit} fit. Please reduce the length of the {what}. (context_length_exceeded)",
            code=OVERFLOW,
            param="messages",
        )
