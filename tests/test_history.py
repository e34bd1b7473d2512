import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.clear_tool_results import ClearToolResults
from policies.compress_history import CompressHistory
from policies.pin_context import PinContext
from proxy.chat import ChatRequest, Message
from proxy.chat.wire import flaws
from proxy.gateway.chain import run
from proxy.history.cuts import Cut, Marks, Room, as_sent, foresee, replay
from proxy.policy import Rewrite
from proxy.testing import MemoryArchive, chat, context

HANDLE = re.compile(r'recall\("([0-9a-f]+)"\)')


def room(high: int, low: int, *, critical: int = 10**6, summary: int = 0) -> Room:
    return Room(usable=10**6, fixed=0, high=high, critical=critical, low=low, summary=summary)


def cuts(conversation: str, sizes: list[int], room_: Room, keep: int = 1, born: list[int] | None = None) -> list[Cut]:
    return list(replay(chat(conversation).messages, sizes, born or sizes, room_, keep))


@pytest.mark.parametrize(
    ("conversation", "sizes", "expected"),
    [
        pytest.param("u1 a1 u2 a2", [10] * 4, [], id="at the mark nothing is cut"),
        pytest.param("u1 a1 u2 a2 u3", [10] * 5, [Cut(2, 4)], id="over it, before a user turn, down to the low mark"),
        pytest.param("u1 a1! t1 a2! t2 a3", [10] * 6, [Cut(3, 4, 0)], id="an agent's only user message is carried"),
        pytest.param("u1 a1 u2 a2!x,y tx ty", [10] * 6, [Cut(2, 4)], id="a call stays with its results"),
        pytest.param(
            "u1 a1 u2 a2 u3 a3 u4 a4 u5", [10] * 9, [Cut(2, 4), Cut(4, 6), Cut(6, 8)], id="and again as it grows"
        ),
        pytest.param("u1", [99], [], id="one message alone cannot be cut"),
        pytest.param("u1 a1!x,y tx ty", [10, 10, 10, 90], [], id="nor an open exchange, where too little would go"),
    ],
)
def test_where_cuts_fall(conversation: str, sizes: list[int], expected: list[Cut]) -> None:
    assert cuts(conversation, sizes, room(40, 30)) == expected


def test_a_cut_that_frees_less_than_an_eighth_between_the_marks_is_not_made() -> None:
    marks = room(100, 20, summary=8)
    assert cuts("u1 a1 u2", [9, 9, 95], marks) == []
    assert cuts("u1 a1 u2", [10, 9, 95], marks) == [Cut(2, 2)]


def test_a_cut_is_decided_by_what_stood_before_it() -> None:
    words = " ".join(f"u{n} a{n}! t{n} a{n}" for n in range(40))
    messages = chat(words).messages
    sizes = [7 + n * 13 % 17 for n in range(len(messages))]
    whole = replay(messages, sizes, sizes, room(200, 100), 2)
    assert len(whole) > 5
    for end in range(1, len(messages)):
        part = replay(messages[:end], sizes[:end], sizes[:end], room(200, 100), 2)
        assert part == tuple(cut for cut in whole if cut.at < end)


def test_a_jump_over_the_critical_mark_leaves_the_last_exchanges_only() -> None:
    found = cuts("u1 a1 u2 a2 u3 a3 u4", [10] * 6 + [60], room(100, 90, critical=110), keep=2)
    assert found == [Cut(5, 6)]


def test_a_tight_cut_carries_a_short_opening() -> None:
    """Tight is a cut where what the model was told last is alone over the low mark."""
    small = room(40, 15, summary=8)
    (cut,) = cuts("u1 a1 u2 a2 u3", [4, 1, 20, 1, 20], small)
    assert (cut, cut.is_tight) == (Cut(3, 4, 0), True)
    (cut,) = cuts("u1 a1 u2 a2 u3", [5, 1, 20, 1, 20], small)
    assert (cut, cut.is_tight) == (Cut(3, 4), True)
    (cut,) = cuts("u1 a1 u2 a2 u3", [4, 1, 34, 1, 1], small)
    assert (cut, cut.is_tight) == (Cut(3, 4), False)


