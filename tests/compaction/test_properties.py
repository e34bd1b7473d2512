"""What every form owes, whatever the text."""

import json
import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat.markers import is_shortened, shortened
from proxy.compaction import compact, unwrapped
from proxy.compaction.envelopes import unescaped
from proxy.compaction.identifiers import gathered, identifiers

GAP = re.compile(r"\[… [^\]\n]*\]")

VOCABULARY = r"""
    the report says that nothing else was found in New Hamilton order_id A-1093 12.50 2024-05-21 /var/log/app.log error:
    failed user@example.com HAT021 https://example.com/a?b=1 caféteria def return { } <p> </p> | , \n \u00e9 &amp;
    INFO 10:15:00 + - @@ 漢字 getName #12 "quoted" 'single'
    """
WORDS = st.sampled_from([*VOCABULARY.split(), "\x1b[31m"])
LINES = st.lists(WORDS, max_size=14).map(" ".join)
TEXTS = st.lists(LINES, min_size=1, max_size=60).map("\n".join)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), LINES)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=30), st.dictionaries(st.text(max_size=6), inner, max_size=6)),
    max_leaves=60,
)


def values(text: str) -> set[str]:
    return {value for value, _ in identifiers(GAP.sub(" ", text))}


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_a_form_is_shorter_is_the_same_always_and_invents_no_value(text: str) -> None:
    form = compact(text)

    assert form == compact(text)
    if form is not None:
        assert len(form.text) < len(text)
        plain = unescaped(text)
        haystack = text + unescape(text) + plain + unescape(plain)
        assert not [value for value in values(form.text) if value not in haystack]


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_the_form_of_json_invents_no_value(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    form = compact(text)
    if form is not None:
        haystack = text + unescape(text) + unescaped(text) + unescape(unescaped(text))
        assert not [value for value in values(form.text) if value not in haystack]


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
    "digits": "1" * 100_000,
    "open brackets": "[" * 100_000,
    "open objects": '{"a":' * 20_000,
    "open tags": "<script " * 12_500,
    "open comments": "<!--" * 25_000,
    "backslashes": "\\" * 100_000,
    "quotes": '"' * 100_000,
    "a cut literal": "content=[TextContent(type='text', text='" + "\\'" * 50_000,
    "many members": "content=[TextContent(type='text', text='a'" + ", a=None" * 12_500,
    "rules of tables": "|---|\n" * 16_000,
    "indentation": (" " * 500 + "x\n") * 200,
    "dotted": "a." * 50_000,
    "lone surrogates": "\ud800" * 100_000,
    "a huge number": "[" + "9" * 100_000 + "]",
    "empty lines": "\n" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_a_text_like_any_other(text: str) -> None:
    sent = unwrapped(text)
    form = compact(sent)

    assert form is None or len(form.text) < len(sent)


def test_numbers_keep_their_spelling() -> None:
    text = '{ "a": 1.0, "b": 1e5, "c": 12345678901234567890123, "d": -0.10, "e": "1 000" }'

    assert unwrapped(text) == '{"a":1.0,"b":1e5,"c":12345678901234567890123,"d":-0.10,"e":"1 000"}'


def test_members_that_repeat_a_key_stay() -> None:
    form = compact('{"id": 1, "id": 2, "note": "' + "word " * 200 + '"}')

    assert form is not None
    assert form.text.startswith('{"id":1,"id":2,')


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(json.dumps([{"id": n, "note": "word " * 30} for n in range(9)]), "json", id="json"),
        pytest.param("a,b,c\n" + "".join(f"{n},{n * 7},{'word ' * 50}\n" for n in range(400)), "table", id="csv"),
        pytest.param("| a | b |\n|---|---|\n" + f"| 1 | {'word ' * 60}|\n" * 9, "table", id="markdown table"),
        pytest.param("2024-01-01 10:00:00 INFO still waiting\n" * 200, "log", id="log"),
        pytest.param("diff --git a/x b/x\n+++ b/x\n@@ -1 +1 @@\n" + " same\n" * 80 + "-a\n+b\n", "diff", id="diff"),
        pytest.param("".join(f"src/pkg/file{n}.py:{n}: found it\n" for n in range(900)), "listing", id="search hits"),
        pytest.param("<html><body>" + "<div><p>word word</p></div>" * 80, "html", id="page"),
        pytest.param("import os\n\n\ndef run(a):\n" + "    total = total + a\n" * 90, "source", id="program"),
        pytest.param("It was a long day and nobody knew. " * 80, "text", id="prose"),
    ],
)
def test_a_kind_of_text_is_recognised(text: str, kind: str) -> None:
    form = compact(text)

    assert form is not None
    assert form.kind == kind
    assert len(form.text) < len(text) / 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(
            "Order A-1093 of user_id 77 (mail: ana@example.com) left /var/log/x.log on 2024-05-21; see SFO and getName.",
            "Order A-1093, user_id, user_id 77, ana@example.com /var/log/x.log, on 2024-05-21, SFO getName",
            id="the word in front",
        ),
        pytest.param("El total: 1.320 euros, con 13 votos\n12 40 77\n", "total 1.320 euros, con 13 votos", id="a unit"),
        pytest.param('{"id": "K-1", "zeit"="10:30"}', "id K-1, zeit 10:30", id="keys"),
        pytest.param("1, 22, 333\n10:30 2024-05-21\n", "", id="numbers alone tell nothing"),
        pytest.param("req_1 req_2 took 30 ms", "req_1 req_2, took 30 ms", id="names stand for themselves"),
    ],
)
def test_values_stand_with_what_says_what_they_are(text: str, found: str) -> None:
    assert gathered(text, 500) == found
