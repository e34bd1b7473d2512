import pytest

from policies.resolve_clashes.clashes import Clash
from tests.policies.resolve_clashes.conversation import clashing, dialogues, pairs

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


def test_rules_are_nearly_always_right_on_unseen_pairs() -> None:
    right, wrong = (sum(bool(solved(*pair)) for pair in each) for each in (UNSEEN, UNSEEN_ALIKE))
    assert right / (right + wrong) >= 0.95
    assert right / len(UNSEEN) >= 0.8


def test_repeated_statement_is_no_clash() -> None:
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
