"""What a tool said is said in less, and nothing is lost in it, also where JSON was cut off."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.compaction.cut_json import bare, cut_off
from proxy.compaction.form import as_file, plain, rows
from proxy.text.json_values import minified

NOTE = "word " * 60
PEOPLE = [{"id": f"A-{n}", "name": f"N-{n}", "age": n, "unit": "m"} for n in range(40)]


LACKING = [{key: value for key, value in each.items() if n != 1 or key != "unit"} for n, each in enumerate(PEOPLE)]
ORDERS = [
    {
        "id": n,
        "to": {"city": f"C{n}", "zip": str(n)} if n % 3 else None,
        "items": [{"sku": f"B{n}", "qty": n}] * (n % 2),
    }
    for n in range(20)
]
NODES = {f"node-{n}": {"cpu": n, "zone": f"z{n % 3}", "state": "up"} for n in range(9)}


@pytest.mark.parametrize(("value", "first", "last"), [
    pytest.param(PEOPLE, ['[("id","name","age"; "unit":"m")', ' ["A-0","N-0",0]'], ' ["A-39","N-39",39]]', id="like records name each column once"),
    pytest.param(LACKING, ['[("id","name","age","unit")', ' ["A-0","N-0",0,"m"]', ' ["A-1","N-1",1,]'], ' ["A-39","N-39",39,"m"]]', id="a member that some lack is not shared"),
    pytest.param(ORDERS, ['[("id","to"("city","zip"),"items"[("sku","qty")])', " [0,null,[]]", ' [1,["C1","1"],[["B1",1]]]'], ' [19,["C19","19"],[["B19",19]]]]', id="records in records and lists of such have their keys in the header"),
    pytest.param(NODES, ['{("cpu","zone"; "state":"up")', ' "node-0":[0,"z0"]'], ' "node-8":[8,"z2"]}', id="records by name keep their names"),
])  # fmt: skip
def test_like_records_become_a_table(value: object, first: list[str], last: str) -> None:
    sent = rows(json.dumps(value))
    lines = sent.text.splitlines()
    assert lines[: len(first)] == first
    assert lines[-1] == last
    assert sent.tokens < 0.7 * rows("x" + json.dumps(value)).tokens
    assert sent.is_whole


def test_an_object_that_lacks_a_member_leaves_its_place_empty() -> None:
    people = [{"name": f"N-{n}", "age": n, "note": NOTE, "rank": "x"} for n in range(4)]
    del people[1]["age"]
    people[2] = dict(reversed(people[2].items()))
    lines = rows(json.dumps(people)).text.splitlines()
    assert lines[0].startswith('[("name","age"; "note":"word word')
    assert lines[1:] == [' ["N-0",0]', ' ["N-1",]', ' ["N-2",2]', ' ["N-3",3]]']


HEAD = "Exit code: 0\nOutput:\n"


@pytest.mark.parametrize(
    ("indent", "start", "end"),
    [(2, HEAD, "\n\n3 warnings, see `log.txt`\n"), (None, HEAD, ""), (2, '{"page": 1}\n[core]\n', "\n[1,\n")],
)
def test_json_between_other_lines_is_laid_out_and_they_stay(indent: int | None, start: str, end: str) -> None:
    text = start + json.dumps(PEOPLE, indent=indent) + end
    assert rows(text).text == start + rows(json.dumps(PEOPLE)).text + end


def test_records_on_lines_of_their_own_share_a_header() -> None:
    records = "\n".join(map(json.dumps, PEOPLE))
    lines = rows(f"{HEAD}{records}\nend").text.splitlines()
    assert lines[2:5] == ['("id","name","age"; "unit":"m")', ' ["A-0","N-0",0]', ' ["A-1","N-1",1]']
    assert lines[-2:] == [' ["A-39","N-39",39]', "end"]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"[section-{n}]\nname = {n}\n" for n in range(40)),
        HEAD + json.dumps(PEOPLE, indent=1)[:-400].replace('"m"', "'m'"),
        "\n".join(f'{{"n": {n}}} is what step {n} says' for n in range(40)),
        "\n".join(f'{{"kind-{n}": "{NOTE}"}}' for n in range(9)),
    ],
    ids=["sections", "broken", "more on the line", "unlike"],
)
def test_lines_that_only_look_like_json_stay(text: str) -> None:
    assert rows(text).text == text


def test_json_in_a_string_is_json_and_a_text_in_a_string_is_a_text() -> None:
    log = "\n".join(f'10:0{n} "INFO" step {n} of the batch is done' for n in range(10))
    text = rows(json.dumps({"result": json.dumps({"people": PEOPLE}), "log": log})).text
    assert '"people":[("id","name","age"; "unit":"m")\n' in text
    assert f'"log":"""\n{log}\n' in text


