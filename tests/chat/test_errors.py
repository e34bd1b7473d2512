"""Errors, as OpenAI's SDKs expect to read them."""

import json

import pytest

from proxy.chat.errors import BadRequest, NotFound, PenstockError, Rejected, UpstreamFailed, UpstreamTimeout, error_body


@pytest.mark.parametrize(
    ("kind", "status", "type_", "code"),
    [
        (PenstockError, 500, "server_error", None),
        (BadRequest, 400, "invalid_request_error", None),
        (NotFound, 404, "invalid_request_error", "not_found"),
        (Rejected, 400, "invalid_request_error", None),
        (UpstreamFailed, 502, "server_error", "upstream_unreachable"),
        (UpstreamTimeout, 504, "server_error", "upstream_timeout"),
    ],
)
def test_each_error_has_its_status_type_and_code(
    kind: type[PenstockError], status: int, type_: str, code: str | None
) -> None:
    error = kind("what is wrong")
    assert (error.status, error.code, error.param) == (status, code, None)
    assert str(error) == error.message == "what is wrong"
    assert json.loads(error.body())["error"] == {"message": "what is wrong", "type": type_, "param": None, "code": code}


def test_what_is_given_wins() -> None:
    error = UpstreamFailed("m", param="p", code="c", status=599, headers={"retry-after": "1"})
    assert (error.status, error.code, error.param, error.headers) == (599, "c", "p", {"retry-after": "1"})
    assert json.loads(error.body())["error"] == {"message": "m", "type": "server_error", "param": "p", "code": "c"}


@pytest.mark.parametrize("text", ["caf\xe9 \u65e5\u672c", "\ud800", "\x00\x7f", 'a "quote" \\ and\nlines', "</script>"])
def test_any_text_may_be_quoted_in_an_error(text: str) -> None:
    body = error_body(text, "server_error")
    assert body.isascii()
    assert b"\n" not in body
    assert json.loads(body) == {"error": {"message": text, "type": "server_error", "param": None, "code": None}}
