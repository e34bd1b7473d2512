"""What became of each message, who did it, and what of a prompt is no longer in the provider's cache."""

from collections.abc import Sequence
from typing import Any

import pytest

from proxy.chat import ChatRequest
from proxy.chat.markers import shortened
from proxy.context import CacheRules
from proxy.step import Step
from proxy.telemetry.changes import MOST, changes
from proxy.testing import CharTokens, chat, context, profile, tool
from tests.talk import user
from tests.telemetry.test_bill import Conversation

HANDLE = "abcdefghijklmnopqrst"


async def told(came: ChatRequest, *stages: tuple[str, ChatRequest]) -> list[tuple[Any, ...]]:
    """Kind, places, count and step of each change."""
    sent = stages[-1][1] if stages else came
    found = await changes(came, sent, stages, CharTokens())
    check(came, sent, found)
    return [tuple(each[name] for name in ("kind", "before", "after", "count", "step")) for each in found]


def check(came: ChatRequest, sent: ChatRequest, found: Sequence[dict[str, Any]]) -> None:
    """Every message of both stands in the changes once."""
    before = [each["before"] + n for each in found if each["before"] is not None for n in range(each["count"])]
    after = [each["after"] + n for each in found if each["after"] is not None for n in range(each["count"])]
    assert sorted(before) == list(range(len(came.messages)))
    assert sorted(after) == list(range(len(sent.messages)))


async def test_nothing_is_one_entry_and_many_changes_are_told_in_short() -> None:
    assert await told(chat("s u1 a1 u2")) == [("unchanged", 0, 0, 4, None)]
    came = chat("s " + " ".join(f"u{n} a{n}" for n in range(3 * MOST)))
    sent = came.with_messages(
        each.with_changes(content=f"{each.text}!") if each.role == "user" else each for each in came.messages
    )
    found = await changes(came, sent, [("all", sent)], CharTokens())
    assert len(found) == MOST


async def test_each_step_is_told_what_it_did() -> None:
    came = chat("s u1 a1 u2 a2 u3")
    cut = came.with_messages([came.messages[0], *came.messages[3:]])
    marked = cut.with_messages([*cut.messages[:-1], cut.messages[-1].with_changes(content="[note] 3")])
    added = marked.with_messages([*marked.messages[:1], user("a summary"), *marked.messages[1:]])
    assert await told(came, ("cut", cut), ("mark", marked), ("add", added)) == [
        ("unchanged", 0, 0, 1, None),
        ("added", None, 1, 1, "add"),
        ("removed", 1, None, 2, "cut"),
        ("unchanged", 3, 2, 2, None),
        ("changed", 5, 4, 1, "mark"),
    ]


async def test_who_changed_a_message_last_is_told_and_who_took_out_a_changed_one() -> None:
    came = chat("s u1 a1 u2")
    once = came.with_messages([came.messages[0].with_changes(content="S"), *came.messages[1:]])
    twice = once.with_messages([once.messages[0].with_changes(content="SS"), *once.messages[1:]])
    gone = twice.with_messages(twice.messages[1:])
    stages = [("one", once), ("two", twice), ("three", gone)]
    assert (await told(came, *stages[:2]))[0] == ("changed", 0, 0, 1, "two")
    assert (await told(came, *stages))[0] == ("removed", 0, None, 1, "three")


async def test_a_shortened_message_leads_to_its_original() -> None:
    came = chat("s u1 a1! t1 u2")
    short = shortened("result", 1000, HANDLE)
    sent = came.with_messages([*came.messages[:3], came.messages[3].with_changes(content=short), *came.messages[4:]])
    found = await changes(came, sent, [("compact", sent)], CharTokens())
    assert [(each["kind"], each["handle"], each["role"]) for each in found] == [
        ("unchanged", None, None),
        ("shortened", HANDLE, "tool"),
        ("unchanged", None, "user"),
    ]


async def test_a_message_that_moves_is_told_where_it_is_now() -> None:
    came = chat("s u1 a1 u2")
    first, second, *rest = came.messages
    assert ("moved", 0, 1, 1, None) in await told(came, ("order", came.with_messages([second, first, *rest])))


class Talk(Conversation):
    """A conversation, of which each request is sent as a step leaves it."""

    def __init__(self, *, ttl: float = 300, minimum: int = 0) -> None:
        super().__init__(profile(cache=CacheRules(read=0.1, ttl=ttl, minimum=minimum)))

    async def sends(self, came: ChatRequest, *stages: tuple[str, ChatRequest], who: str = "ann") -> Any:
        """What is told of the cache."""
        sent = stages[-1][1] if stages else came
        estimate = await self.turn(came, sent, who)
        steps = [Step(name, "rewrite", "", 0, 0) for name, _ in stages]
        await self.bills.effects(estimate, came, stages, steps, context(came, model=self.model).tokens)
        return estimate.broken(len(sent.tools))


def without(request: ChatRequest, *places: int) -> ChatRequest:
    return request.with_messages(each for place, each in enumerate(request.messages) if place not in places)


LONG = "s u1 a1 u2 a2 u3 a3 u4"


def grown(words: int) -> ChatRequest:
    return chat(" ".join(LONG.split()[:words]))


async def sizes(request: ChatRequest) -> list[int]:
    return list(await CharTokens().sizes(request.messages))


async def test_a_cut_breaks_what_stands_behind_it_and_growing_nothing() -> None:
    talk = Talk()
    assert [await talk.sends(grown(words)) for words in (2, 4, 6, 8)] == [None] * 4
    talk = Talk()
    await talk.sends(grown(4))
    came = grown(6)
    own = await sizes(grown(4))
    expected = {"at": own[0], "message": 1, "lost": sum(own[1:]), "step": "cut"}
    assert await talk.sends(came, ("cut", without(came, 1, 2))) == expected
    assert await talk.sends(grown(8), ("cut", without(grown(8), 1, 2))) is None, "it breaks once"


@pytest.mark.parametrize(("names", "kept", "message"), [("one two", 1, None), ("", 0, 0), ("other", 0, None)])
async def test_other_tools_break_all_behind_them(names: str, kept: int, message: int | None) -> None:
    talk = Talk()
    one = [tool("one")]
    await talk.sends(chat("s u1", tools=one))
    came = chat("s u1 a1 u2", tools=one)
    broken = await talk.sends(came, ("filter", came.with_tools([tool(name) for name in names.split()])))
    assert (broken["message"], broken["step"]) == (message, "filter")
    assert broken["at"] == sum(await CharTokens().tool_sizes(one[:kept]))


@pytest.mark.parametrize(("rules", "pause", "other"), [
    pytest.param({"ttl": 0}, 0, {}, id="no cache"),
    pytest.param({"ttl": 300}, 301, {}, id="cold"),
    pytest.param({"minimum": 10_000}, 0, {}, id="too short"),
    pytest.param({}, 0, {"who": "bob"}, id="another tenant's"),
])  # fmt: skip
async def test_what_was_in_no_cache_is_not_broken(rules: Any, pause: float, other: Any) -> None:
    talk = Talk(**rules)
    await talk.sends(grown(4))
    talk.now += pause
    assert await talk.sends(grown(6), ("cut", without(grown(6), 1, 2)), **other) is None
