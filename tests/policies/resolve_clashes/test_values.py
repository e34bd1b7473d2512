import pytest

from policies.resolve_clashes.comparison import comparable, differ
from policies.resolve_clashes.places import places
from policies.resolve_clashes.terms import fold
from policies.resolve_clashes.values import Value, number, rates, values
from proxy.text.fold import stem


@pytest.mark.parametrize(
    ("text", "kind", "unit", "value"),
    [
        ("on march 14th", "date", "", "m3d14"),
        ("the 14th of march", "date", "", "m3d14"),
        ("on the 2nd", "date", "", "d2"),
        ("2026-03-14", "date", "", "m3d14"),
        ("next tuesday", "date", "", "w1"),
        ("tomorrow", "date", "", "tomorrow"),
        ("el 14 de marzo", "date", "", "m3d14"),
        ("el miercoles", "date", "", "w2"),
        ("pasado manana", "date", "", "day after tomorrow"),
        ("at 6:20 pm", "time", "", "380"),
        ("half past six", "time", "", "390"),
        ("at 18:30", "time", "", "390"),
        ("quarter to 7 in the evening", "time", "", "405"),
        ("at noon", "time", "", "0"),
        ("a las seis y media", "time", "", "390"),
        ("a las 18:30", "time", "", "390"),
        ("for three people", "count", "people", "3"),
        ("two double rooms", "count", "room", "2"),
        ("para cuatro personas", "count", "people", "4"),
        ("somos cinco", "count", "people", "5"),
        ("7 chapters", "count", "chapt", "7"),
        ("512 mb", "count", "mb", "512"),
        ("2 gb", "count", "mb", "2048"),
        ("$1,200.50", "money", "", "1200.5"),
        ("5k euros", "money", "", "5000"),
        ("1.200 euros", "money", "", "1200"),
        ("394 000 dolares", "money", "", "394000"),
        ("82%", "percent", "", "82"),
        ("15 por ciento", "percent", "", "15"),
    ],
)
def test_reads_a_value(text: str, kind: str, unit: str, value: str) -> None:
    assert [(one.kind, one.unit, one.value) for one in values(text)] == [(kind, unit, value)]


@pytest.mark.parametrize("text", ["no value here", "in 2024", "one of them", "a room", "the first time", "v1.2.3-rc"])
def test_reads_none(text: str) -> None:
    assert [one for one in values(text) if one.unit] == []


def of_date(value: str, part: str = "") -> Value:
    return Value("date", part, "", value, 0, 0)


@pytest.mark.parametrize(
    ("one", "other", "different", "sure"),
    [
        ("d14", "m3d14", False, True),
        ("d14", "m3d15", True, True),
        ("m3d14", "m4d14", True, True),
        ("w1", "w2", True, True),
        ("w1", "d14", True, False),
        ("today", "tomorrow", True, True),
        ("today", "w1", True, False),
    ],
)
def test_dates_are_compared_as_far_as_they_were_said(one: str, other: str, different: bool, sure: bool) -> None:
    assert differ(of_date(one), of_date(other)) is different
    assert comparable(of_date(one), of_date(other)) is sure


def test_a_return_is_another_date_than_a_departure() -> None:
    assert not differ(of_date("d3"), of_date("d9", "end"))
    assert values("i come back on the 9th")[0].part == "end"


@pytest.mark.parametrize(
    ("word", "digits"),
    [("seven", "7"), ("siete", "7"), ("1,200", "1200"), ("1.200", "1200"), ("2.5", "2.5"), ("x", None)],
)
def test_numbers(word: str, digits: str | None) -> None:
    assert number(word) == digits


@pytest.mark.parametrize(
    ("text", "part", "name"),
    [
        ("We fly from Porto.", "from", "porto"),
        ("Take me to New Delhi", "to", "new delhi"),
        ("a flat in Ciudad Real", "in", "ciudad real"),
        ("something in san francisco", "in", "san francisco"),
        ("How about NYC?", "in", "new york"),
    ],
)
def test_places(text: str, part: str, name: str) -> None:
    assert [(one.part, one.value) for one in places(text)] == [(part, name)]


@pytest.mark.parametrize("text", ["in March", "in English", "to Schedule a visit", "on Monday", "in the end"])
def test_no_places(text: str) -> None:
    assert places(text) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [("hotels", "hotel"), ("hoteles", "hotel"), ("living", "live"), ("viajo", "viajar"), ("coffees", "coffee")],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_folding_keeps_the_length() -> None:
    text = "¿Cuándo? İstanbul, Ñandú, «Übung»"
    assert len(fold(text)) == len(text)


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("every two years", "1/2 year"),
        ("every other week", "1/2 week"),
        ("twice a week", "2/1 week"),
        ("three times a day", "3/1 day"),
        ("cada dos anos", "1/2 year"),
        ("una vez al mes", "1/1 month"),
        ("at times", None),
    ],
)
def test_how_often(clause: str, said: str | None) -> None:
    assert [value.value for value in rates(clause)] == ([] if said is None else [said])
