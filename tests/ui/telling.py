"""A step as no operator should write one: its reasons and facts quote what the client wrote."""

from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy


class Telling(Policy):
    """Says in its reasons what the last message says."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Keep the request."""
        text = request.messages[-1].text
        return Keep(text, {"said": text, text: 1})
