"""Places: cities in their countries, and which exclude each other."""

import pytest

from policies.check_facts.geography import apart, is_known


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["london"], ["paris"]),
        (["londres"], ["paris"]),
        (["rome", "italy"], ["paris"]),
        (["lyon", "france"], ["paris", "france"]),
        (["germany"], ["paris"]),
        (["asia"], ["paris"]),
        (["lugo", "espana"], ["paris"]),
    ],
)
def test_places_that_exclude_each_other(one: list[str], other: list[str]) -> None:
    assert apart(one, other) is True
    assert apart(other, one) is True


@pytest.mark.parametrize(
    ("one", "other"),
    [(["paris", "france"], ["paris"]), (["europe"], ["paris"]), (["yorkshire"], ["leeds", "england"])],
)
def test_a_place_in_another_does_not_exclude_it(one: list[str], other: list[str]) -> None:
    assert apart(one, other) is False


@pytest.mark.parametrize("place", ["champ de mars", "norwick", "cambridge"])
def test_of_a_place_that_is_not_known_nothing_is_said(place: str) -> None:
    assert not is_known(place)
    assert apart([place], ["paris"]) is None
