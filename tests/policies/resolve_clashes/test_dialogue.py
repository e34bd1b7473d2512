import pytest

from policies.resolve_clashes.clashes import compare
from tests.policies.resolve_clashes.conversation import clashing, pairs, turns
from tests.talk import user

SAID = [text for each in pairs("pairs") for pair in each[::2] for text in pair]


def test_each_value_is_overtaken_by_the_next() -> None:
    said = ("My budget is 500 euros.", "Noted.", "My budget is 600 euros.", "Noted.", "My budget is 700 euros.")
    assert {(0, 2), (2, 4)} <= {(clash.older, clash.newer) for clash in clashing(*said)}


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


def test_clash_is_found_over_sixty_turns() -> None:
    between = [text for n in range(60) for text in (f"Tell me a fact about the number {n + 1000}.", "Here it is.")]
    found = clashing("My budget is 500 euros.", "Noted.", *between, "My budget is now 700 euros.")
    assert [(clash.older, clash.newer) for clash in found] == [(0, 122)]


def test_compare_returns_the_same_turn_by_turn_and_for_forgotten_turns() -> None:
    every = turns([user(text) for text in SAID])
    together = compare(every, [None] * len(every))
    for at in range(len(every)):
        assert compare(every[: at + 1], [*together[:at], None]) == together[: at + 1]
    assert compare(every, [each if at % 3 else None for at, each in enumerate(together)]) == together


def test_clash_is_found_in_a_long_sentence() -> None:
    talk = "After so much talk with everybody at home, " * 12
    found = clashing("My budget is 500 euros.", "Noted.", f"{talk}my budget is now 700 euros.")
    assert [(clash.older, clash.newer) for clash in found] == [(0, 2)]
