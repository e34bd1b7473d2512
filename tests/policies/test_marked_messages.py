"""Steps behind one that has marked a user's message, and in front of it: it is the client's all the same."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from msgspec import structs

from policies.check_facts import CheckFacts
from policies.include_shared import IncludeShared
from policies.pin_context import PinContext
from policies.recall_history import RecallHistory
from policies.resolve_clashes import ResolveClashes
from policies.select_memories import SelectMemories
from policies.self_correct import SelfCorrect
from policies.validate_content import ValidateContent
from policies.window_history import WindowHistory
from proxy.chat import ChatRequest, Message
from proxy.context import CacheRules, Context
from proxy.gateway.chain import run
from proxy.policy import Policy
from proxy.testing import MemoryMemo, context, profile
from tests.policies.test_include_shared import Box
from tests.policies.test_select_memories import Given, item
from tests.policies.test_self_correct import EMPTY, Pending
from tests.talk import assistant, user

FACT = "The capital of Australia is Canberra."
FALSE = "The capital of Australia is Sydney."
NOTE = "[incorrect: contradicts the trusted fact"
CHECK = CheckFacts(facts=(FACT,))
DEADLINE = "The deadline of Project Atlas is May 3, 2026."
LATER = "The deadline of Project Atlas is June 9, 2026."


async def texts(messages: Sequence[Message], *chain: Policy, ctx: Context | None = None) -> list[str]:
    request = ChatRequest("test-model", tuple(messages))
    ctx = context(request, model=profile(10**6)) if ctx is None else structs.replace(ctx, incoming=request)
    outcome = await run([(type(policy).__name__, policy) for policy in chain], ctx, strict=True)
    return [message.text for message in outcome.request.messages]


@pytest.mark.parametrize("chain", list(permutations([CHECK, ResolveClashes()])))
async def test_a_clash_of_a_marked_message_is_seen(chain: Sequence[Policy]) -> None:
    moved = user("The meeting has moved to Friday.")
    talk = [user(f"The meeting is on Monday. {FALSE}"), assistant("Ok."), moved, assistant("Ok."), user("?")]
    older, *_ = await texts(talk, *chain)
    assert older.count(NOTE) == older.count("is superseded, the user said later") == 1
    assert older.startswith(f"The meeting is on Monday. {FALSE[:-1]}")


@pytest.mark.parametrize("action", ["annotate", "quarantine"])
@pytest.mark.parametrize("last", [True, False])
async def test_what_contradicts_a_fact_is_not_said_to_hold(action: str, last: bool) -> None:
    talk = [user(DEADLINE), assistant("Ok."), user(LATER), *([] if last else [assistant("Ok."), user("?")])]
    clash = await texts(talk, ResolveClashes())
    assert "superseded" in clash[0], "without the fact it would be"
    check = CheckFacts.model_validate({"facts": [DEADLINE], "action": action})
    assert not any("superseded" in text for text in await texts(talk, check, ResolveClashes()))


async def test_what_was_quarantined_is_not_quoted_and_what_was_marked_is_marked_once() -> None:
    talk = [user(LATER), assistant("Ok."), user(DEADLINE), assistant("Ok."), user("?")]
    assert any("superseded" in text for text in await texts(talk, ResolveClashes()))
    quarantine = CheckFacts(facts=(DEADLINE,), action="quarantine")
    assert not any("June" in text for text in await texts(talk, quarantine, ResolveClashes()))
    talk = [user(FALSE), assistant("Ok."), user("?")]
    once = await texts(talk, CHECK)
    assert await texts(talk, CHECK, CHECK) == once
    assert await texts(talk[:1], CHECK, CHECK) == await texts(talk[:1], CHECK)


async def test_data_in_a_marked_message_are_judged_as_the_clients() -> None:
    data = f"<context>{FALSE} Se\ufffdor caf\ufffd ma\ufffdana.</context> What is it?"
    talk = [user(data), assistant("Ok."), user("?")]
    strict = ValidateContent.model_validate({"least": {"relevance": 1.0}})
    alone, behind = await texts(talk, strict), await texts(talk, CHECK, strict)
    assert alone[0].startswith("<content_quality>") or "The data in the next message" in alone[0]
    assert behind[0] == alone[0]
    assert behind[1].startswith("<context>")


async def test_a_marked_message_has_not_left() -> None:
    talk = [user(f"{FALSE} I like boats."), assistant("Ok."), user("What do I like?")]
    marked = await texts(talk, CHECK)
    assert await texts(talk, CHECK, RecallHistory()) == marked
    quarantined = CheckFacts(facts=(FACT,), action="quarantine")
    assert not any("Sydney" in text for text in await texts(talk, quarantined, RecallHistory()))
    pinned = PinContext(patterns=("Sydney",))
    assert not any("Sydney" in text for text in await texts(talk, quarantined, pinned))


CACHED = profile(10**6, cache=CacheRules(read=0.1, write=1.25, minimum=0, ttl=300))


def inbox() -> Box:
    box = Box()
    box.gets("The ship sails at nine.")
    return box


@pytest.mark.parametrize(
    ("policy", "services", "tag"),
    [
        (SelfCorrect(), {"corrections": Pending(EMPTY)}, "<answer_notes>"),
        (IncludeShared(), {"inbox": inbox()}, "<shared_context>"),
        (SelectMemories(), {"memories": Given(item("1", 0.99, text="Likes boats."))}, "<relevant_context>"),
    ],
)
async def test_a_block_stays_in_front_of_a_marked_message(policy: Policy, services: dict[str, Any], tag: str) -> None:
    talk = [user("Hi."), assistant("Ok."), user(f"{FALSE} Which boats do I like?")]
    ctx = context(model=CACHED, memo=MemoryMemo(), **services)
    first = await texts(talk, policy, ctx=ctx)
    later = await texts([*talk, assistant("Ok. " * 2000), user("Thanks.")], CHECK, policy, ctx=ctx)
    assert first[2].startswith(tag)
    assert later[:3] == first[:3]
    assert any(NOTE in text for text in later[3:])


async def test_what_was_recalled_stays_in_front_of_a_message_that_is_marked() -> None:
    boat = user("My sailing boat is called Pelagia and its berth is in the harbour of Hull.")
    talk = [boat, assistant("Ok. " * 300), user("Fine."), assistant("Ok.")]
    talk += [user(f"{FALSE} What is my sailing boat called, and which harbour has its berth?")]
    cut, ctx = WindowHistory(keep_turns=2, stride=1, summary=False), context(model=CACHED, memo=MemoryMemo())
    first = await texts(talk, cut, RecallHistory(), ctx=ctx)
    behind = WindowHistory(keep_turns=3, stride=1, summary=False)
    later = await texts([*talk, assistant("Ok. " * 2000), user("Thanks.")], behind, CHECK, RecallHistory(), ctx=ctx)
    assert "Pelagia" in first[2]
    assert later[:3] == first[:3]
    assert any(NOTE in text for text in later[3:])
