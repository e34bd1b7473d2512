"""Add a sentence to the system prompt."""

from typing import ClassVar

from proxy.chat import ChatRequest, Message, split_head
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy, Rewrite


class AddDisclaimer(Policy):
    """Add a sentence to the system prompt, once."""

    may_grow: ClassVar[bool] = True

    text: str = "Say that you are no lawyer where you are asked about law."
    """The sentence."""

    def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Put it behind the client's own system messages, so that it never moves: the prompt stays cached."""
        head, talk = split_head(request.messages)
        if any(message.text == self.text for message in head):
            return Keep("the disclaimer stands there")
        note = Message({"role": "system", "content": self.text})
        return Rewrite(request.with_messages([*head, note, *talk]), "added the disclaimer")
