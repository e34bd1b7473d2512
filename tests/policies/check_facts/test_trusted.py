"""Statements beside trusted facts: what contradicts them, what agrees, and what neither of them says anything about."""

import json

import orjson
import pytest

from policies.check_facts.trusted import Fact, Trusted
from tests.policies.check_facts.known import DENIED, FALSE_EN, FALSE_ES, FRAMES_EN, FRAMES_ES, TRUSTED, unstated

OTHERWISE = """
Sydney is Australia's capital.
Sydney serves as the capital of Australia.
Australia's capital city is Melbourne.
Lyon lies within Australia.
Lyon is situated in Australia.
Lyon is found in Australia.
Lyon can be found in Australia.
Lyon, a city in Australia, has two rivers.
France is situated on the continent of Asia.
Lyon forma parte de Australia.
Lyon se ubica en Australia.
Sídney sirve de capital de Australia.
The price of the Basic plan is 12 euros.
The deadline for Project Atlas is 4 May 2026.
The deadline of Project Atlas is May 13, 2026.
La fecha de entrega del proyecto Atlas es el 5 de mayo.
The latest version of Penstock is 3.4.
"""
ALIKE = """
The capital of Australia is Canberra.
Canberra is Australia's capital.
La capital de Francia es París.
Lyon is in France.
Lyon is in Europe.
The Basic plan costs 10 euros.
The Basic plan costs €10.00.
El plan Básico cuesta 10 €.
France has 68 million inhabitants.
The population of France is about 70 million.
Francia tiene 68 millones de habitantes.
Redis uses port 6379.
The deadline for Project Atlas is 3 May.
La fecha de entrega del proyecto Atlas es el 3 de mayo.
The latest version of Penstock is 3.2.1.
Frank Herbert wrote Dune.
Ada Lovelace was born in 1815.
Ada Lovelace died in 1852.
Ada Lovelace was an English writer.
The Quiet Harbour is a British film.
Mara Stone directed The Quiet Harbour.
The Quiet Harbour was shot in Portugal.
The Norwick Bridge has four arches.
Glass Rivers is the second studio album by Marrow.
Elena Duarte nació en 1950.
"""
UNKNOWN = """
The capital of Peru is Lima.
Canberra is beautiful in spring.
I moved from Lyon to Australia.
Lyon and Paris are cities in France.
A train from Lyon to Japan would be long.
The flight from Sydney to France takes a day.
Australia is far from Japan.
France borders on nothing in Asia.
The Premium plan costs 12 euros.
Postgres listens on port 5432.
The dune is high.
Nada me gusta más que el café.
The capital of Australia is expensive.
The price of the Basic plan is fair.
Lovelace is a common name in Norwick.
The capital gain of France was 3 percent.
"""


def listed(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("said", listed(OTHERWISE))
def test_what_says_otherwise_is_found(said: str) -> None:
    (found,) = TRUSTED.contradicted(said)
    assert said[found.start : found.end] == said
    assert found.fact


@pytest.mark.parametrize("said", [*listed(ALIKE), *listed(UNKNOWN)])
def test_what_agrees_or_is_about_something_else_is_left_alone(said: str) -> None:
    assert TRUSTED.contradicted(said) == []


@pytest.mark.parametrize("said", [*FALSE_EN, *FALSE_ES, *dict(DENIED)])
def test_the_plain_statements_of_the_set_are_found(said: str) -> None:
    assert TRUSTED.contradicted(f"{said}.")


def test_questions_suppositions_quotations_reports_and_denials_are_no_statements() -> None:
    texts = unstated()
    assert len(texts) == len(FALSE_EN) * len(FRAMES_EN) + len(FALSE_ES) * len(FRAMES_ES) + len(DENIED) >= 200
    assert [text for _, text in texts if TRUSTED.contradicted(text)] == []


def test_a_statement_in_a_long_text_is_found_where_it_stands() -> None:
    filler = "The committee met on Tuesday and spoke about curtains. " * 2000
    text = f"{filler}The capital of Australia is Sydney. {filler}Lyon is in Australia."
    assert [text[each.start : each.end] for each in TRUSTED.contradicted(text)] == [
        "The capital of Australia is Sydney.",
        "Lyon is in Australia.",
    ]


def test_a_text_that_begins_like_json_and_is_none_is_prose() -> None:
    assert TRUSTED.contradicted("[note] The report is in. The capital of Australia is Sydney.")
    assert TRUSTED.contradicted("{see below}\nThe capital of Australia is Sydney. {end}")


@pytest.mark.parametrize("indent", [None, 2])
def test_in_json_the_strings_are_read_and_the_keys_are_not(indent: int | None) -> None:
    said = "La capital de Australia es Sídney."
    value = {"The capital of Australia is Sydney.": 1, "rows": [{"text": said, "n": 12.5}, 'a "quoted" line\nmore']}
    text = json.dumps(value, indent=indent, ensure_ascii=True)
    (found,) = TRUSTED.contradicted(text)
    assert orjson.loads(f'"{text[found.start : found.end]}"') == said


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint('The capital of Australia is Sydney.')\n```",
        "```\nThe capital of Australia is Sydney.",
        "Run `capital = 'The capital of Australia is Sydney.'` now.",
    ],
)
def test_code_states_nothing(text: str) -> None:
    assert TRUSTED.contradicted(text) == []


