import pytest

from policies.resolve_clashes.clashes import are_comparable, differ
from policies.resolve_clashes.values import Value, fold, read_values
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
        ("quarter to 7", "time", "", "405"),
        ("at noon", "time", "", "0"),
        ("a las seis y media", "time", "", "390"),
        ("a las 18:30", "time", "", "390"),
        ("for three people", "count", "people", "3"),
        ("two double rooms", "count", "room", "2"),
        ("para cuatro personas", "count", "people", "4"),
        ("somos cinco", "count", "people", "5"),
        ("7 chapters", "count", "chapt", "7"),
        ("512 mb", "count", "mb", "512"),
        ("2 gb", "count", "gb", "2"),
        ("ana@example.org", "email", "", "ana@example.org"),
        ("$1,200.50", "money", "", "1200.5"),
        ("5k euros", "money", "", "5000"),
        ("1.200 euros", "money", "", "1200"),
        ("394 000 dolares", "money", "", "394000"),
        ("82%", "count", "percent", "82"),
        ("15 por ciento", "count", "percent", "15"),
    ],
)
def test_read_values_returns_the_value(text: str, kind: str, unit: str, value: str) -> None:
    assert [(one.kind, one.unit, one.value) for one in read_values(text, text)] == [(kind, unit, value)]


@pytest.mark.parametrize("text", ["no value here", "in 2024", "one of them", "a room", "the first time", "v1.2.3-rc"])
def test_read_values_returns_none_without_a_unit(text: str) -> None:
    assert [one for one in read_values(text, text) if one.unit] == []


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
def test_dates_differ_as_far_as_they_are_given(one: str, other: str, different: bool, sure: bool) -> None:
    assert differ(of_date(one), of_date(other)) is different
    assert are_comparable(of_date(one), of_date(other)) is sure


def test_return_differs_from_departure_in_its_part() -> None:
    assert not differ(of_date("d3"), of_date("d9", "end"))
    assert read_values("i come back on the 9th", "")[0].part == "end"


@pytest.mark.parametrize(
    ("text", "part", "name"),
    [
        ("We fly from Porto.", "from", "porto"),
        ("Take me to New Delhi", "to", "new delhi"),
        ("a flat in Ciudad Real", "in", "ciudad real"),
    ],
)
def test_read_values_returns_the_place(text: str, part: str, name: str) -> None:
    assert [(one.part, one.value) for one in read_values("", text)] == [(part, name)]


@pytest.mark.parametrize("text", ["in March", "in English", "to Schedule a visit", "on Monday", "in the end"])
def test_read_values_returns_no_place_for_other_names(text: str) -> None:
    assert read_values("", text) == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [("hotels", "hotel"), ("hoteles", "hotel"), ("living", "live"), ("viajo", "viajar"), ("coffees", "coffee")],
)
def test_stem_is_one_for_all_forms(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_fold_keeps_the_length() -> None:
    text = "¿Cuándo? İstanbul, Ñandú, «Übung»"
    assert len(fold(text)) == len(text)
