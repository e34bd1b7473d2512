import pytest

from policies.check_facts.values import differ, value


@pytest.mark.parametrize(
    ("one", "other", "is_different"),
    [
        ("1.4 million", "1,400,000", False),
        ("1.400.000", "1,4 millones", False),
        ("68.000", "68,000 people", False),
        ("10 euros", "€10", False),
        ("10,50 €", "10.5 euros", False),
        ("ten dollars", "$10", False),
        ("10 km", "10,000 metres", False),
        ("two decades", "20 years", False),
        ("5k", "5000", False),
        ("2 mil millones", "2 billion", False),
        ("about 100", "97", False),
        ("68,373,433", "68 million", False),
        ("3.2", "3.2.1", False),
        ("May 3", "3 de mayo de 2026", False),
        ("2026-05-03", "May 3rd, 2026", False),
        ("May 2026", "5 May 2026", False),
        ("10 miles", "16 km", False),
        ("1.4 million", "1.9 million", True),
        ("10 euros", "12 euros", True),
        ("10 euros", "10 dollars", True),
        ("8080", "8081", True),
        ("3.2.1", "3.3", True),
        ("May 3", "May 4", True),
        ("3 May 2026", "2025-05-03", True),
        ("3 May", "3 June", True),
        ("twelve years", "11 years", True),
        ("3 May", "3", False),
    ],
)
def test_two_values_differ(one: str, other: str, is_different: bool) -> None:
    left, right = value(one), value(other)
    assert left is not None
    assert right is not None
    assert differ(left, right) is differ(right, left) is is_different


@pytest.mark.parametrize("text", ["Paris", "in 1990", "3 colours of may", "", "x" * 100, "1" * 61, "route 66"])
def test_no_value(text: str) -> None:
    assert value(text) is None
