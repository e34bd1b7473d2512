"""Separate user messages that follow each other, for chat templates that refuse them."""

import operator
from itertools import groupby
from typing import ClassVar

from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import ANSWER
from proxy.chat.provenance import of_client
from proxy.context import Context
from proxy.policy import Decision, Keep, Policy, Rewrite


class AlternateRoles(Policy):
    """Make user and assistant messages alternate, as the strict chat templates of some local models demand.

    Messages that earlier steps add become one, and a short assistant message ("Noted.") stands between it and the
    client's own message, which keeps its bytes. Put it behind the steps that add anything, and only in chains for
    models that need it.
    """

    may_grow: ClassVar[bool] = True

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        sent = of_client(request, ctx.incoming)
        apart: list[Message] = []
        groups = groupby(enumerate(request.messages), key=lambda each: (each[1].role, each[0] in sent))
        for (role, is_clients), group in groups:
            messages = [message for _, message in group]
            if role == "user" and not is_clients and len(messages) > 1:
                messages = [Message({"role": "user", "content": "\n".join(each.text for each in messages)})]
            for message in messages:
                apart += [ANSWER] if role == "user" and apart and apart[-1].role == "user" else []
                apart.append(message)
        if all(map(operator.is_, apart, request.messages)):
            return Keep("no user messages follow each other")
        return Rewrite(request.with_messages(apart), "user messages that followed each other are apart")
