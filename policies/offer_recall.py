"""Let the model read what left its context."""

from collections.abc import Sequence
from typing import ClassVar

from proxy.chat import ChatRequest, listed
from proxy.context import Context
from proxy.policy import BringsTools, Decision, InternalTool, Keep, Policy, Rewrite, ToolContext
from proxy.tools.recall import DEFINITION, Recall, is_wanted


class OfferRecall(Policy, BringsTools):
    """Offer the tool `recall`, which Penstock runs by itself: the client never sees a call of it.

    It is there from the first request that has a handle to read, which breaks the prompt cache once. A chat without
    tools gets none; a client's own tool of that name stays the client's. Put it behind the steps that shorten.
    """

    may_grow: ClassVar[bool] = True
    internal_tools: ClassVar = (Recall,)

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if not request.tools:
            return Keep("a chat without tools")
        if ctx.archive is None:
            return Keep("there is no archive to read")
        tools = listed(request.tools)
        if DEFINITION.name in tools.names:
            return Keep(f"a tool {DEFINITION.name!r} is there already")
        if not is_wanted(request):
            return Keep("nothing left the context")
        offered = tools.derive("with recall", lambda: listed([*tools, DEFINITION]))
        return Rewrite(request.with_tools(offered), f"offered {DEFINITION.name!r}")

    def build_tools(self, surroundings: ToolContext) -> Sequence[InternalTool]:
        ctx = surroundings.ctx
        if ctx.archive is None:
            return ()
        return [
            Recall(ctx.archive, surroundings.threads, messages=ctx.incoming.messages, longest=surroundings.free // 2)
        ]
