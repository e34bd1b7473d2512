"""What every form owes, whatever the text."""

import json
import re
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat.markers import is_shortened, shortened
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.form import rows
from proxy.compaction.identifiers import identifiers
from proxy.compaction.layout import joined, lay_out
from proxy.compaction.lines import condensed, short_form
from proxy.compaction.references import shown, with_references

GAP = re.compile(r"\[… [^\n]*?\](?=\s|$|\])")

VOCABULARY = r"""
    the report says that nothing else was found in New Hamilton order_id A-1093 12.50 2024-05-21 /var/log/app.log error:
    failed user@example.com HAT021 https://example.com/a?b=1 caféteria def return { } <p> </p> | , \n \u00e9 &amp;
    INFO 10:15:00 + - @@ 漢字 getName #12 "quoted" 'single'
    """
WORDS = st.sampled_from([*VOCABULARY.split(), "\x1b[31m"])
LINES = st.lists(WORDS, max_size=14).map(" ".join)
TEXTS = st.lists(LINES, min_size=1, max_size=60).map("\n".join)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), LINES)
TABLES = st.lists(st.fixed_dictionaries({"c": LEAVES}), max_size=4).flatmap(
    lambda inner: st.lists(st.fixed_dictionaries({"a": LEAVES, "b": st.just(inner)}), min_size=3, max_size=12)
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=30), st.dictionaries(st.text(max_size=6), inner, max_size=6)),
    max_leaves=60,
)


def whole_lines(form: str) -> list[str]:
    """The lines of a form without its notes; a note within a long line parts it."""
    lines = [line for line in form.split("\n") if not GAP.fullmatch(line.strip())]
    return [piece for line in lines for piece in GAP.split(line) if piece.strip()]


def stand_in_order(pieces: list[str], text: str) -> bool:
    at = 0
    for piece in pieces:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_each_line_of_a_form_stands_in_the_text_in_order(text: str) -> None:
    whole = joined(lay_out(text))
    form = short_form(text)
    assert form == short_form(text)
    for short in (form, condensed(text, 300)):
        if short is not None and short != text:
            assert stand_in_order(whole_lines(short), whole)


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_a_layout_has_each_line_of_the_text_in_order(text: str) -> None:
    sent = rows(text).text
    lines = dict.fromkeys(
        line for line in text.replace("\x1b[31m", "").split("\n") if line.strip() and "<p>" not in text
    )
    assert all(line in sent for line in lines)


def leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from leaves(member)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


@settings(max_examples=150, deadline=None)
@given(st.one_of(JSON, TABLES))
def test_each_leaf_of_json_stands_in_its_layout(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    laid = joined(lay_out(text))
    assert [leaf for leaf in leaves(value) if json.dumps(leaf, ensure_ascii=False) not in laid] == []


@settings(max_examples=100, deadline=None)
@given(
    JSON.map(json.dumps)
    | TABLES.map(json.dumps)
    | TABLES.map(partial(json.dumps, indent=1)).map("a\n{}\nb".format)
    | TEXTS
)
def test_a_second_pass_changes_nothing(text: str) -> None:
    sent = rows(text).text
    assert rows(sent).text == sent


@settings(max_examples=60, deadline=None)
@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_json_loses_nothing_at_birth(value: object, indent: str | int | None) -> None:
    text = json.dumps(value, indent=indent)
    sent = unwrapped(text)
    assert len(sent) <= len(text)
    assert json.loads(sent) == value
    assert unwrapped(sent) is sent


@settings(max_examples=40, deadline=None)
@given(TEXTS)
def test_a_marker_is_recognised_only_where_it_fits(text: str) -> None:
    marked = shortened(text, len(text) + 1, "ab12")
    assert is_shortened(marked)
    assert not is_shortened("x" + marked)
    assert not is_shortened(marked + "\nmore")


HOSTILE = {
    "one line": "a" * 100_000,
    "open brackets": "[" * 100_000,
    "lines of open strings": '["a\n' * 25_000,
    "lines of open objects": ('{"a":' * 100 + "\n") * 200,
    "lines of JSON and more": ("[" + "1," * 900 + "1] x\n") * 50,
    "open objects": '{"a":' * 20_000,
    "open tags": "<script " * 12_500,
    "backslashes": "\\" * 100_000,
    "a cut literal": "content=[TextContent(type='text', text='" + "\\'" * 50_000,
    "many members": "content=[TextContent(type='text', text='a'" + ", a=None" * 12_500,
    "indentation": (" " * 500 + "x\n") * 200,
    "lone surrogates": "\ud800" * 100_000,
    "a huge number": "[" + "9" * 100_000 + "]",
    "empty lines": "\n" * 100_000,
    "elements that close": "<a><b></b>" * 10_000,
    "menus": "<nav>" * 20_000 + "<div><p>" * 100,
    "carriage returns": "x\r" * 50_000,
    "sentences": "a. " * 30_000,
    "deep": "\n".join(" " * (n % 400) + "x:" for n in range(1000)),
    "numbered": "\n".join(f"{n}: x" for n in range(9000)),
    "open quotes of cells": '",' * 50_000,
    "records in records": "[" + ",".join(['{"a":[{"b":1},{"b":2},{"b":3}]}'] * 3000) + "]",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_a_text_like_any_other(text: str) -> None:
    sent = rows(text).text
    form = short_form(sent)
    assert len(sent) <= len(text)
    assert form is None or len(form) < len(sent)
    assert len(condensed(text, 1000)) <= 1000
    assert with_references(sent, [one for one in [shown(sent)] if one is not None])[0] is not None


def test_numbers_keep_their_spelling_and_members_that_repeat_a_key_stay() -> None:
    text = '{ "a": 1.0, "b": 1e5, "c": 12345678901234567890123, "d": -0.10, "e": "1 000" }'
    assert unwrapped(text) == '{"a":1.0,"b":1e5,"c":12345678901234567890123,"d":-0.10,"e":"1 000"}'
    assert joined(lay_out('{"id": 1, "id": 2, "note": "' + "word " * 200 + '"}')).startswith('{\n "id":1\n "id":2\n')


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "Order A-1093 of user_id 77 (mail: ana@example.com) left /var/log/x.log on 2024-05-21; see SFO and getName.",
            ["A-1093", "user_id", "77", "ana@example.com", "/var/log/x.log", "2024-05-21", "SFO", "getName"],
        ),
        ("El total: 1.320 euros, con 13 votos, y 13 más\n", ["1.320", "13"]),
        ("I am 1 of THE many, and so on.", []),
    ],
)
def test_identifiers_are_values_rather_than_language(text: str, found: list[str]) -> None:
    assert [*identifiers(text)] == found