def test_a_result_counts_in_full_until_the_model_has_read_it() -> None:
    conversation, settled = "u1 a1 u2 a2 u3 a3! t3", [10] * 7
    assert cuts(conversation, settled, room(100, 40)) == []
    assert cuts(conversation, settled, room(100, 40), born=[10] * 6 + [50]) == [Cut(4, 6)]
    longer = f"{conversation} a4 u4 a5"
    assert cuts(longer, [10] * 10, room(100, 40), born=[10] * 6 + [50, 10, 10, 10]) == [Cut(4, 6)]


def test_a_cut_is_foreseen_at_the_warn_mark_and_remembers_it() -> None:
    messages = chat(" ".join(f"u{n} a{n}" for n in range(40))).messages
    sizes = [10] * len(messages)
    marks = Room(usable=10**6, fixed=0, high=200, critical=10**6, low=100, summary=0, warn=150)
    ahead: dict[int, set[int]] = {}
    for end in range(1, len(messages) + 1):
        cuts, next_ = foresee(messages[:end], sizes[:end], sizes[:end], marks, 1)
        assert cuts == replay(messages[:end], sizes[:end], sizes[:end], marks, 1)
        if next_ is not None:
            ahead.setdefault(len(cuts), set()).add(next_.start)
    cuts, _ = foresee(messages, sizes, sizes, marks, 1)
    assert len(cuts) > 3
    for number, cut in enumerate(cuts):
        assert ahead[number] == {cut.foreseen}, "the same prefix in every request until the cut"
        assert 0 < cut.foreseen <= cut.start


def test_room_is_made_of_shares_of_the_usable_window() -> None:
    assert Room.of(1000, 1000, 100, Marks()) == Room(
        992, fixed=100, high=693, critical=792, low=296, summary=158, warn=594, again=693
    )
    assert Room.of(1000, 1000, 100, Marks(again=0.5)).again == 396
    crowded = Room.of(1000, 1000, 600, Marks())
    assert crowded.summary < crowded.low < crowded.high
    assert Room.of(1000, 1000, 0, Marks()) == Room.of(1000, 995, 0, Marks()), "a slightly longer answer moves nothing"
    assert Room.of(10, 1, 50, Marks()).high < 0


def test_what_was_sent_is_found_message_for_message() -> None:
    incoming = chat("s d u1 a1! t1 a2")
    sent = incoming.messages
    shortened = incoming.with_messages([*sent[1:4], sent[4].with_changes(content="short"), sent[5]])
    assert as_sent(shortened, 1, incoming) == sent[2:]
    assert as_sent(shortened, 2, chat("u1 u2 u3")) is None


# --- the policies on it, over random conversations ------------------------------------------------------------------------

WINDOW = 1500


def said(role: str, size: int, text: str) -> Message:
    return Message({"role": role, "content": f"{text} " + "word " * size})


@st.composite
def talks(draw: st.DrawFn, *, huge: bool = True) -> list[Message]:
    """A sound conversation: parallel calls, images, several system messages, messages larger than the window."""
    sizes = st.sampled_from([0, 3, 20, 40, *([300, 1800] if huge else [])])
    messages = [said("system", draw(sizes), "sys")] * draw(st.integers(0, 2))
    for turn in range(draw(st.integers(1, 14))):
        if draw(st.integers(0, 9)) == 0:
            messages.append(said("system", 3, f"note {turn}"))
        if draw(st.integers(0, 9)) == 0:
            part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{turn}"}}
            messages.append(Message({"role": "user", "content": [part]}))
        else:
            rule = draw(
                st.sampled_from(["", "Never use id_7.", "Siempre responde en español.", "- [ ] one\n- [x] two"])
            )
            messages.append(said("user", draw(sizes), f"{rule}\nquestion {turn}"))
        for step in range(draw(st.integers(0, 4))):
            ids = [f"{turn}.{step}.{n}" for n in range(draw(st.integers(1, 3)))]
            messages.append(chat(f"a!{','.join(ids)}").messages[0])
            messages += [
                Message({"role": "tool", "tool_call_id": one, "content": "row id_7 " * draw(sizes)}) for one in ids
            ]
        if draw(st.booleans()):
            messages.append(said("assistant", draw(sizes), f"We decided {turn}."))
    if messages[-1].role != "user" and draw(st.booleans()):
        messages.append(said("user", 1, "and now?"))
    return messages


