import pytest

from policies.check_facts.values import differ, value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1.4 million", "1,400,000"),
        ("1.400.000", "1,4 millones"),
        ("68.000", "68,000 people"),
        ("10 euros", "€10"),
        ("10,50 €", "10.5 euros"),
        ("ten dollars", "$10"),
        ("10 km", "10,000 metres"),
        ("two decades", "20 years"),
        ("5k", "5000"),
        ("2 mil millones", "2 billion"),
        ("about 100", "97"),
        ("68,373,433", "68 million"),
        ("3.2", "3.2.1"),
        ("May 3", "3 de mayo de 2026"),
        ("2026-05-03", "May 3rd, 2026"),
        ("May 2026", "5 May 2026"),
        ("10 miles", "16 km"),
    ],
)
def test_the_same_in_other_words(one: str, other: str) -> None:
    left, right = value(one), value(other)
    assert left is not None
    assert right is not None
    assert not differ(left, right)
    assert not differ(right, left)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1.4 million", "1.9 million"),
        ("10 euros", "12 euros"),
        ("10 euros", "10 dollars"),
        ("8080", "8081"),
        ("3.2.1", "3.3"),
        ("May 3", "May 4"),
        ("3 May 2026", "2025-05-03"),
        ("3 May", "3 June"),
        ("twelve years", "11 years"),
    ],
)
def test_different_values(one: str, other: str) -> None:
    left, right = value(one), value(other)
    assert left is not None
    assert right is not None
    assert differ(left, right)


@pytest.mark.parametrize("text", ["Paris", "in 1990", "3 colours of may", "", "x" * 100, "1" * 61, "route 66"])
def test_no_value(text: str) -> None:
    assert value(text) is None


def test_a_date_is_no_amount() -> None:
    date, amount = value("3 May"), value("3")
    assert date is not None
    assert amount is not None
    assert not differ(date, amount)
