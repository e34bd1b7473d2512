from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.text.values import find_values, value


@pytest.mark.parametrize(
    ("text", "kind", "unit", "known"),
    [
        ("on march 14th", "date", "", (3, 14, None)),
        ("the 14th of march", "date", "", (3, 14, None)),
        ("on the 2nd", "date", "", (None, 2, None)),
        ("2026-03-14", "date", "", (3, 14, 2026)),
        ("in may 2026", "date", "", (5, None, 2026)),
        ("el 14 de marzo de 2026", "date", "", (3, 14, 2026)),
        ("next tuesday", "weekday", "", (1,)),
        ("el miercoles", "weekday", "", (2,)),
        ("at 6:20 pm", "time", "", 380),
        ("half past six", "time", "", 390),
        ("at 18:30", "time", "", 390),
        ("quarter to 7", "time", "", 405),
        ("at noon", "time", "", 0),
        ("a las seis y media", "time", "", 390),
        ("at 9", "time", "", 540),
        ("at zero o'clock", "time", "", 0),
        ("for three people", "amount", "people", 3),
        ("two double rooms", "amount", "room", 2),
        ("para cuatro personas", "amount", "people", 4),
        ("somos cinco", "amount", "people", 5),
        ("a table for four", "amount", "people", 4),
        ("7 chapters", "amount", "chapt", 7),
        ("512 mb", "amount", "byte", 512e6),
        ("16gb", "amount", "byte", 16e9),
        ("3 weeks", "amount", "second", 1814400),
        ("$1,200.50", "amount", "dollar", 1200.5),
        ("1.200,50 euros", "amount", "euro", 1200.5),
        ("5k euros", "amount", "euro", 5000),
        ("10€", "amount", "euro", 10),
        ("1.4 million people", "amount", "people", 1.4e6),
        ("2 mil millones de pesos", "amount", "peso", 2e9),
        ("394 000 dolares", "amount", "dollar", 394000),
        ("82%", "amount", "percent", 82),
        ("in 2024", "amount", "", 2024),
        ("version 3.2.1", "amount", "", ("3", "2", "1")),
    ],
)
def test_find_values_returns_the_value(text: str, kind: str, unit: str, known: object) -> None:
    values = [
        (one.kind, one.unit, one.parts if isinstance(known, tuple) else one.readings[0]) for one in find_values(text)
    ]
    assert values == [(kind, unit, known)]


OTHER_NUMBERS = (
    "no value here|tomorrow|one of them|come at once.|tengo un perro|at 30 now|this morning one of us|a room|"
    "the first time|v1.2.3-rc|3/4|2-3 rooms"
)


@pytest.mark.parametrize("text", OTHER_NUMBERS.split("|"))
def test_find_values_returns_none_for_other_numbers(text: str) -> None:
    assert [one for one in find_values(text) if one.kind != "amount" or (one.readings and one.unit)] == []


def test_find_values_reads_a_part_of_a_text_once() -> None:
    kinds = [(one.kind, one.unit) for one in find_values("a table for 4 at 7:30 pm on may 3")]
    assert kinds == [("time", ""), ("date", ""), ("amount", "people")]


def pairs(rows: str) -> list[list[str]]:
    return [pair.strip().split(" = ") for line in rows.strip().splitlines() for pair in line.split(" | ")]


ALIKE = """
    1.4 million = 1,400,000 | 1.400.000 = 1,4 millones | 68.000 = 68,000 people | 10 euros = €10
    10,50 € = 10.5 euros | ten dollars = $10 | 10 km = 10,000 metres | two decades = 20 years | 5k = 5000
    2 mil millones = 2 billion | 68,373,433 = 68 million | 3.2 = 3.2.1 | May 3 = 3 de mayo de 2026
    2026-05-03 = May 3rd, 2026 | May 2026 = 5 May 2026 | 10 miles = 16 km | 10 euros = 10 dollars | 3 May = 3
"""
DIFFERENT = """
    1.4 million = 1.9 million | 10 euros = 12 euros | 8080 = 8081 | 3.2.1 = 3.3 | May 3 = May 4
    3 May 2026 = 2025-05-03 | 3 May = 3 June | twelve years = 11 years | Tuesday = Thursdays | 6:30 pm = 18:45
"""


@pytest.mark.parametrize(("one", "other"), [*pairs(ALIKE), *pairs(DIFFERENT)])
def test_values_differ(one: str, other: str) -> None:
    left, right = value(one), value(other)
    assert left is not None
    assert right is not None
    assert left.differs(right) is right.differs(left) is ([one, other] in pairs(DIFFERENT))


@pytest.mark.parametrize(
    "text", ["Paris", "in 1990", "3 colours of may", "3 colours", "$20 month", "", "x" * 100, "1" * 61, "route 66"]
)
def test_value_returns_none_for_other_texts(text: str) -> None:
    assert value(text) is None


WORDS = (
    "zero", "one", "once", "twelve", "5", "12", "25", "99", "2026", "1.200,50", "3.2.1", "4:30", "7th", "2026-02-31", "at",
    "for", "la", "las", "the", "el", "of", "de", "half past", "quarter to", "y media", "menos cuarto", "may", "monday", "pm",
    "a.m.", "o'clock", "noon", "morning", "in", "$", "%", "k", "million", "mil", "people", "rooms", "euros", "kg", "por",
)  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from([" ", "  ", ""]))
def test_find_values_reads_each_place_of_any_text_once(words: list[str], between: str) -> None:
    text = between.join(words)
    taken = sorted((one.start, one.end) for one in find_values(text))
    assert all(0 <= start < end <= len(text) for start, end in taken)
    assert all(end <= start for (_, end), (start, _) in pairwise(taken))
