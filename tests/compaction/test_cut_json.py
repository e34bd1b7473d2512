import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.compaction.cut_json import bare, cut_off
from proxy.compaction.form import rows
from proxy.text.json_values import minified

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.just('a \\ "b" 😀')
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=30,
)


@settings(max_examples=100, deadline=None)
@given(VALUES, st.sampled_from([None, 2]), st.booleans(), st.data())
def test_white_space_goes_and_nothing_else(
    value: object, indent: int | None, ascii_only: bool, data: st.DataObject
) -> None:
    text = json.dumps({"a": value}, indent=indent, ensure_ascii=ascii_only)
    part = text[: data.draw(st.integers(text.index('"') + 1, len(text) - 1))]
    short = bare(part)
    assert minified(text).startswith(short)
    assert bare(short) == short
    assert cut_off(part) is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('{"a": 1, "b": "two wo', '{"a":1,"b":"two wo"}', id="in a string"),
        pytest.param('{"a": 1, "b": "x\\u00', '{"a":1,"b":"x"}', id="in an escape"),
        pytest.param('{"a": 1, "b": "x\\', '{"a":1,"b":"x"}', id="behind a backslash"),
        pytest.param('{"a": 1, "bc', '{"a":1}', id="in a key"),
        pytest.param('{"a": 1, "b"', '{"a":1}', id="behind a key"),
        pytest.param('{"a": 1, "b": ', '{"a":1}', id="in front of a value"),
        pytest.param('{"a": 1, "b": [12', '{"a":1,"b":[12]}', id="in a number"),
        pytest.param('{"a": 1, "b": [12.', '{"a":1,"b":[]}', id="behind a point"),
        pytest.param('[{"a": tr', '[{"a":true}]', id="in a word"),
        pytest.param('[1, 2, "x", ', '[1,2,"x"]', id="behind a comma"),
        pytest.param('{"": "', '{"":""}', id="an empty key"),
    ],
)
def test_what_a_text_says_that_was_cut_off(text: str, value: str) -> None:
    found = cut_off(text)
    assert found is not None
    assert _plain(found.value) == json.loads(value)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return {key: _plain(member) for key, member in value}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return json.loads(value) if type(value) is not str and isinstance(value, str) else value


@pytest.mark.parametrize(
    "text",
    ["", "[", '{"a": 1}', "[File: /a/b.py (3 lines total)]\n1:x = {", "[2024-01-01 10:00:00] INFO {", '{"a": 1]',
     '{"a" 1, "b": [', '{"a": 1, b', '["a" "b", ', "[" * 100_000, '{"a":' * 50_000],
)  # fmt: skip
def test_other_texts_are_no_json_that_was_cut_off(text: str) -> None:
    assert cut_off(text) is None
    assert bare(text) in (text, minified(text))


@pytest.mark.parametrize(
    ("end", "rest"), [('"not', '"not'), ('"note": "wo', ""), ("1.", "1."), ('"k": 1, "half', '"half')]
)
def test_the_layout_has_all_of_a_text_that_was_cut_off(end: str, rest: str) -> None:
    whole = json.dumps([{"id": f"A-{n}", "owner": f"person {n}"} for n in range(30)])
    text = whole[:-1] + ', {"id": "A-30", ' + end
    sent = rows(text).text
    assert sent.startswith('[("id","owner"')
    assert '["A-29","person 29"' in sent
    assert sent.endswith(f"[… the text is cut off here; {rest}]" if rest else "[… the text is cut off here]")
