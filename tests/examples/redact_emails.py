"""Replace e-mail addresses before a request leaves."""

import re

from proxy.chat import ChatRequest
from proxy.context import Context
from proxy.policy import Decision, Guard, Keep, Rewrite

_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")


class RedactEmails(Guard):
    """Replace e-mail addresses in all messages, in text parts, and in the arguments of tool calls."""

    placeholder: str = "[e-mail address withheld]"
    """What stands for an address."""

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Replace each address."""
        messages = [message.with_texts(self._redacted) for message in request.messages]
        changed = sum(new is not old for new, old in zip(messages, request.messages, strict=True))
        if not changed:
            return Keep("no addresses")
        return Rewrite(request.with_messages(messages), f"took addresses out of {changed} messages")

    def _redacted(self, text: str) -> str:
        return _ADDRESS.sub(self.placeholder, text)