@pytest.mark.parametrize("most", [2, 3, 5])
def test_a_text_with_quotes_stands_between_more_of_them(most: int) -> None:
    quotes = '"' * most
    code = "\n".join(f"def f{n}():\n    {quotes}Return {n}.{quotes}\n" for n in range(40))
    fence = '"' * max(3, most + 1)
    assert f'"code":{fence}\n{code}\n {fence}' in rows(json.dumps({"code": code, "size": 40})).text


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([{"a": NOTE, "b": 1}, {"c": NOTE, "d": 2}, {"e": NOTE, "f": 3}], id="few keys in common"),
        pytest.param(PEOPLE[:2], id="two records"),
    ],
)
def test_what_is_no_table_stays_json(value: object) -> None:
    assert json.loads(rows(json.dumps(value, indent=2)).text) == value


def test_tables_and_json_between_other_lines_can_stay_json() -> None:
    text = json.dumps(PEOPLE, indent=2)
    assert plain(HEAD + text).text == HEAD + text
    assert json.loads(plain(text).text) == PEOPLE


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("same line\n" * 90, id="repeated lines"),
        pytest.param("done 10 %\rdone 90 %\n" * 9, id="carriage returns"),
        pytest.param("iVBOR0w1aB" * 900, id="a blob"),
    ],
)
def test_a_file_is_sent_byte_for_byte(text: str) -> None:
    assert as_file(text).text == text


def test_what_a_terminal_wrote_over_is_gone_and_an_encoded_blob_is_named() -> None:
    progress = "".join(f"\rreceiving objects: {n} %" for n in range(101))
    text = rows(f"cloning\n{progress}\ndone\r\nbye\n{'x ' * 60}").text
    assert text.startswith("cloning\nreceiving objects: 100 %\ndone\r\nbye\n")
    sent = rows(json.dumps({"name": "logo.png", "data": "iVBORw0KGgo1" * 400}))
    assert sent.text == '{"name":"logo.png","data":"iVBORw0KGgo1iVBORw0KGgo1[… 4776 more of an encoded blob]"}'
    assert not sent.is_whole


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a\n" + "still waiting for the lock\n" * 40 + "b", "a\nstill waiting for the lock\n[… the same 39 more times]\nb"),
        ("It is late. " * 60 + "Good night.", "It is late. [… the same 59 more times] Good night."),
        ("还在等待数据库的锁。" * 60 + "结束。", "还在等待数据库的锁。[… the same 59 more times]结束。"),
        ("a" * 100 + "\n" * 190 + "b" * 90, "a" * 100 + "\n\n" + "b" * 90),
    ],
    ids=["lines", "sentences", "sentences without blanks", "empty lines"],
)  # fmt: skip
def test_what_repeats_is_counted(text: str, sent: str) -> None:
    assert rows(text).text == sent


@pytest.mark.parametrize("text", ["x" * 5000, "ACGT" * 2000, "0123456789" * 900, "予約番号を確認しました。" * 400])
def test_a_long_word_is_no_blob(text: str) -> None:
    assert "blob" not in rows(text).text


@pytest.mark.parametrize("field", ["content", "log"])
def test_a_page_in_json_keeps_its_marks(field: str) -> None:
    inputs = "\n".join(f'<p class="c{n}" data-id="{n}"><input name="f{n}" value="v{n}"></p>' for n in range(30))
    page = f"<html><body><nav>{'<p>Menu and more</p>' * 12}</nav>\n{inputs}\n</body></html>"
    sent = rows(json.dumps({"people": PEOPLE * 20, field: page}))
    assert '"people":[("id","name","age"; "unit":"m")\n' in sent.text
    assert all(line in sent.text for line in page.split("\n"))
    assert sent.is_whole


def test_a_page_keeps_its_marks_and_lines_that_are_short_or_come_twice_stay() -> None:
    page = "<html><body>" + "<div><p>word word</p></div>\n" * 80 + "</body></html>"
    assert rows(page).text == page
    text = "\n".join(["a line that comes twice " * 4] * 2 + ["-"] * 30 + [f"{n} other" for n in range(30)])
    assert rows(text).text == text


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.just('a \\ "b" 😀')
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=4), inner, max_size=4)),
    max_leaves=30,
)


@settings(max_examples=100, deadline=None)
@given(VALUES, st.sampled_from([None, 2]), st.booleans(), st.data())
def test_white_space_goes_alone(value: object, indent: int | None, ascii_only: bool, data: st.DataObject) -> None:
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