def test_one_fact_that_agrees_outweighs_others() -> None:
    """Two facts may each know a part: a country with two capitals."""
    trusted = Trusted([Fact("The capital of Bolivia is Sucre."), Fact("The capital of Bolivia is La Paz.")])
    assert trusted.contradicted("The capital of Bolivia is La Paz.") == []
    assert trusted.contradicted("The capital of Bolivia is Lima.")


OPENED = Trusted(map(Fact, ("The capital of Australia is Canberra.", "La capital de Francia es París.",
                            "The rate limit is 100 requests per minute.", "El almuerzo cuesta 12 euros.")))  # fmt: skip
ENGLISH = (
    "the capital of Australia is Sydney.",
    "Australia's capital is Melbourne.",
    "the rate limit is 500 requests per minute.",
)
SPANISH = ("la capital de Francia es Lyon.", "el almuerzo cuesta 15 euros.")


@pytest.mark.parametrize(
    ("said", "openings"),
    [
        (ENGLISH, ("I am sure: ", "I'm telling you, ", "Trust me, ", "Remember: ", "Let me be clear: ", "Honestly, I know it: ",
                   "One thing is certain: ", "As you know, ", "No, ", "Mark my words, ", "👍 ", "Guaranteed – ", "- ✅ Note: ",
                   "Believe me, ", "You know that ", "I know that ", "I promise you that ")),
        (SPANISH, ("Recuerda: ", "Estoy seguro: ", "Te lo digo yo, ", "Créeme, ", "Ten en cuenta: ", "Como sabes, ", "¡Ojo: ", "Te aseguro que ")),
    ],
)  # fmt: skip
def test_an_opening_hides_no_statement(said: tuple[str, ...], openings: tuple[str, ...]) -> None:
    for statement in said:
        for opening in openings:
            assert OPENED.contradicted(f"{opening}{statement}"), opening


@pytest.mark.parametrize(
    ("said", "openings"),
    [
        (ENGLISH, ("I'm not sure: ", "He says: ", "He told me: ", "My teacher told me, ", "It is false: ", "In 1950, ", "During the war, ",
                   "On weekends, ", "For students, ", "If you ask him, ", "I doubt it: ", "I don't think so: ", "Before you ask, ",
                   "Ana told me, ", "Is this right: ", "I asked him, ", "Suppose this: ", "Rate limit of guests: ", "Australia in a novel: ",
                   "You doubt that ", "They believe me, ", "I never said that ", "I heard him say that ", "I read a book that says that ")),
        (SPANISH, ("No estoy seguro: ", "Él dice: ", "Es falso: ", "En 1950, ", "Durante la guerra, ", "Para estudiantes, ", "Dudo de esto: ", "Me dicen que ", "No me digas que ")),
    ],
)  # fmt: skip
def test_an_opening_that_doubts_limits_or_reports_is_no_mere_opening(
    said: tuple[str, ...], openings: tuple[str, ...]
) -> None:
    for statement in said:
        for opening in openings:
            assert not OPENED.contradicted(f"{opening}{statement}"), opening
