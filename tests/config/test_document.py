"""YAML files: variables filled in, every value with its line."""

from pathlib import Path
from typing import Any

import pytest

from proxy.chat.errors import ConfigError
from proxy.config.document import Document, Sources

PATH = Path("config.yaml")


def read(text: str, **environment: str) -> Any:
    return Document(PATH, text, Sources(environment)).data


def refusal(text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, **environment)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("text", "data"), [
    pytest.param("", {}, id="an empty file"),
    pytest.param("a: 1\nb: 1.5\nc: true\nd: ~\ne: text\nf: '1'", {"a": 1, "b": 1.5, "c": True, "d": None, "e": "text",
                 "f": "1"}, id="plain values"),
    pytest.param("a: [1, {b: 2}]\nc:\n  - d\n  - e: f", {"a": [1, {"b": 2}], "c": ["d", {"e": "f"}]}, id="nested"),
    pytest.param("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}, id="an alias"),
    pytest.param("1: a\ntrue: b", {"1": "a", "true": "b"}, id="names are text"),
    pytest.param("${NAME}: 1", {"${NAME}": 1}, id="a variable in a name is not filled in"),
    pytest.param("a: &x ${NAME}\nb: *x", {"a": "value", "b": "value"}, id="a variable behind an alias, at each place"),
    pytest.param("a: !!python/object/apply:os.system ['true']", {"a": ["true"]}, id="a tag on a list makes no object"),
])  # fmt: skip
def test_values(text: str, data: Any) -> None:
    assert read(text, NAME="value") == data


@pytest.mark.parametrize(("value", "filled"), [
    pytest.param("${NAME}", "value", id="a variable"),
    pytest.param("a-${NAME}-b", "a-value-b", id="inside a text"),
    pytest.param("${NAME:-other}", "value", id="a default that is not needed"),
    pytest.param("${UNSET:-other}", "other", id="a default"),
    pytest.param("${UNSET:-http://h:1/v1}", "http://h:1/v1", id="a default with colons"),
    pytest.param("${UNSET:-}", "", id="an empty default"),
    pytest.param("${EMPTY:-other}", "other", id="an empty variable counts as unset"),
    pytest.param("$${NAME}", "${NAME}", id="a doubled dollar is a dollar"),
    pytest.param("$$${NAME}", "$value", id="a dollar before a variable"),
    pytest.param("$NAME costs 5$", "$NAME costs 5$", id="without braces it is no variable"),
    pytest.param("${NESTED}", "${NAME} $$", id="what a variable holds is not filled in again"),
    pytest.param("${MAPPING}", "a: 1\nb: [2, *x]  # no comment", id="what a variable holds is text, never YAML"),
    pytest.param("${_LOW_1}", "x", id="names with digits and underscores"),
])  # fmt: skip
def test_variables(value: str, filled: str) -> None:
    environment = {
        "NAME": "value", "EMPTY": "", "NESTED": "${NAME} $$", "MAPPING": "a: 1\nb: [2, *x]  # no comment",
        "NUMBER": "4000", "_LOW_1": "x",
    }  # fmt: skip

    assert read(f"a: {value}\nb: [{value if '{' not in value else 'x'}]", **environment)["a"] == filled


def test_a_file_is_read_without_the_blanks_around_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n  sk-1 ${NAME}\n", encoding="utf-8")

    assert read(f"a: 'Bearer ${{file:{tmp_path}/key}}'") == {"a": "Bearer sk-1 ${NAME}"}
    (tmp_path / "key").write_bytes(b"\xff\xfe")
    assert "cannot be read" in refusal(f"a: ${{file:{tmp_path}/key}}")


@pytest.mark.parametrize(("value", "said"), [
    pytest.param("${NAME}", "${NAME} is not set; set it, or write ${NAME:-default}", id="a variable"),
    pytest.param("x ${EMPTY} y", "${EMPTY} is not set; set it, or write ${EMPTY:-default}", id="an empty one"),
    pytest.param("${file:/nowhere/key}", "the file of ${file:/nowhere/key} cannot be read", id="a file"),
])  # fmt: skip
def test_what_is_not_set_is_named_with_its_line(value: str, said: str) -> None:
    assert refusal(f"a:\n  - b\n  - c: {value}\n", EMPTY="") == f"config.yaml:3: a.1.c: {said}"


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(("text", "said"), [
    pytest.param("a: 1\nb: 2\na: 3", "config.yaml:3: a: this key is given twice", id="a key twice"),
    pytest.param("a:\n  b: 1\n  'b': 2", "config.yaml:3: a.b: this key is given twice", id="deeper, and in quotes"),
    pytest.param("a: 1\n? [b]\n: 2", "config.yaml:1: a key must be a plain name", id="a list for a key"),
    pytest.param("a: [1", "the bracket that opens in line 1 is not closed: expected", id="an open bracket"),
    pytest.param("a: *x", "config.yaml:1: not valid YAML: found undefined alias", id="an unknown alias"),
    pytest.param("a: 1\n---\nb: 2", "config.yaml:2: not valid YAML", id="two documents"),
    pytest.param("a: \x00", "config.yaml: not valid YAML", id="a NUL byte"),
    pytest.param("a: !!python/name:os.system x", "config.yaml:1: a: not a plain value", id="a Python object"),
    pytest.param("a:\n  b: 2026-13-45", "config.yaml:2: a.b: not a plain value", id="a date that does not exist"),
    pytest.param("a: !!int ''", "config.yaml:1: a: not a plain value", id="an empty number"),
    pytest.param("a: !!bool perhaps", "config.yaml:1: a: not a plain value", id="neither true nor false"),
    pytest.param("a: !!timestamp soon", "config.yaml:1: a: not a plain value", id="a time that is none"),
    pytest.param("a: " + "1" * 5000, "config.yaml:1: a: not a plain value", id="a number of 5000 digits"),
    pytest.param(BOMB, "config.yaml: too many nodes", id="a bomb of aliases"),
    pytest.param("a: &x [*x]", "config.yaml", id="an alias inside itself"),
    pytest.param("a: " + "[" * 3000 + "]" * 3000, "config.yaml", id="nested too deeply"),
    pytest.param("#" * (2**20 + 1), "config.yaml: larger than 1024 KiB", id="a huge file"),
])  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(("place", "said"), [
    pytest.param(("a",), "config.yaml:1: a: wrong", id="a key"),
    pytest.param(("a", "b", 1, "c"), "config.yaml:5: a.b.1.c: wrong", id="a key of an item"),
    pytest.param(("a", "x", "y"), "config.yaml:1: a.x.y: wrong", id="what is not there stands at its parent"),
    pytest.param((), "config.yaml:1: wrong", id="the whole file"),
    pytest.param(("x",), "config.yaml:1: x: wrong", id="what is not there at all stands at the beginning"),
])  # fmt: skip
def test_an_error_has_the_line_of_its_place(place: tuple[str | int, ...], said: str) -> None:
    document = Document(PATH, "a:\n  b:\n    - 1\n    - d: 2\n      c: 3\n", Sources({}))

    assert str(document.error(place, "wrong")) == said
    assert str(Document(PATH, "", Sources({})).error(("a",), "wrong")) == "config.yaml: a: wrong"
