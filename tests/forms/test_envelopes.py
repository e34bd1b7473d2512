import json

import pytest

from proxy.forms import unwrapped

TEXT = 'It\'s a "quoted" word,\n\ta tab, a back\\\\slash, é, 漢字 and \u2003 a wide blank. ' * 5
ITEM = {"type": "text", "text": TEXT, "annotations": None}
MCP = {"content": [ITEM], "isError": False}


def printed(text: str, end: str = ", annotations=None)] isError=False") -> str:
    return f"meta=None content=[TextContent(type='text', text={text!r}{end}"


@pytest.mark.parametrize(
    "wrapped",
    [
        pytest.param(json.dumps(MCP), id="JSON"),
        pytest.param(json.dumps({"_meta": None, **MCP}, indent=2), id="JSON, indented"),
        pytest.param(printed(TEXT), id="printed"),
        pytest.param(printed(json.dumps(MCP)), id="JSON, printed"),
        pytest.param(printed(TEXT, ", annotations=None, meta=None)] structuredContent=None isError=False"), id="newer"),
    ],
)
def test_an_envelope_around_one_text_comes_off(wrapped: str) -> None:
    assert unwrapped(wrapped) == TEXT
    assert unwrapped(TEXT) is TEXT


@pytest.mark.parametrize("cut", range(1, 9))
def test_of_a_printed_text_that_was_cut_off_all_is_kept_but_half_an_escape(cut: int) -> None:
    sent = unwrapped(printed(TEXT + "\\\u2003", "")[: -1 - cut])

    assert (TEXT + "\\\u2003").startswith(sent)
    assert len(sent) >= len(TEXT) - cut


@pytest.mark.parametrize(
    "wrapped",
    [
        pytest.param(json.dumps({**MCP, "isError": True}), id="an error"),
        pytest.param(json.dumps({"content": [ITEM, {"type": "text", "text": "x"}]}), id="two texts"),
        pytest.param(
            json.dumps({"content": [{"type": "text", "text": TEXT, "annotations": {"a": 1}}]}), id="annotated"
        ),
        pytest.param(json.dumps({**MCP, "structuredContent": {"a": 1}}), id="with data"),
        pytest.param(json.dumps({"content": [{"type": "image", "data": TEXT}]}), id="an image"),
    ],
)
def test_an_envelope_that_says_something_stays(wrapped: str) -> None:
    assert json.loads(unwrapped(wrapped)) == json.loads(wrapped)


def test_a_printed_error_stays() -> None:
    wrapped = printed(TEXT, ", annotations=None)] isError=True")

    assert unwrapped(wrapped) is wrapped
