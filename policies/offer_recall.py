"""Let the model read what left its context."""

from collections.abc import Sequence
from typing import ClassVar

from proxy.chat import ChatRequest, Message
from proxy.chat.markers import MARKER
from proxy.context import Context
from proxy.economics import may_be_cached
from proxy.policy import BringsTools, Decision, InternalTool, Keep, Policy, Rewrite, ToolContext
from proxy.tools.recall import DEFINITION, Recall

_NAME = MARKER.rstrip('"').encode()


class OfferRecall(Policy, BringsTools):
    """Offer the tool `recall`, which Penstock runs by itself: the client never sees a call of it.

    It is there from the first request of a conversation that the provider's prompt cache keeps, so the cache never
    breaks for it; below the cache's minimum, and where there is no cache, only once the request has a handle to read.
    A plain chat without tools gets none; a client's own tool of that name stays the client's. Put it behind the steps
    that shorten: they leave the handles.
    """

    may_grow: ClassVar[bool] = True
    internal_tools: ClassVar = (Recall,)

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if not request.tools:
            return Keep("a chat without tools")
        if ctx.archive is None:
            return Keep("there is no archive to read")
        if any(tool.name == DEFINITION.name for tool in request.tools):
            return Keep(f"a tool {DEFINITION.name!r} is there already")
        if not await _is_cached(request, ctx) and not request.form.any("handle", _has_handle):
            return Keep("nothing left the context, and the prompt is too short to be cached")
        return Rewrite(request.with_tools([*request.tools, DEFINITION]), f"offered {DEFINITION.name!r}")

    def build_tools(self, made: ToolContext) -> Sequence[InternalTool]:
        ctx = made.ctx
        if ctx.archive is None:
            return ()
        return [Recall(ctx.archive, made.threads, messages=ctx.incoming.messages, longest=made.free // 2)]


async def _is_cached(request: ChatRequest, ctx: Context) -> bool:
    return may_be_cached(ctx.model.cache, (await ctx.tokens.count(request)).total)


def _has_handle(message: Message) -> bool:
    """Whether a message holds a handle, or has asked for one before."""
    if message.get("tool_calls") and DEFINITION.name in message.called_tools:
        return True
    # quotes read differently in text and in the arguments of a call: leave out what escapes them
    return _NAME in message.raw and MARKER.encode() in message.raw.replace(b"\\", b"")
