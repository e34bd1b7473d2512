"""Send short conversations to a cheaper model."""

from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.policy import Choose, Decision, Keep, Policy


class RouteBySize(Policy):
    """Send short conversations to a cheaper model."""

    model: str = "gpt-5-mini"
    """The cheaper model, as clients name it."""

    most: int = 2000
    """The tokens of the longest prompt that goes there."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Choose by the size of the prompt; `count` returns its tokens by section, and their `total`."""
        count = await ctx.tokens.count(request)
        if count.total > self.most:
            return Keep(f"{count.total} tokens")
        return Choose(self.model, f"only {count.total} tokens")
