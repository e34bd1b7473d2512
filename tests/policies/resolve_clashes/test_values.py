import pytest

from policies.resolve_clashes.values import fold, read_values
from proxy.text.fold import stem


@pytest.mark.parametrize(("text", "unit"), [("i leave on the 9th", ""), ("i come back on the 9th", "end")])
def test_read_values_tells_a_return_from_a_departure(text: str, unit: str) -> None:
    assert [one.unit for one in read_values(text, "")] == [unit]


@pytest.mark.parametrize(
    ("text", "direction", "name"),
    [
        ("We fly from Porto.", "from", "porto"),
        ("Take me to New Delhi", "to", "new delhi"),
        ("a flat in Ciudad Real", "in", "ciudad real"),
    ],
)
def test_read_values_returns_the_place(text: str, direction: str, name: str) -> None:
    assert [(one.kind, one.unit, one.parts) for one in read_values("", text)] == [("place", direction, (name,))]


@pytest.mark.parametrize("text", ["in March", "in English", "to Schedule a visit", "on Monday", "in the end"])
def test_read_values_returns_no_place_for_other_names(text: str) -> None:
    assert read_values("", text) == ()


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("an aisle seat", [("place in a row", "aisle")]),
        ("it costs a window of time", []),
        ("a budget hotel", [("price", "budget hotel")]),
        ("we use go and c++", [("programming language", "golang"), ("programming language", r"c\+\+")]),
    ],
)
def test_read_values_returns_members_of_groups_beside_their_words(text: str, members: list[tuple[str, str]]) -> None:
    assert [(one.kind, one.parts[0]) for one in read_values(text, "")] == members


@pytest.mark.parametrize(
    ("one", "other"),
    [("hotels", "hotel"), ("hoteles", "hotel"), ("living", "live"), ("viajo", "viajar"), ("coffees", "coffee")],
)
def test_stem_is_one_for_all_forms(one: str, other: str) -> None:
    assert stem(one) == stem(other)


def test_fold_keeps_the_length() -> None:
    text = "¿Cuándo? İstanbul, Ñandú, «Übung»"
    assert len(fold(text)) == len(text)
