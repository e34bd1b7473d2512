"""Marks for prompt caches: where they stand, whose win, and what a request costs without any."""

from dataclasses import replace
from typing import Any

import pytest

from policies.mark_cache import MarkCache
from proxy.chat import CacheMarks, ChatRequest, Tool
from proxy.chat.blocks import RECALLED, build
from proxy.chat.cache_marks import write_marks
from proxy.context import CacheRules, Context, Identity
from proxy.economics import UNCACHED
from proxy.policy import Keep, Rewrite
from proxy.testing import Example, chat, context, profile, tool
from tests.decisions import rewrite

CLAUDE = CacheRules(read=0.1, write=1.25, minimum=8, ttl=300, marked=True)
OPENAI = CacheRules(read=0.1, write=1.0, minimum=8, ttl=600, keyed=True)


def asked(request: ChatRequest, rules: CacheRules = CLAUDE, tenant: str = "test") -> Context:
    return context(request, identity=Identity(tenant, session="named-x"), model=profile(cache=rules))


EXAMPLES = [
    Example(asked(request, rules))
    for request in (chat("s u1 a1 u2"), chat("s u1 a1! t1 a2! t2", tools=[tool()]))
    for rules in (CLAUDE, OPENAI)
]


async def marks(request: ChatRequest, ctx: Context | None = None, **settings: Any) -> CacheMarks | None:
    decision = await MarkCache(**settings).apply(request, ctx or asked(request))
    return decision.request.cache_marks if isinstance(decision, Rewrite) else None


@pytest.mark.parametrize(("conversation", "tools", "settings", "messages", "on_tools"), [
    ("s u1", 0, {}, (0, 1), False),
    ("s u1 a1 u2", 0, {}, (0, 1, 3), False),
    ("s u1 a1 u2 a2 u3", 0, {}, (0, 3, 5), False),
    ("s u1 a1! t1 a2! t2", 1, {}, (0, 3, 5), True),
    ("u1 a1 u2", 1, {}, (0, 2), True),
    ("s u1 a1 u2 a2", 0, {}, (0, 3, 4), False),
    ("s u1 a1 u2", 1, {"conversation": False}, (0,), True),
    ("u1 a1 u2", 0, {"conversation": False}, None, False),
], ids=["first turn", "second", "third", "tool loop", "no system prompt", "answer begun", "head alone", "no head"])  # fmt: skip
async def test_marks_stand_where_the_cache_is_read_and_where_it_is_written(
    conversation: str, tools: int, settings: dict[str, Any], messages: tuple[int, ...] | None, on_tools: bool
) -> None:
    request = chat(conversation, tools=[tool()] * tools)
    made = await marks(request, **settings)
    assert made == (None if messages is None else CacheMarks(messages, on_tools))


async def test_a_turn_of_many_results_is_read_where_the_last_request_ended() -> None:
    """A mark looks back over 20 blocks; these results are more."""
    calls = ",".join(map(str, range(30)))
    results = " ".join(f"t{n}" for n in range(30))
    before = chat("s u1", tools=[tool()])
    after = chat(f"s u1 a!{calls} {results}", tools=[tool()])
    first, second = await marks(before), await marks(after)
    assert first is not None
    assert second is not None
    assert max(first.messages) in second.messages


async def test_a_block_that_a_step_added_is_not_the_only_end_of_the_conversation() -> None:
    sent = chat("s u1 a1 u2")
    *earlier, last = sent.messages
    request = sent.with_messages([*earlier, build(RECALLED, "About.", ["- tea"]), last])
    assert await marks(request, asked(sent)) == CacheMarks((0, 1, 2, 4))


async def test_an_empty_message_and_an_item_that_no_step_may_touch_are_not_marked() -> None:
    request = chat("s u1 a1! t1", tools=[tool()])
    *earlier, result = request.messages
    request = request.with_messages([*earlier, result.with_changes(content="")])
    assert await marks(request) == CacheMarks((0, 1), tools=True)
    first, *others = chat("s u1 a1 u2").messages
    assert await marks(chat("u1").with_messages([first.with_changes(content=""), *others])) == CacheMarks((1, 3))
    *earlier, last = chat("s u1 a1 u2").messages
    opaque = last.with_changes(role="opaque", content=[{"type": "shell_call_output", "call_id": "c"}])
    assert await marks(chat("u1").with_messages([*earlier, opaque])) == CacheMarks((0, 1, 2))


def marked_by_client(*places: int, ttl: str | None = None) -> ChatRequest:
    control = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
    request = chat("s u1 a1 u2 a2 u3")
    return request.with_messages(
        message.with_changes(content=[{"type": "text", "text": message.text, "cache_control": control}])
        if place in places else message
        for place, message in enumerate(request.messages)
    )  # fmt: skip


@pytest.mark.parametrize(("places", "ttl", "expected"), [
    ((0, 1), None, (3, 5)),
    ((0, 1, 2, 3), None, None),
    ((0,), "1h", None),
])  # fmt: skip
async def test_the_clients_own_marks_win(places: tuple[int, ...], ttl: str | None, expected: Any) -> None:
    made = await marks(marked_by_client(*places, ttl=ttl))
    assert (made.messages if made else None) == expected


@pytest.mark.parametrize("rules", [CacheRules(), CacheRules(0.1, 1.0, 8, 300), replace(CLAUDE, minimum=10_000)])
async def test_a_prompt_that_no_mark_helps_is_kept(rules: CacheRules) -> None:
    request = chat("s u1 a1 u2")
    assert isinstance(await MarkCache().apply(request, asked(request, rules)), Keep)


def test_marks_are_written_into_parts_and_tools_and_leave_the_rest_as_it_was() -> None:
    request = chat("s u1 a1 u2", tools=[tool()]).with_cache_marks(CacheMarks((0, 3), tools=True, ttl="1h"))
    written = write_marks(request)
    control = {"type": "ephemeral", "ttl": "1h"}
    assert [message.get("content") for message in written.messages] == [
        [{"type": "text", "text": "s", "cache_control": control}], "u1", "a1",
        [{"type": "text", "text": "u2", "cache_control": control}],
    ]  # fmt: skip
    assert written.messages[1] is request.messages[1]
    assert written.tools == (Tool({**request.tools[0], "cache_control": control}),)
    assert write_marks(chat("u1")).cache_marks is None


async def test_openais_cache_gets_a_key_that_is_the_conversations_own() -> None:
    async def key(conversation: str, tenant: str = "test") -> str:
        request = chat(conversation)
        decision = rewrite(await MarkCache().apply(request, asked(request, OPENAI, tenant)))
        return str(decision.request.rest["prompt_cache_key"])

    first = await key("s u1 a1 u2")
    assert await key("s u1 a1 u2 a2 u3") == first != await key("s u1 a1 u2", "another")
    assert "test" not in first
    own = chat("s u1 a1 u2", prompt_cache_key="mine")
    assert isinstance(await MarkCache().apply(own, asked(own, OPENAI)), Keep)


def test_an_hour_costs_twice_the_input_price_to_write() -> None:
    assert MarkCache(ttl="1h").marked_cache(CLAUDE) == replace(CLAUDE, write=2.0, ttl=3600.0)
    assert MarkCache().marked_cache(CLAUDE) == CLAUDE
    assert UNCACHED.ttl == 0
