"""Roles alternate for templates that demand it, and no message of the client's changes."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from policies.alternate_roles import AlternateRoles
from policies.compress_history import CompressHistory
from policies.pin_context import PinContext
from policies.recall_history import RecallHistory
from policies.window_history import WindowHistory
from proxy.chat import ChatRequest, Message
from proxy.chat.blocks import FACTS, MEMORIES, build
from proxy.chat.wire import flaws
from proxy.gateway.chain import run
from proxy.policy import Keep, Policy, Rewrite
from proxy.testing import MemoryArchive, chat, context
from tests.talk import assistant, system, user

SYSTEM, FIRST, ANSWER, LAST = (
    system("Be brief."),
    user("¿Qué tal?"),
    assistant("Bien."),
    user("🙂 go on"),
)
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
    assert isinstance(decision, Rewrite)
    made = decision.request
    assert [message.text for message in made.messages] == [each.format(*(one.text for one in BLOCKS)) for each in texts]
    assert not flaws(made)
    assert all(any(one is message for message in made.messages) for one in theirs)
    assert isinstance(await AlternateRoles().apply(made, ctx), Keep)


CUT: tuple[Policy, ...] = (CompressHistory(), PinContext(patterns=("answer 0",)), RecallHistory())
WINDOWED: tuple[Policy, ...] = (WindowHistory(keep_turns=3, stride=2, summary=False), PinContext(), RecallHistory())
TALK = [
    SYSTEM,
    user("My locker is number 4411. Never charge the card. ¡Nunca por la noche!"),
    *(each for n in range(30) for each in (assistant(f"answer {n} " * 12), user(f"row {n}? " * 9))),
    assistant("Bien."),
    user("What is the number of my locker?"),
]
CALLS = [
    *TALK[:2],
    *(each for n in range(20) for each in chat(f"a!c{n} tc{n}").messages),
]


@pytest.mark.parametrize(("steps", "talk"), [(CUT, TALK), (WINDOWED, TALK), (CUT, CALLS)])
async def test_summaries_pins_and_passages_that_stand_together_take_one_answer(
    steps: Sequence[Policy], talk: Sequence[Message]
) -> None:
    incoming = ChatRequest("m", tuple(each.with_changes(content=each.text + "!" * 120) for each in talk))
    chain = [(f"step {n}", step) for n, step in enumerate(steps)]
    ctx = context(incoming, window=1500, archive=MemoryArchive())
    without = (await run(chain, ctx, strict=True)).request
    made = (await run([*chain, ("alternate_roles", AlternateRoles())], ctx, strict=True)).request
    assert "conversation_summary" in without.messages[1].text + without.messages[2].text or steps is WINDOWED
    assert not any(message.text == "Noted." for message in without.messages)
    spoken = [message.role for message in made.messages if message.role in ("user", "assistant")]
    assert not any(one == two == "user" for one, two in pairwise(spoken))
    places = [place for place, message in enumerate(made.messages) if message.text == "Noted."]
    assert places
    for place in places:
        assert (made.messages[place - 1] in incoming.messages) + (made.messages[place + 1] in incoming.messages) == 1
    assert "Never charge the card." in "".join(message.text for message in made.messages)
