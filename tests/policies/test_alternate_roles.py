"""Roles alternate for templates that demand it, and no message of the client's changes."""

from collections.abc import Sequence

import pytest

from policies.alternate_roles import AlternateRoles
from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import FACTS, MEMORIES, build
from proxy.chat.wire import flaws
from proxy.policy import Keep
from proxy.testing import chat, context
from tests.decisions import rewrite
from tests.talk import assistant, system, user

SYSTEM, FIRST, ANSWER, LAST = (system("Be brief."), user("¿Qué tal?"), assistant("Bien."), user("🙂 go on"))
BLOCKS = build(MEMORIES, "About.", ["- tea"]), build(FACTS, "About.", ["- Name: Ana"])


EXAMPLES = [chat("s u1 u2 a2 u3")]


@pytest.mark.parametrize(
    ("messages", "texts"),
    [
        ([SYSTEM, *BLOCKS, FIRST], ["Be brief.", "{0}\n{1}", "Noted.", "¿Qué tal?"]),
        ([SYSTEM, FIRST, ANSWER, BLOCKS[0], LAST], ["Be brief.", "¿Qué tal?", "Bien.", "{0}", "Noted.", "🙂 go on"]),
        ([FIRST, LAST], ["¿Qué tal?", "Noted.", "🙂 go on"]),
        ([FIRST, ANSWER, *BLOCKS], ["¿Qué tal?", "Bien.", "{0}\n{1}"]),
        ([FIRST, ANSWER, LAST], None),
    ],
    ids=["two blocks are one message", "a block in the middle", "the client's own", "at the end", "nothing to do"],
)
async def test_roles_alternate(messages: Sequence[Message], texts: Sequence[str] | None) -> None:
    theirs = [message for message in messages if message not in BLOCKS]
    ctx = context(ChatRequest("m", tuple(theirs)))
    request = ctx.incoming.with_messages(messages)
    decision = await AlternateRoles().apply(request, ctx)
    if texts is None:
        assert isinstance(decision, Keep)
        return
    made = rewrite(decision).request
    assert [message.text for message in made.messages] == [each.format(*(one.text for one in BLOCKS)) for each in texts]
    assert not flaws(made)
    assert all(any(one is message for message in made.messages) for one in theirs)
    assert isinstance(await AlternateRoles().apply(made, ctx), Keep)
