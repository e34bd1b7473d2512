"""OpenAI's answer, made here."""

from typing import Any

import pytest

from proxy.upstreams.completion import wants_usage


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        pytest.param({"stream_options": {"include_usage": True}}, True, id="asked for"),
        pytest.param({"stream_options": {"include_usage": False}}, False, id="declined"),
        pytest.param({"stream_options": {"include_usage": "true"}}, False, id="a word for true"),
        pytest.param({"stream_options": {}}, False, id="not said"),
        pytest.param({"stream_options": None}, False, id="null"),
        pytest.param({"stream_options": ["include_usage"]}, False, id="a list"),
        pytest.param({"include_usage": True}, False, id="in the wrong place"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_whether_a_client_wants_usage(fields: dict[str, Any], wanted: bool) -> None:
    assert wants_usage(fields) is wanted