CHAIN = [
    ("clear_tool_results", ClearToolResults()),
    ("compress_history", CompressHistory()),
    ("pin_context", PinContext()),
]
SLOW = settings(max_examples=30, deadline=None)


async def forwarded(messages: list[Message], archive: MemoryArchive) -> tuple[ChatRequest, dict[str, int]]:
    request = chat("u1").with_messages(messages)
    done = await run(CHAIN, context(request, window=WINDOW, archive=archive), strict=True)
    return done.request, {
        step.policy: int(step.facts.get("cuts", step.facts.get("cleared_results", 0))) for step in done.steps
    }


@SLOW
@given(messages=talks())
async def test_whatever_the_conversation_it_stays_sound_and_nothing_is_lost(messages: list[Message]) -> None:
    archive = MemoryArchive()
    request, _ = await forwarded(messages, archive)

    assert not flaws(request)
    told, handles = [], HANDLE.findall("\n".join(message.text for message in request.messages))
    while handles:
        content = await archive.fetch(handles.pop())
        assert content is not None, "a marker for nothing"
        told.append(content)
    recalled = "\n".join(told)
    for message in messages:
        assert message in request.messages or message.raw.decode() in recalled or message.text in recalled

    again = await run(CHAIN, context(chat("u1").with_messages(messages), window=WINDOW, archive=archive), strict=True)
    assert again.request.messages == request.messages


@SLOW
@given(messages=talks(), policy=st.sampled_from([policy for _, policy in CHAIN]))
async def test_a_policy_keeps_its_own_output(
    messages: list[Message], policy: ClearToolResults | CompressHistory | PinContext
) -> None:
    request = chat("u1").with_messages(messages)
    first = await policy.apply(request, context(request, window=WINDOW))
    if isinstance(first, Rewrite):
        again = await policy.apply(first.request, context(request, window=WINDOW))
        assert not isinstance(again, Rewrite) or again.request.messages == first.request.messages


@settings(SLOW, max_examples=15)
@given(messages=talks())
async def test_between_two_cuts_the_prefix_is_the_same(messages: list[Message]) -> None:
    archive = MemoryArchive()
    policy = CompressHistory()
    before: tuple[int, list[bytes]] | None = None
    for end in range(1, len(messages) + 1):
        if end < len(messages) and messages[end].role == "tool":
            continue
        request = chat("u1").with_messages(messages[:end])
        decision = await policy.apply(request, context(request, window=WINDOW, archive=archive))
        after = decision.request if isinstance(decision, Rewrite) else request
        number = int(decision.facts["cuts"]) if isinstance(decision, Rewrite) else 0
        raws = [message.raw for message in after.messages]
        if before is not None and before[0] == number:
            assert raws[: len(before[1])] == before[1]
        before = (number, raws)


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 60), min_size=5, max_size=400), agent=st.booleans(), keep=st.integers(1, 3))
def test_cuts_are_bounded_by_what_was_said(sizes: list[int], agent: bool, keep: int) -> None:
    words = ["u0", *(f"a{n}! t{n}" for n in range(200))] if agent else [f"u{n} a{n}" for n in range(200)]
    messages = chat(" ".join(words)).messages[: len(sizes)]
    sizes = sizes[: len(messages)]
    room_ = Room.of(1024, 1024, 0, Marks())

    found = replay(messages, sizes, sizes, room_, keep)

    assert len(found) <= sum(sizes) / (room_.high - room_.low) + 1
    assert all(one.start < two.start and one.at < two.at for one, two in pairwise(found))
    for one in found:
        left = room_.summary + sum(sizes[one.start : one.at + 1]) + (0 if one.carried is None else sizes[one.carried])
        assert left <= room_.low
