"""A policy that needs an embedder: says which message is nearest to the last one."""

from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.policy import Decision, Keep, Need, Policy


class Nearest(Policy):
    """Say which message is nearest to the last one."""

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"embedding"})

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        if ctx.services.embedder is None:
            return Keep("by words")
        *others, last = [message.text for message in request.messages]
        near = await ctx.services.embedder.similarities(last, others, wait=10)
        known = [cosine for cosine in near if cosine is not None]
        return Keep(f"message {near.index(max(known))} by {ctx.services.embedder.name}" if known else "by words")
