import pytest

from policies.resolve_clashes.alignment import other_end, parallel, swapped, turned
from policies.resolve_clashes.rates import rates
from tests.policies.resolve_clashes import tasks, unseen, varied_en, varied_es
from tests.policies.resolve_clashes.conversation import clashing

Pairs = tuple[tuple[str, str], ...]
EXACT = (
    ("Rome defeated Carthage.", "Carthage defeated Rome.", "swapped"),
    ("Wind power is more expensive than gas.", "Gas is more expensive than wind power.", "swapped"),
    ("Atenas venció a Esparta en la batalla.", "Esparta venció a Atenas en la batalla.", "swapped"),
    ("La capital del imperio fue Cuzco.", "La capital del imperio fue Quito.", "one only"),
    ("El padre de la escritora era médico.", "El padre de la escritora era abogado.", "one only"),
    ("El grupo publicó su primer disco en 1991.", "El primer disco del grupo se publicó en 1994.", "one only"),
    ("Everyone pays their fair share of tax.", "Not everyone pays their fair share of tax.", "not all"),
    ("We meet twice a week.", "We meet three times a week.", "value"),
    ("El teatro se construyó en el siglo XVIII.", "El teatro se construyó en el siglo XIX.", "value"),
    ("El puerto carece de grúas.", "El puerto tiene grúas.", "negation"),
)
BOTH_HOLD = (
    ("Rome defeated Carthage.", "Carthage was defeated by Rome."),
    ("Ana met Luis in Rome.", "Luis met Ana in Rome."),
    ("La plata es más cara que el cobre.", "El cobre es más barato que la plata."),
    ("El río Duero nace en España.", "El río Duero desemboca en Portugal."),
    ("The patch fixes the login bug.", "The patch does not fix the search bug."),
    ("My car is black.", "My first car was white."),
    ("I like to hike.", "I didn't hike last week."),
)


def found(pairs: Pairs) -> int:
    return sum(any(clash.solvable for clash in clashing(older, "All right.", newer)) for older, newer in pairs)


@pytest.mark.parametrize(("clashes", "alike"), [(each.CLASHES, each.ALIKE) for each in (varied_en, varied_es)])
def test_most_ways_to_take_something_back_are_found_and_little_else(clashes: Pairs, alike: Pairs) -> None:
    assert found(clashes) >= 0.85 * len(clashes)
    assert found(alike) <= 0.1 * len(alike)


def test_half_of_what_was_not_foreseen_is_found_and_little_else() -> None:
    assert found(unseen.CLASHES) >= 0.55 * len(unseen.CLASHES)
    assert found(unseen.ALIKE) <= 0.05 * len(unseen.ALIKE)
    assert sum((0, 2) in overtaken(said) for said in unseen.CHANGES) >= 0.5 * len(unseen.CHANGES)


@pytest.mark.parametrize(("older", "newer", "reason"), EXACT)
def test_each_way_is_known(older: str, newer: str, reason: str) -> None:
    assert [clash.reason for clash in clashing(older, "All right.", newer)] == [reason]


@pytest.mark.parametrize(("older", "newer"), BOTH_HOLD)
def test_both_can_hold(older: str, newer: str) -> None:
    assert clashing(older, "All right.", newer) == []


def test_most_values_of_a_task_that_are_given_anew_overtake_those_before() -> None:
    assert sum(wanted <= overtaken(said) for said, wanted in tasks.CHANGES) >= 0.95 * len(tasks.CHANGES)


@pytest.mark.parametrize("said", tasks.NO_CHANGES)
def test_what_a_task_needs_besides_overtakes_nothing(said: tuple[str, ...]) -> None:
    assert overtaken(said) == set()


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("every two years", "1/2 year"),
        ("every other week", "1/2 week"),
        ("twice a week", "2/1 week"),
        ("three times a day", "3/1 day"),
        ("cada dos anos", "1/2 year"),
        ("una vez al mes", "1/1 month"),
        ("en el siglo xix", "19"),
        ("in the 9th century", "9"),
        ("en el siglo xiv", "14"),
        ("at times", None),
    ],
)
def test_how_often_and_in_which_century(clause: str, said: str | None) -> None:
    assert [value.value for value in rates(clause)] == ([] if said is None else [said])


def test_words_stand_to_each_other_by_their_places() -> None:
    assert swapped(("a", "beat", "b"), ("b", "beat", "a"))
    assert not swapped(("a", "b", "c"), ("b", "c", "a"))
    assert parallel(("patch", "fixes", "login", "bug"), ("patch", "fixes", "search", "bug"))
    assert not parallel(("patch", "fixes", "login"), ("patch", "login", "fixes"))
    assert turned(("silver", "copper"), ("copper", "silver"))
    assert other_end(("capital", "empire", "cuzco"), ("capital", "empire", "quito"))
    assert not other_end(("tower", "tall"), ("church", "tall"))


def overtaken(said: tuple[str, ...]) -> set[tuple[int, int]]:
    return {(clash.older, clash.newer) for clash in clashing(*said) if clash.solvable}
