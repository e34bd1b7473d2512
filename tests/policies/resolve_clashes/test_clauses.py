import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.resolve_clashes.statements import statements


def kinds(text: str) -> list[str]:
    return [each.kind for each in statements(text)]


@pytest.mark.parametrize(
    "text",
    [
        "If I lived in Rome, I would walk.",
        "Suppose the budget is 500 euros.",
        "Si viviera en Roma, andaría.",
        "My wife says that I never cook.",
        "Mi mujer dice que nunca cocino.",
        "According to the guide, it opens at nine.",
        "Según la guía, abre a las nueve.",
        "I wish I had a dog.",
        "Ojalá tuviera un perro.",
        '"I have never seen this film before"',
        "«Nunca he visto esta película»",
        "```\nbudget = 500\n```",
        "> My budget is 500 euros.",
    ],
)
def test_statements_leave_out_suppositions_reports_and_quotations(text: str) -> None:
    assert kinds(text) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Do I live in Rome?", ["question"]),
        ("¿Vivo en Roma?", ["question"]),
        ("Can you book a table for two?", ["request"]),
        ("¿Puedes reservar una mesa?", ["request"]),
        ("What about Tuesday?", ["request"]),
        ("I live in Rome.", ["statement"]),
        ("Vivo en Roma.", ["statement"]),
        ("I've saved 500 euros, but how can I save more?", ["statement", "question"]),
    ],
)
def test_statement_has_its_kind(text: str, found: list[str]) -> None:
    assert kinds(text) == found


@given(st.text(max_size=400))
def test_statements_lie_within_any_text(text: str) -> None:
    for statement in statements(text):
        assert 0 <= statement.start < statement.end <= len(text)
