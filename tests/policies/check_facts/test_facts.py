"""Facts: read from a file, trusted as memories, contradicted or not in everyday words."""

import json
import re
from pathlib import Path

import orjson
import pytest

from policies.check_facts.trusted import Fact, Trusted, read_facts


def written(directory: Path, text: str | bytes) -> Path:
    path = directory / "facts.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_sentences_and_json_with_comments_between(tmp_path: Path) -> None:
    peru = '{"subject": "Peru", "relation": "capital", "object": "Lima", "lang": "en"}'
    ada = '{"text": "Ada was born in 1815.", "subject": null, "id": 7}'
    assert read_facts(written(tmp_path, f"# towns\n\nLyon is a city in France.\n{peru}\n{ada}\n")) == (
        Fact("Lyon is a city in France."),
        Fact("Peru: capital: Lima", "Peru", "capital", "Lima", "en"),
        Fact("Ada was born in 1815."),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("one\n{broken\n", "line 2 of the file of facts begins like JSON"),
        ('{"text": 5}\n', "line 1 of the file of facts: text, subject"),
        ('\n\n{"subject": "Peru"}\n', "line 3 of the file of facts needs a text"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_an_error_names_the_line_and_not_what_stands_in_it(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        read_facts(written(tmp_path, text))
    assert "broken" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_facts(tmp_path / "none.txt")
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(33 * 2**20)
    with pytest.raises(ValueError, match="larger than 32 MiB"):
        read_facts(tmp_path / "large.txt")


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


_PARTS = re.split(
    r"^\[(.+)\]\n", (Path(__file__).parent / "together.txt").read_text(encoding="utf-8"), flags=re.MULTILINE
)
SAID = {name: part.strip().splitlines() for name, part in zip(_PARTS[1::2], _PARTS[2::2], strict=True)}
TRUSTED = Trusted(map(Fact, SAID["facts"]))


@pytest.mark.parametrize("said", SAID["false"])
def test_what_says_otherwise_is_found(said: str) -> None:
    (found,) = TRUSTED.contradicted(said)
    assert said[found.start : found.end] == said
    assert found.fact


@pytest.mark.parametrize("said", SAID["not false"])
def test_what_agrees_or_is_about_something_else_is_left_alone(said: str) -> None:
    assert TRUSTED.contradicted(said) == []


@pytest.mark.parametrize("language", ["English", "Spanish"])
def test_questions_suppositions_quotations_and_reports_are_no_statements(language: str) -> None:
    frames = [frame.replace("\\n", "\n") for frame in SAID[f"{language} frames"]]
    texts = [frame.format(_inside(each, frame)) for each in SAID[f"framed in {language}"] for frame in frames]
    assert [text for text in texts if TRUSTED.contradicted(text)] == []


def _inside(statement: str, frame: str) -> str:
    """A statement in the middle of a sentence begins with a small letter, unless a name does."""
    is_article = statement.split()[0] in ("The", "La", "El")
    begins = frame[0] in "{>`“«" or frame.endswith(('."', "”.", "».", ": {}."))
    return statement[0].lower() + statement[1:] if is_article and not begins else statement


def test_a_statement_is_found_in_a_long_text_and_in_what_only_begins_like_json() -> None:
    filler = "The committee met on Tuesday and spoke about curtains. " * 2000
    text = f"{filler}The capital of Australia is Sydney. {filler}Lyon is in Australia."
    found = [text[each.start : each.end] for each in TRUSTED.contradicted(text)]
    assert found == ["The capital of Australia is Sydney.", "Lyon is in Australia."]
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


def test_one_fact_that_agrees_outweighs_others_and_names_are_compared_in_their_language() -> None:
    """Two facts may each know a part: a country with two capitals."""
    trusted = Trusted([Fact("The capital of Bolivia is Sucre."), Fact("The capital of Bolivia is La Paz.")])
    assert trusted.contradicted("The capital of Bolivia is La Paz.") == []
    assert trusted.contradicted("The capital of Bolivia is Lima.")
    assert Trusted([Fact("La capital de Austria es Viena.")]).contradicted("The capital of Austria is Vienna.") == []
    trusted = Trusted([Fact("The Eiffel Tower is in Paris. It is 330 metres high.")])
    assert trusted.contradicted("It is 8 metres high.") == []
    assert trusted.contradicted("The Eiffel Tower is not in Paris.")


OPENED = Trusted(map(Fact, ("The capital of Australia is Canberra.", "La capital de Francia es París.",
                            "The rate limit is 100 requests per minute.", "El almuerzo cuesta 12 euros.")))  # fmt: skip
ENGLISH = (
    "the capital of Australia is Sydney.",
    "Australia's capital is Melbourne.",
    "the rate limit is 500 requests per minute.",
)
SPANISH = ("la capital de Francia es Lyon.", "el almuerzo cuesta 15 euros.")


@pytest.mark.parametrize(("said", "openings"), [
    (ENGLISH, ("I am sure: ", "Trust me, ", "Remember: ", "As you know, ", "No, ", "Believe me, ", "Note that ", "You know that ", "I know that ")),
    (SPANISH, ("Recuerda: ", "Estoy seguro: ", "Créeme, ", "Como sabes, ", "Ojo: ", "Recuerda que ")),
])  # fmt: skip
def test_an_opening_hides_no_statement(said: tuple[str, ...], openings: tuple[str, ...]) -> None:
    for statement in said:
        for opening in openings:
            assert OPENED.contradicted(f"{opening}{statement}"), opening


@pytest.mark.parametrize(("said", "openings"), [
    (ENGLISH, ("I'm not sure: ", "He says: ", "He told me: ", "My teacher told me, ", "It is false: ", "In 1950, ", "During the war, ",
               "On weekends, ", "For students, ", "If you ask him, ", "I doubt it: ", "I don't think so: ", "Before you ask, ",
               "Ana told me, ", "Is this right: ", "I asked him, ", "Suppose this: ", "Rate limit of guests: ", "Australia in a novel: ",
               "You doubt that ", "They believe me, ", "I never said that ", "I heard him say that ", "I read a book that says that ")),
    (SPANISH, ("No estoy seguro: ", "Él dice: ", "Es falso: ", "En 1950, ", "Durante la guerra, ", "Para estudiantes, ", "Dudo de esto: ", "Me dicen que ", "No me digas que ")),
])  # fmt: skip
def test_an_opening_that_doubts_or_reports_is_no_mere_one(said: tuple[str, ...], openings: tuple[str, ...]) -> None:
    for statement in said:
        for opening in openings:
            assert not OPENED.contradicted(f"{opening}{statement}"), opening


def test_unclear_returns_sentences_about_the_name_of_a_fact_but_for_the_fact_itself() -> None:
    fact = "Ada Lovelace was an English mathematician."
    text = f"Ada Palmer sings. {fact} Ada Lovelace wrote a cookbook."
    found = [text[each.start : each.end] for each in Trusted([Fact(fact)]).unclear(text)]
    assert found == ["Ada Lovelace wrote a cookbook."]
