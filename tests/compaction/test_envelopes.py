import json

import pytest

from proxy.compaction.envelopes import unwrapped

TEXT = 'It\'s a "quoted" word,\n\ta tab, a back\\\\slash, é, 漢字 and \u2003 a wide blank. ' * 5
ITEM = {"type": "text", "text": TEXT, "annotations": None}
MCP = {"content": [ITEM], "isError": False}


def printed(text: str, end: str = ", annotations=None)] isError=False") -> str:
    return f"meta=None content=[TextContent(type='text', text={text!r}{end}"


@pytest.mark.parametrize("wrapped", [
    pytest.param(json.dumps(MCP), id="JSON"),
    pytest.param(printed(TEXT), id="printed"),
    pytest.param(printed(json.dumps(MCP)), id="JSON, printed"),
    pytest.param(printed(TEXT, f", meta=None)] structuredContent={{'result': {TEXT!r}}} isError=False"), id="printed, twice"),
    pytest.param(printed(TEXT, f", meta=None)] structuredContent={{'result': {TEXT[:99]!r}"[:-1]), id="cut off there"),
    pytest.param(json.dumps({**MCP, "structuredContent": {"result": TEXT}}), id="JSON, twice"),
])  # fmt: skip
def test_an_envelope_around_one_text_comes_off(wrapped: str) -> None:
    assert unwrapped(wrapped) == TEXT
    assert unwrapped(TEXT) is TEXT


@pytest.mark.parametrize("cut", range(1, 9))
def test_of_a_printed_text_that_was_cut_off_all_is_kept_but_half_an_escape(cut: int) -> None:
    sent = unwrapped(printed(TEXT + "\\\u2003", "")[: -1 - cut])
    assert (TEXT + "\\\u2003").startswith(sent)
    assert len(sent) >= len(TEXT) - cut


@pytest.mark.parametrize("wrapped", [
    pytest.param(json.dumps({**MCP, "isError": True}), id="an error"),
    pytest.param(json.dumps({**MCP, "structuredContent": {"result": TEXT[:-1]}}), id="with another result"),
    pytest.param(json.dumps({"content": [ITEM, {"type": "text", "text": "x"}]}), id="two texts"),
    pytest.param(json.dumps({"content": [{"type": "text", "text": TEXT, "annotations": {"a": 1}}]}), id="annotated"),
    pytest.param(json.dumps({**MCP, "structuredContent": {"a": 1}}), id="with data"),
    pytest.param(json.dumps({"content": [{"type": "image", "data": TEXT}]}), id="an image"),
])  # fmt: skip
def test_an_envelope_that_says_something_stays(wrapped: str) -> None:
    assert json.loads(unwrapped(wrapped)) == json.loads(wrapped)


@pytest.mark.parametrize(
    "result", ["annotations=None)] isError=True", "meta=None)] structuredContent={'result': 'other'} isError=False"]
)
def test_a_printed_error_and_a_text_beside_other_data_stay(result: str) -> None:
    wrapped = printed(TEXT, f", {result}")
    assert unwrapped(wrapped) is wrapped


def test_data_that_are_the_text_once_more_go_with_the_envelope() -> None:
    data: dict[str, object] = {"id": 7, "names": ["a", "b"], "at": {"x": 1.5}}
    content = [{"type": "text", "text": json.dumps(data, indent=2)}]
    others = {"content": content, "structuredContent": {**data, "id": 8}}
    sent = unwrapped(json.dumps({"content": content, "structuredContent": data}))
    assert sent == json.dumps(data, separators=(",", ":"))
    assert json.loads(unwrapped(json.dumps(others))) == others


ENVELOPES = [
    pytest.param({"_meta": None, "content": [ITEM], "isError": False}, id="text"),
    pytest.param({"content": [ITEM], "isError": False, "structuredContent": {"result": TEXT}}, id="text and data"),
]


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("indent", [None, 2])
def test_of_an_envelope_that_was_cut_off_the_text_is_left(envelope: dict[str, object], indent: int | None) -> None:
    wrapped = json.dumps(envelope, indent=indent)
    begin = wrapped.index("It's")
    end = begin + len(json.dumps(TEXT)) - 2
    lengths = []
    for cut in range(begin + 1, len(wrapped)):
        sent = unwrapped(wrapped[:cut])
        assert TEXT.startswith(sent)
        assert cut < end or sent == TEXT
        lengths.append(len(sent))

    assert lengths == sorted(lengths)


def test_where_it_was_cut_off_a_note_and_an_error_stay() -> None:
    wrapped = json.dumps(MCP).partition("blank")[0] + "\n... [900 characters cut off]"
    sent = unwrapped(wrapped)
    assert sent == TEXT.partition("blank")[0] + "\n... [900 characters cut off]"
    wrapped = json.dumps({"content": [ITEM], "isError": True})[:-4]
    assert wrapped.endswith("t")
    assert '"isError":t' in unwrapped(wrapped)


def test_colours_of_a_terminal_go_and_what_they_colour_stays() -> None:
    assert unwrapped("\x1b[1;31mFAILED\x1b[0m test_a\x1b[K\n  E   assert 1\x1b[38;5;1m == 2") == (
        "FAILED test_a\n  E   assert 1 == 2"
    )
    cursor = "\x1b[2J\x1b[10;4Hmenu"
    assert unwrapped(cursor) is cursor
    only = "\x1b[0m"
    assert unwrapped(only) is only


def test_several_texts_that_are_json_are_an_array_and_others_stay() -> None:
    items = [{"type": "text", "text": json.dumps({"day": n, "value": n * 7})} for n in range(4)]
    found = unwrapped(json.dumps({"content": items, "isError": False}))
    assert found == '[{"day":0,"value":0},{"day":1,"value":7},{"day":2,"value":14},{"day":3,"value":21}]'
    plain, image = {"type": "text", "text": "plain"}, {"type": "image", "data": "aGVsbG8="}
    for other in (plain, image, {**items[0], "audience": "all"}):
        kept = {"content": [*items, other], "isError": False}
        assert json.loads(unwrapped(json.dumps(kept))) == kept


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        pytest.param("Receiving: 1%\rReceiving: 100%, done.\n", "Receiving: 100%, done.\n", id="words written again"),
        pytest.param("one\r\ntwo\r\n", "one\r\ntwo\r\n", id="line ends"),
        pytest.param("1%\r2%\r\nend", "2%\r\nend", id="line end behind"),
        pytest.param("ERROR: disk full\rinstalling b\n", "ERROR: disk full\rinstalling b\n", id="other words"),
        pytest.param("id,n\r1,2\r3,4", "id,n\r1,2\r3,4", id="only carriage returns"),
    ],
)
def test_text_loses_what_a_carriage_return_wrote_over(text: str, seen: str) -> None:
    assert unwrapped(text) == unwrapped(seen) == seen
