"""Let the model read what left its context."""

from typing import ClassVar

from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy, Rewrite
from proxy.recall import DEFINITION


class OfferRecall(Policy):
    """Offer the tool `recall`, which Penstock runs by itself: the client never sees a call of it.

    It is there from a conversation's first request on, so the provider's prompt cache never breaks for it. A plain chat
    without tools gets none; a client's own tool of that name stays the client's. Put it before the steps that shorten:
    they leave handles, which the tool reads.
    """

    may_grow: ClassVar[bool] = True
    internal_tools: ClassVar[frozenset[str]] = frozenset({DEFINITION.name})

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Add the tool behind the client's own."""
        if not request.tools:
            return Keep("a chat without tools")
        if ctx.archive is None:
            return Keep("there is no archive to read")
        if any(tool.name == DEFINITION.name for tool in request.tools):
            return Keep(f"a tool {DEFINITION.name!r} is there already")
        return Rewrite(request.with_tools([*request.tools, DEFINITION]), f"offered {DEFINITION.name!r}")
