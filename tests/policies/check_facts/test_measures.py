"""Values in sentences: where they stand, of which kind they are, and when two of them exclude each other."""

import pytest

from policies.check_facts.measures import Measure, agree, are_comparable, measures


def only(text: str) -> Measure:
    (found,) = measures(text)[0]
    return found


@pytest.mark.parametrize(
    ("text", "kind", "number", "rest"),
    [
        ("costs $20 a month", "dollar", 20, "costs"),
        ("cuesta 20 € al mes", "euro", 20, "cuesta"),
        ("costs $5 less", "dollar", 5, "costs less"),
        ("is 100 requests per minute", "number", 100, "is"),
        ("takes two weeks", "time", 14 * 86_400, "takes"),
        ("takes 5 days longer", "time", 5 * 86_400, "takes longer"),
        ("lasts 2 years", "months", 24, "lasts"),
        ("is 25MB", "size", 25e6, "is"),
        ("opens at 9", "clock", 540, "opens"),
        ("abre a las 9:30", "clock", 570, "abre a las"),
        ("opens at 8 pm", "clock", 1200, "opens at"),
        ("is open on Mondays", "weekday", 0, "is open on"),
        ("boils at 100 °C", "degree", 100, "boils at"),
        ("was opened in 1931", "year", 1931, "was opened"),
    ],
)
def test_a_value_is_read_and_taken_out(text: str, kind: str, number: float, rest: str) -> None:
    (found,), left = measures(text)
    assert (found.kind, found.number) == (kind, number)
    assert " ".join(left.split()) == rest


@pytest.mark.parametrize("text", ["is open", "is a May tree of 40 leaves", "is in room B4 of 3"])
def test_a_date_is_none_without_a_month(text: str) -> None:
    assert all(each.kind != "clock" for each in measures(text)[0])


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("two weeks", "14 days"),
        ("€5", "5 euros"),
        ("10 days", "up to 14 days"),
        ("at least 100 people", "300 people"),
        ("about 310 people", "300 people"),
        ("3.2.1", "3.2"),
        ("at 9 pm", "at 9"),
        ("3 May 2026", "May 3"),
        ("1 GB", "1024 MB"),
    ],
)
def test_values_that_may_be_the_same(said: str, known: str) -> None:
    assert are_comparable(only(said), only(known))
    assert agree(only(said), only(known))


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("30 days", "up to 14 days"),
        ("up to 30 days", "up to 14 days"),
        ("up to 500 files", "100 files"),
        ("less than 100 people", "300 people"),
        ("at 9 am", "at 9 pm"),
        ("3.3.1", "3.3.2"),
        ("June", "May 3"),
        ("B4", "C7"),
        ("ada@example.org", "ida@example.org"),
    ],
)
def test_values_that_exclude_each_other(said: str, known: str) -> None:
    assert are_comparable(only(said), only(known))
    assert not agree(only(said), only(known))


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("100 requests per hour", "100 requests per minute"),
        ("40 new employees", "300 employees"),
        ("10 uploads", "100 requests"),
        ("18 euros", "20 dollars"),
        ("5 days", "5 euros"),
    ],
)
def test_values_of_different_things_are_not_compared(said: str, known: str) -> None:
    assert not are_comparable(only(said), only(known))
