import pytest

from policies.resolve_clashes.dialogue import Clash
from tests.policies.resolve_clashes.conversation import clashing
from tests.policies.resolve_clashes.pairs import ALIKE_EN, ALIKE_ES, CLASHES_EN, CLASHES_ES


def solved(older: str, newer: str) -> list[Clash]:
    return [clash for clash in clashing(older, "All right.", newer) if clash.solvable]


@pytest.mark.parametrize(("older", "newer"), [*CLASHES_EN, *CLASHES_ES])
def test_the_later_statement_overtakes_the_earlier(older: str, newer: str) -> None:
    assert [(clash.older, clash.newer) for clash in solved(older, newer)] != []
    assert {(clash.older, clash.newer) for clash in solved(older, newer)} == {(0, 2)}


@pytest.mark.parametrize(("older", "newer"), [*ALIKE_EN, *ALIKE_ES])
def test_what_only_looks_like_a_clash_is_none(older: str, newer: str) -> None:
    assert solved(older, newer) == []


@pytest.mark.parametrize("pair", [*CLASHES_EN, *CLASHES_ES])
def test_to_say_the_same_again_is_no_clash(pair: tuple[str, str]) -> None:
    for text in pair:
        assert solved(text, text) == []


@pytest.mark.parametrize("pair", [*CLASHES_EN[:30], *CLASHES_ES[:30]])
def test_the_words_that_clash_are_found_among_others(pair: tuple[str, str]) -> None:
    older, newer = pair
    before = "Hello there! " + older + " The weather is lovely."
    found = solved(before, newer)
    assert found != []
    assert all(before[clash.older_start : clash.older_end].strip() in older for clash in found)


def test_there_are_enough_of_each() -> None:
    assert min(map(len, (CLASHES_EN, CLASHES_ES, ALIKE_EN, ALIKE_ES))) >= 60
