"""From a conversation to what clashes in it: its search, its clauses, their values and pairs, and what became of them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.resolve_clashes import reconcile
from policies.resolve_clashes.clashes import Clash, compare, find_clashes
from policies.resolve_clashes.statements import fold, read_values, statements
from proxy.chat import Message
from proxy.context import Identity, Memo, Uncached
from proxy.state.cache import OnceService
from proxy.testing import MemoryMemo
from proxy.text.fold import stem
from tests.policies.resolve_clashes.conversation import clashing, dialogues, pairs, turns
from tests.services import SureJudge
from tests.talk import assistant, user

TALK = [
    Message({"role": "system", "content": "Help."}),
    user("The meeting is on Monday."),
    assistant("Noted."),
    user("My budget is 500 euros."),
    assistant("Noted."),
    user("The meeting has moved to Friday."),
    assistant("Noted."),
    user("My budget is now 900 euros."),
]


async def test_find_clashes_returns_places_of_the_messages_the_same_turn_by_turn() -> None:
    assert [(clash.older, clash.newer) for clash in await find_clashes(TALK, Uncached())] == [(1, 5), (3, 7)]
    service = OnceService()
    once = service.bind(Identity("tenant"))
    for end in range(1, len(TALK) + 1):
        step_by_step = await find_clashes(TALK[:end], once)
        assert step_by_step == await find_clashes(TALK[:end], Uncached())
    service.close()


SAID = [text for each in pairs("pairs") for pair in each[::2] for text in pair]


def test_each_value_is_overtaken_by_the_next_also_over_sixty_turns() -> None:
    said = ("My budget is 500 euros.", "Noted.", "My budget is 600 euros.", "Noted.", "My budget is 700 euros.")
    assert {(0, 2), (2, 4)} <= {(clash.older, clash.newer) for clash in clashing(*said)}
    between = [text for n in range(60) for text in (f"Tell me a fact about the number {n + 1000}.", "Here it is.")]
    found = clashing("My budget is 500 euros.", "Noted.", *between, "My budget is now 700 euros.")
    assert [(clash.older, clash.newer) for clash in found] == [(0, 122)]
    talk = "After so much talk with everybody at home, " * 12
    found = clashing("My budget is 500 euros.", "Noted.", f"{talk}my budget is now 700 euros.")
    assert [(clash.older, clash.newer) for clash in found] == [(0, 2)]


@pytest.mark.parametrize(
    "said",
    [
        ["My budget is 500 euros. My budget is 900 euros."],
        ["Maybe my budget is 500 euros.", "Noted.", "Perhaps my budget is 900 euros."],
    ],
    ids=["within one message", "both are uncertain"],
)
def test_clash_is_not_solvable(said: list[str]) -> None:
    assert [clash.solvable for clash in clashing(*said)] == [False]


def test_compare_returns_the_same_turn_by_turn_and_fold_keeps_the_length() -> None:
    every = turns([user(text) for text in SAID])
    together = compare(every, [None] * len(every))
    for at in range(len(every)):
        assert compare(every[: at + 1], [*together[:at], None]) == together[: at + 1]
    assert compare(every, [each if at % 3 else None for at, each in enumerate(together)]) == together
    text = "¿Cuándo? İstanbul, Ñandú, «Übung»"
    assert len(fold(text)) == len(text)


CLASHES, ALIKE = pairs("pairs")
UNSEEN, UNSEEN_ALIKE = pairs("unseen")


def solved(older: str, newer: str) -> list[Clash]:
    return [clash for clash in clashing(older, "All right.", newer) if clash.solvable]


@pytest.mark.parametrize(("older", "newer"), CLASHES)
def test_later_statement_overtakes_the_earlier(older: str, newer: str) -> None:
    assert {(clash.older, clash.newer) for clash in solved(older, newer)} == {(0, 2)}


@pytest.mark.parametrize(("older", "newer"), ALIKE)
def test_pair_is_no_clash_if_both_hold(older: str, newer: str) -> None:
    assert solved(older, newer) == []


def test_rules_are_nearly_always_right_on_unseen_pairs_and_repeats_are_no_clash() -> None:
    right, wrong = (sum(bool(solved(*pair)) for pair in each) for each in (UNSEEN, UNSEEN_ALIKE))
    assert right / (right + wrong) >= 0.95
    assert right / len(UNSEEN) >= 0.8
    assert [text for pair in CLASHES for text in pair if solved(text, text)] == []


@pytest.mark.parametrize("pair", CLASHES[::3])
def test_clash_has_the_place_of_its_words_among_others(pair: tuple[str, str]) -> None:
    older, newer = pair
    before = f"Hello there! {older.rstrip(chr(46))}. The weather is lovely."
    found = solved(before, newer)
    assert found != []
    assert all(clash.was.of(before).strip(" .") in older for clash in found)


@pytest.mark.parametrize(("said", "overtaken"), dialogues("tasks"))
def test_value_of_a_task_overtakes_the_one_before(said: list[str], overtaken: set[tuple[int, int]]) -> None:
    assert {(clash.older, clash.newer) for clash in clashing(*said) if clash.solvable} == overtaken


@pytest.mark.parametrize(("text", "unit"), [("i leave on the 9th", ""), ("i come back on the 9th", "end")])
def test_read_values_tells_a_return_from_a_departure(text: str, unit: str) -> None:
    assert [one.unit for one in read_values(text, "")] == [unit]


@pytest.mark.parametrize(
    ("text", "direction", "name"),
    [
        ("We fly from Porto.", "from", "porto"),
        ("Take me to New Delhi", "to", "new delhi"),
        ("a flat in Ciudad Real", "in", "ciudad real"),
    ],
)
def test_read_values_returns_the_place(text: str, direction: str, name: str) -> None:
    assert [(one.kind, one.unit, one.parts) for one in read_values("", text)] == [("place", direction, (name,))]


@pytest.mark.parametrize("text", ["in March", "in English", "to Schedule a visit", "on Monday", "in the end"])
def test_read_values_returns_no_place_for_other_names(text: str) -> None:
    assert read_values("", text) == ()


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("an aisle seat", [("place in a row", "aisle")]),
        ("it costs a window of time", []),
        ("a budget hotel", [("price", "budget hotel")]),
        ("we use go and c++", [("programming language", "golang"), ("programming language", r"c\+\+")]),
    ],
)
def test_read_values_returns_members_of_groups_beside_their_words(text: str, members: list[tuple[str, str]]) -> None:
    assert [(one.kind, one.parts[0]) for one in read_values(text, "")] == members


@pytest.mark.parametrize(
    ("one", "other"),
    [("hotels", "hotel"), ("hoteles", "hotel"), ("living", "live"), ("viajo", "viajar"), ("coffees", "coffee")],
)
def test_stem_is_one_for_all_forms(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def kinds(text: str) -> list[str]:
    return [each.kind for each in statements(text)]


@pytest.mark.parametrize(
    "text",
    [
        "If I lived in Rome, I would walk.",
        "Suppose the budget is 500 euros.",
        "Si viviera en Roma, andaría.",
        "My wife says that I never cook.",
        "Mi mujer dice que nunca cocino.",
        "According to the guide, it opens at nine.",
        "Según la guía, abre a las nueve.",
        "I wish I had a dog.",
        "Ojalá tuviera un perro.",
        '"I have never seen this film before"',
        "«Nunca he visto esta película»",
        "```\nbudget = 500\n```",
        "> My budget is 500 euros.",
    ],
)
def test_statements_leave_out_suppositions_reports_and_quotations(text: str) -> None:
    assert kinds(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Do I live in Rome?", ["question"]),
        ("¿Vivo en Roma?", ["question"]),
        ("Can you book a table for two?", ["request"]),
        ("¿Puedes reservar una mesa?", ["request"]),
        ("What about Tuesday?", ["request"]),
        ("I live in Rome.", ["statement"]),
        ("Vivo en Roma.", ["statement"]),
        ("I've saved 500 euros, but how can I save more?", ["statement", "question"]),
    ],
)
def test_statement_has_its_kind(text: str, found: list[str]) -> None:
    assert kinds(text) == found


@given(st.text(max_size=400))
def test_statements_lie_within_any_text(text: str) -> None:
    for statement in statements(text):
        assert 0 <= statement.start < statement.end <= len(text)


class Faster(MemoryMemo):
    def __init__(self, verdict: str) -> None:
        super().__init__()
        self._verdict = verdict

    async def settle(self, key: str, value: str) -> str:
        return await super().settle(key, self._verdict)


NEGOTIATION = [user(f"Number {n}.") for n in range(60)]


def clash(older: int, newer: int, *, solvable: bool = False, talk: Sequence[Message] = NEGOTIATION) -> Clash:
    was, now = (statements(talk[place].text)[-1] for place in (older, newer))
    return Clash(older, was, newer, now, "value", solvable)


OPEN, FOUND = clash(0, 1), clash(2, 3, solvable=True)


async def left(
    judge: SureJudge,
    memo: Memo | None = None,
    clashes: Sequence[Clash] = (OPEN, FOUND),
    which: str = "open",
    talk: Sequence[Message] = NEGOTIATION,
) -> tuple[list[bool], dict[str, int]]:
    """Return which of the pairs that are left are solvable, and the counts."""
    chosen = "all" if which == "all" else "open"
    rest, counts = await reconcile(clashes, talk, judge, memo, which=chosen, sure=0.9, wait=1.0)  # type: ignore[arg-type]
    return [each.solvable for each in rest], dict(counts)


@pytest.mark.parametrize(
    ("which", "sure", "solvable"),
    [
        pytest.param("open", 0.95, [True, True], id="the later one holds"),
        pytest.param("open", 0.0, [True], id="both hold"),
        pytest.param("open", 0.89, [False, True], id="not sure enough that it does"),
        pytest.param("open", 0.11, [False, True], id="not sure enough that it does not"),
        pytest.param("open", None, [False, True], id="no verdict"),
        pytest.param("all", 1.0, [True, True], id="all: the later one holds"),
        pytest.param("all", 0.0, [], id="all: both hold"),
        pytest.param("all", 0.5, [False, True], id="all: unclear leaves what the rules say"),
    ],
)
async def test_reconcile_solves_or_drops_or_leaves_a_pair(which: str, sure: float | None, solvable: list[bool]) -> None:
    rest, counts = await left(SureJudge(sure), which=which)
    asked = 2 if which == "all" else 1
    assert rest == solvable
    assert counts == {"compatible": 2 - len(rest), "judged": asked, "unanswered": asked if sure is None else 0}


async def test_reconcile_asks_once_about_the_same_words_and_about_the_latest_of_many() -> None:
    judge, talk = SureJudge(), [user("Hi. I am six."), user("I am ten.")] * 2
    every = [clash(0, 1, talk=talk), clash(2, 3, talk=talk)]
    assert (await left(judge, None, every, talk=talk))[0] == [True, True]
    assert judge.asked == [("I am six.", "I am ten.")]
    every, judge, memo = [clash(n, n + 1) for n in range(50)], SureJudge(), MemoryMemo()
    for _ in range(2):
        assert (await left(judge, memo, every))[0] == [False] * 34 + [True] * 16
    assert len(judge.asked) == 16


@pytest.mark.parametrize(("first", "then"), [(1.0, 0.0), (0.0, 1.0), (None, 1.0), (0.5, 0.0)])
async def test_reconcile_keeps_a_verdict(first: float | None, then: float) -> None:
    memo, later = MemoryMemo(), SureJudge(then)
    before, _ = await left(SureJudge(first), memo)
    assert (await left(later, memo))[0] == before
    assert later.asked == []


@pytest.mark.parametrize(("verdict", "solvable"), [("no", [True]), ("<nonsense>", [False, True])])
async def test_reconcile_takes_the_verdict_of_a_faster_replica(verdict: str, solvable: list[bool]) -> None:
    assert (await left(SureJudge(), Faster(verdict)))[0] == solvable
