import pytest

from policies.check_facts.dates import apart, life, when


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("in 1986", "in 1987"),
        ("in the 1990s", "in 1989"),
        ("before 1960", "in 1961"),
        ("after 1970", "in 1961"),
        ("prior to 1930", "1933"),
        ("in the 19th century", "in 1901"),
        ("from 1971 to 1979", "in 1980"),
        ("from 1971 to 1979", "from 1971 to 1983"),
        ("in May", "in June 1990"),
        ("on May 3", "on 4 May 1990"),
        ("el 3 de mayo", "el 4 de mayo"),
    ],
)
def test_times_that_cannot_be_the_same(one: str, other: str) -> None:
    assert apart(when(one), when(other))
    assert apart(when(other), when(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("in 1986", "in the 1980s"),
        ("before 1970", "in 1961"),
        ("since 1962", "in 1970"),
        ("in the 20th century", "in 1961"),
        ("from 1971 to 1979", "in 1975"),
        ("on September 14, 1998", "in September"),
        ("between 1950 and 1960", "from 1951 to 1953"),
        ("The Edge (1997 film)", "in 2004"),
        ("I may come", "in June"),
        ("nothing", "in 1990"),
    ],
)
def test_times_that_may_be_the_same(one: str, other: str) -> None:
    assert not apart(when(one), when(other))


@pytest.mark.parametrize(
    "text",
    [
        "Clara Nye (12 May 1901 - 3 June 1977) was a poet.",
        "Clara Nye (born Klara Neu; May 12, 1901 – June 3, 1977) was a poet.",
        "Clara Nye was born on 12 May 1901 and died in Perth on 3 June 1977.",
    ],
)
def test_birth_and_death_are_told_in_many_ways(text: str) -> None:
    told = life(text)
    assert (told.born, told.died) == (when("12 May 1901"), when("3 June 1977"))
    assert told.is_alive is False


def test_who_is_born_and_not_said_to_have_died_is_alive() -> None:
    assert life("Hanna Velde (born 3 March 1961) is an actress.").is_alive
    assert life("Hanna Velde is still alive.").is_alive
    assert life("Hanna Velde is an actress.").is_alive is None
