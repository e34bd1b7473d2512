import pytest

from policies.check_facts.countries import apart, is_country


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("spain", "porto portugal", True),
        ("europe", "porto portugal", False),
        ("asia", "porto portugal", True),
        ("ohio", "austin texas", True),
        ("united states", "austin texas", False),
        ("new mexico", "mexico", True),
        ("scotland", "england", True),
        ("britain", "perth scotland", False),
        ("porto", "lisbon", None),
        ("new england", "france", None),
    ],
)
def test_where_places_lie(one: str, other: str, told: bool | None) -> None:
    assert apart(frozenset(one.split()), frozenset(other.split())) is told
    assert apart(frozenset(other.split()), frozenset(one.split())) is told


def test_a_name_with_more_in_it_is_no_country() -> None:
    assert is_country(frozenset(["portugal"]))
    assert not is_country(frozenset(["porto", "portugal"]))
