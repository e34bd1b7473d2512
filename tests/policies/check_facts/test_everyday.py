"""Statements beside facts as people write them: each fact alone, with what contradicts it and what does not."""

from pathlib import Path

import pytest

from policies.check_facts.trusted import Fact, Trusted


def read(name: str) -> list[str]:
    return (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").splitlines()


LINES = read("everyday")


def marked(mark: str, lines: list[str] = LINES) -> list[tuple[str, str]]:
    """The statements with a mark, each with the fact above it."""
    pairs: list[tuple[str, str]] = []
    fact = ""
    for line in lines:
        fact = fact if line.startswith(("  ", "#")) else line
        pairs += [(line[4:], fact)] if line.startswith(f"  {mark} ") else []
    return pairs


@pytest.mark.parametrize(("said", "fact"), marked("-"))
def test_contradicted_returns_the_fact_of_a_false_statement(said: str, fact: str) -> None:
    assert [found.fact for found in Trusted([Fact(fact)]).contradicted(said)] == [fact]


@pytest.mark.parametrize(("said", "fact"), marked("+"))
def test_contradicted_returns_nothing_for_other_statements(said: str, fact: str) -> None:
    assert Trusted([Fact(fact)]).contradicted(said) == [], fact


def test_contradicted_returns_nothing_for_the_facts_themselves() -> None:
    facts = [Fact(line) for line in LINES if line and line[0] not in " #"]
    trusted = Trusted(facts)
    alone = {fact.text for fact in facts if Trusted([fact]).contradicted(fact.text)}
    assert alone == set()
    assert [fact.text for fact in facts if trusted.contradicted(fact.text)] == []


def test_rules_find_most_of_unseen_statements_and_hardly_any_wrongly() -> None:
    false, true = (marked(mark, read("unseen")) for mark in "-+")
    hits, wrong = (sum(bool(Trusted([Fact(fact)]).contradicted(said)) for said, fact in each) for each in (false, true))
    assert (len(false), len(true)) == (103, 157)
    assert hits >= 77
    assert wrong == 0
