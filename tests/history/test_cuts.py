"""Where a history is cut, and the summaries that stand for what left."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat import Message
from proxy.context import Identity
from proxy.history.cuts import Cut, Marks, ResultLines, Room, as_sent, foresee
from proxy.history.summaries import Leaving, SummarySize, archived, fingerprint, levels, summarised
from proxy.state.cache import OnceService
from proxy.testing import MemoryArchive, chat, context


def room(high: int, low: int, *, critical: int = 10**6, summary: int = 0) -> Room:
    return Room(usable=10**6, fixed=0, high=high, critical=critical, low=low, summary=summary)


def cuts(conversation: str, sizes: list[int], room_: Room, keep: int = 1, born: list[int] | None = None) -> list[Cut]:
    return list(foresee(chat(conversation).messages, sizes, born or sizes, room_, keep)[0])


@pytest.mark.parametrize(("conversation", "sizes", "expected"), [
    pytest.param("u1 a1 u2 a2", [10] * 4, [], id="at the mark nothing is cut"),
    pytest.param("u1 a1 u2 a2 u3", [10] * 5, [Cut(2, 4)], id="over it, before a user turn, down to the low mark"),
    pytest.param("u1 a1! t1 a2! t2 a3", [10] * 6, [Cut(3, 4, 0)], id="an agent's only user message is carried"),
    pytest.param("u1 a1 u2 a2!x,y tx ty", [10] * 6, [Cut(2, 4)], id="a call stays with its results"),
    pytest.param("u1", [99], [], id="one message alone cannot be cut"),
    pytest.param("u1 a1!x,y tx ty", [10, 10, 10, 90], [], id="nor an open exchange, where too little would go"),
])  # fmt: skip
def test_where_cuts_fall(conversation: str, sizes: list[int], expected: list[Cut]) -> None:
    assert cuts(conversation, sizes, room(40, 30)) == expected


def test_a_cut_that_frees_too_little_is_not_made_and_a_jump_leaves_the_last_exchanges_only() -> None:
    marks = room(100, 20, summary=8)
    assert cuts("u1 a1 u2", [9, 9, 95], marks) == []
    assert cuts("u1 a1 u2", [10, 9, 95], marks) == [Cut(2, 2)]
    found = cuts("u1 a1 u2 a2 u3 a3 u4", [10] * 6 + [60], room(100, 90, critical=110), keep=2)
    assert found == [Cut(5, 6)]


@pytest.mark.parametrize("refers", [False, True], ids=["results apart", "results that refer to others"])
def test_a_cut_is_decided_by_what_stood_before_it(refers: bool) -> None:
    words = " ".join(f"u{n} a{n}! t{n} a{n}" for n in range(40))
    messages = chat(words).messages
    sizes = [7 + n * 13 % 17 for n in range(len(messages))]
    born = [3 * size if message.role == "tool" else size for size, message in zip(sizes, messages, strict=True)]
    noted = {
        place: frozenset({place % 3, place % 5}) for place, message in enumerate(messages) if message.role == "tool"
    }
    lines = {place: ResultLines(own | {7}, own) for place, own in noted.items()} if refers else {}
    whole = foresee(messages, sizes, born, room(200, 100), 2, lines)[0]
    assert len(whole) > 5
    for end in range(1, len(messages)):
        there = {place: own for place, own in lines.items() if place < end}
        part = foresee(messages[:end], sizes[:end], born[:end], room(200, 100), 2, there)[0]
        assert part == tuple(cut for cut in whole if cut.at < end)


def test_a_tight_cut_carries_a_short_opening() -> None:
    """Tight is a cut where what the model was told last is alone over the low mark."""
    small = room(40, 15, summary=8)
    (cut,) = cuts("u1 a1 u2 a2 u3", [4, 1, 20, 1, 20], small)
    assert (cut, cut.is_tight) == (Cut(3, 4, 0), True)
    (cut,) = cuts("u1 a1 u2 a2 u3", [5, 1, 20, 1, 20], small)
    assert (cut, cut.is_tight) == (Cut(3, 4), True)
    (cut,) = cuts("u1 a1 u2 a2 u3", [4, 1, 34, 1, 1], small)
    assert (cut, cut.is_tight) == (Cut(3, 4), False)


@pytest.mark.parametrize(("sizes", "turns", "forms"), [
    ([4, 1, 34, 1, 1], None, 15 - 8 - 2),
    ([4, 1, 33, 1, 4], None, 0),
    ([4, 1, 34, 1, 1], 1, 0),
], ids=["a large exchange left", "much stays", "a cut for the sake of few turns"])  # fmt: skip
def test_forms_fill_what_a_cut_leaves_below_the_low_mark(sizes: list[int], turns: int | None, forms: int) -> None:
    (cut,) = cuts("u1 a1 u2 a2 u3", sizes, room(40, 15, summary=8)._replace(turns=turns))
    assert (cut.start, cut.forms) == (3, forms)


@pytest.mark.parametrize(("result", "forms"), [(32, 7), (33, 0)], ids=["beside them", "in their room"])
def test_forms_leave_for_what_fits_only_in_their_room(result: int, forms: int) -> None:
    marks = room(40, 20, critical=52, summary=8)
    (cut,) = cuts("u1 a1! t1 a2! t2", [1, 1, 36, 4, result], marks)
    assert (cut, cut.forms) == (Cut(3, 3, 0), forms)


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
        assert cuts == foresee(messages[:end], sizes[:end], sizes[:end], marks, 1)[0]
        if next_ is not None:
            ahead.setdefault(len(cuts), set()).add(next_.start)
    cuts, _ = foresee(messages, sizes, sizes, marks, 1)
    assert len(cuts) > 3
    for number, cut in enumerate(cuts):
        assert ahead[number] == {cut.foreseen}, "the same prefix in every request until the cut"
        assert 0 < cut.foreseen <= cut.start


def test_room_is_made_of_shares_of_the_usable_window() -> None:
    assert Room.of(1000, 1000, 100, Marks()) == Room(
        992, fixed=100, high=693, critical=792, low=296, summary=173, warn=594, again=693
    )
    assert Room.of(1000, 1000, 100, Marks(again=0.5)).again == 396
    crowded = Room.of(1000, 1000, 600, Marks())
    assert crowded.summary < crowded.low < crowded.high
    assert Room.of(1000, 1000, 0, Marks()) == Room.of(1000, 995, 0, Marks()), "a slightly longer answer moves nothing"
    assert Room.of(10, 1, 50, Marks()).high < 0


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 20), min_size=90, max_size=400), agent=st.booleans(), keep=st.integers(1, 3))
def test_cuts_are_bounded_by_what_was_said(sizes: list[int], agent: bool, keep: int) -> None:
    words = ["u0", *(f"a{n}! t{n}" for n in range(200))] if agent else [f"u{n} a{n}" for n in range(200)]
    messages = chat(" ".join(words)).messages[: len(sizes)]
    sizes = sizes[: len(messages)]
    room_ = Room.of(1024, 1024, 0, Marks())

    found = foresee(messages, sizes, sizes, room_, keep)[0]

    assert found or sum(sizes) <= room_.high
    assert len(found) <= sum(sizes) / (room_.high - room_.low) + 1
    assert all(one.start < two.start and one.at < two.at for one, two in pairwise(found))
    for one in found:
        left = room_.summary + sum(sizes[one.start : one.at + 1]) + (0 if one.carried is None else sizes[one.carried])
        assert left <= room_.low


@pytest.mark.parametrize(("cuts", "parts"), [
    (1, [1]), (2, [2]), (3, [2, 3]), (4, [4]), (7, [4, 6, 7]), (21, [16, 20, 21]), (43, [32, 40, 42, 43]),
])  # fmt: skip
def test_the_older_the_cuts_the_more_share_an_entry(cuts: int, parts: list[int]) -> None:
    assert levels(range(1, cuts + 1)) == parts


def test_messages_are_told_apart_and_what_was_sent_is_found() -> None:
    one, same, other = chat("u1 a1").messages, chat("u1 a1").messages, chat("a1 u1").messages
    assert fingerprint(one) == fingerprint(same)
    assert len({fingerprint(one), fingerprint(other), fingerprint(one[:1])}) == 3
    incoming = chat("s d u1 a1! t1 a2")
    sent = incoming.messages
    shortened = incoming.with_messages([*sent[1:4], sent[4].with_changes(content="short"), sent[5]])
    assert as_sent(shortened, 1, incoming) == sent[2:]
    assert as_sent(shortened, 2, chat("u1 u2 u3")) is None


class Counting(MemoryArchive):
    hashed = 0

    def handle(self, content: str) -> str:
        self.hashed += 1
        return super().handle(content)


async def test_what_left_is_read_once() -> None:
    archive, once = Counting(), OnceService().bind(Identity("t"))
    request = chat(" ".join(f"u{n}{'x' * 200} a{n}" for n in range(8)))
    for at in (8, 9, 10):
        talk = [Message(message, message.raw) for message in request.messages[: at + 2]]
        leaving = Leaving(talk, talk, (4, 8), 8)
        ctx = context(request, archive=archive, once=once)
        handles = await archived(leaving, ctx)
        assert handles is not None
        assert await summarised(leaving, handles, SummarySize(400), ctx) is not None
    assert archive.hashed == 2, "once for its handle, once to keep it"


async def test_what_the_archive_lost_is_kept_again() -> None:
    archive, once = MemoryArchive(), OnceService().bind(Identity("t"))
    talk = chat("u1 a1 u2 a2").messages
    ctx = context(archive=archive, once=once)
    first = await archived(Leaving(talk, talk, (2,), 3), ctx)
    archive.contents.clear()
    assert await archived(Leaving(talk, talk, (2,), 3), ctx) == first
    assert set(archive.contents) == set(first or ())
    archive.contents.clear()
    archive.broken = True
    assert await archived(Leaving(talk, talk, (2,), 3), ctx) is None


async def test_entries_are_listed_by_one_where_there_are_more_than_two() -> None:
    archive = MemoryArchive()
    talk = chat(" ".join(f"u{n} a{n}" for n in range(1, 31))).messages
    handles = await archived(Leaving(talk, talk, (8, 16, 24, 32, 40, 48, 56), 58), context(archive=archive))
    assert handles is not None
    (handle,) = handles
    listed = archive.contents[handle].splitlines()[1:]
    assert [line.partition(":")[0] for line in listed] == ["1-16", "17-24", "25-28"]
    for line, words in zip(listed, ("u1", "u17", "u25"), strict=True):
        entry = archive.contents[line.partition('recall("')[2].partition('"')[0]]
        assert f'"{words}"' in entry.splitlines()[0]
        assert line.endswith(f" {words} [...]")
