"""Statements beside facts in prose: an encyclopedia of things that do not exist."""

from pathlib import Path

import pytest

from policies.check_facts.trusted import Fact, Trusted

LINES = (Path(__file__).parent / "encyclopedia.txt").read_text(encoding="utf-8").splitlines()
TRUSTED = Trusted(Fact(line) for line in LINES if line and line[0] not in "# ")


def marked(mark: str) -> list[tuple[str, str]]:
    """The statements with a mark, each with the fact above it."""
    pairs: list[tuple[str, str]] = []
    fact = ""
    for line in LINES:
        fact = fact if line.startswith("  ") else line
        pairs += [(line[4:], fact)] if line.startswith(f"  {mark} ") else []
    return pairs


@pytest.mark.parametrize(("said", "fact"), marked("-"))
def test_what_contradicts_a_fact_is_found(said: str, fact: str) -> None:
    assert [found.fact for found in TRUSTED.contradicted(said)] == [fact]


@pytest.mark.parametrize(("said", "fact"), marked("+"))
def test_what_agrees_or_tells_of_something_else_is_left_alone(said: str, fact: str) -> None:
    assert TRUSTED.contradicted(said) == [], fact


def test_a_fact_of_several_sentences_goes_on_about_its_subject() -> None:
    trusted = Trusted([Fact("Lena Orr is a Swiss chemist. She was born in 1950.")])
    assert trusted.contradicted("Lena Orr was born in 1960.")
    assert trusted.contradicted("Lena Orr was born in 1950.") == []


def test_of_two_facts_that_disagree_either_may_be_right() -> None:
    trusted = Trusted([Fact("Pale Hours is a Danish film."), Fact("Pale Hours is a Danish series about a family.")])
    assert trusted.contradicted("Pale Hours is a series set in winter.") == []
    assert trusted.contradicted("Pale Hours is a novel.")


def test_a_title_in_quotation_marks_is_a_name_in_a_fact() -> None:
    trusted = Trusted([Fact('"Grey Doves" is a song by the singer Ana Bell.')])
    assert trusted.contradicted("Grey Doves is a book.")


@pytest.mark.parametrize(
    ("fact", "otherwise", "alike"),
    [
        (
            "Casa Roja está situada en Lima, Perú.",
            "Casa Roja está situada en Chile.",
            "Casa Roja está situada en Perú.",
        ),
        ("Eva Sanz es una pintora española nacida en 1950.", "Eva Sanz es mexicana.", "Eva Sanz es una pintora."),
    ],
)
def test_spanish(fact: str, otherwise: str, alike: str) -> None:
    trusted = Trusted([Fact(fact)])
    assert trusted.contradicted(otherwise)
    assert trusted.contradicted(alike) == []
