"""Which headers travel on, in both directions."""

import pytest

from proxy.http.headers import forwarded, relayed, request_id, without_credentials


@pytest.mark.parametrize("name", [
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade", "host", "content-length", "content-encoding", "cookie", "expect", "baggage",
    "forwarded", "via", "x-request-id", "x-real-ip", "x-penstock-chain", "x-penstock-bypass", "x-penstock-anything",
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-anything",
])  # fmt: skip
def test_some_headers_are_not_forwarded(name: str) -> None:
    assert forwarded({name: "value", "x-other": "1"}) == {"x-other": "1", "accept-encoding": "identity"}


@pytest.mark.parametrize("name", [
    "authorization", "x-api-key", "api-key", "content-type", "accept", "user-agent", "openai-organization",
    "openai-project", "openai-beta", "anthropic-version", "traceparent", "tracestate", "idempotency-key",
    "x-stainless-retry-count", "x-team", "x-penstocking", "cookies", "some-header-of-tomorrow",
])  # fmt: skip
def test_other_headers_are_forwarded(name: str) -> None:
    assert forwarded({name: "a, B; c=1"}) == {name: "a, B; c=1", "accept-encoding": "identity"}


@pytest.mark.parametrize(("named", "kept"), [
    ({"connection": "keep-alive"}, "x-a x-b"),
    ({"connection": "Close"}, "x-a x-b"),
    ({"connection": "x-a"}, "x-b"),
    ({"connection": "keep-alive, X-A , x-b"}, ""),
    ({"connection": ""}, "x-a x-b"),
    ({"connection": "accept-encoding"}, "x-a x-b"),
    ({"accept-encoding": "gzip, deflate, br"}, "x-a x-b"),
    ({"accept-encoding": "*"}, "x-a x-b"),
])  # fmt: skip
def test_headers_named_by_connection_stay_and_answers_are_wanted_plain(named: dict[str, str], kept: str) -> None:
    sent = {**named, "x-a": "1", "x-b": "1"}
    assert forwarded(sent) == {**dict.fromkeys(kept.split(), "1"), "accept-encoding": "identity"}
    assert sent == {**named, "x-a": "1", "x-b": "1"}, "the client's own stay as they are"


def test_policies_do_not_see_credentials() -> None:
    sent = {
        "authorization": "Bearer k", "x-api-key": "k", "api-key": "k", "cookie": "k", "proxy-authorization": "k",
        "x-team": "search", "content-type": "application/json",
    }  # fmt: skip

    assert without_credentials(sent) == {"x-team": "search", "content-type": "application/json"}


def test_an_answer_keeps_its_headers_in_order_and_a_stream_says_once_that_it_must_not_be_buffered() -> None:
    headers = [(b"content-type", b"application/json"), (b"x-ratelimit", b"1"), (b"link", b"a"), (b"link", b"b")]

    assert relayed(headers, stream=False) == headers
    assert relayed([(b"x-request-id", b"req_up")], stream=False) == [(b"x-upstream-request-id", b"req_up")]
    upstream = [(b"cache-control", b"max-age=60"), (b"x-accel-buffering", b"yes"), (b"x-a", b"1")]

    assert relayed(upstream, stream=True) == [
        (b"x-a", b"1"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"),
    ]  # fmt: skip
    assert relayed(upstream, stream=False) == upstream


@pytest.mark.parametrize("sent", [None, "", "x" * 129, "a b", "abc\n", 'a"b', "a{b}", "caf\xe9", "\u0661\u0662", "a/b"])
def test_an_unsafe_request_id_is_replaced(sent: str | None) -> None:
    made = request_id(sent)

    assert made.startswith("req_")
    assert request_id(made) == made


def test_a_safe_request_id_is_kept_and_new_ones_differ() -> None:
    for sent in ("a", "req_0123", "A-b.c:d_9", "x" * 128):
        assert request_id(sent) == sent
    assert len({request_id(None) for _ in range(1000)}) == 1000
