from pathlib import Path

import pytest

from policies.check_facts.trusted import Fact, read_facts


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
