"""Ollama servers that refuse, fail or break off, and clients that leave early."""

from typing import Any

import pytest

from proxy.chat import ChatRequest
from proxy.chat.errors import PenstockError, UpstreamFailed
from proxy.testing import profile
from proxy.upstreams.ollama import Ollama
from tests.upstreams.ollama.calls import ask, call, counted, ollama
from tests.upstreams.ollama.fake_ollama import FakeOllama

# --- errors -----------------------------------------------------------------------------------------------------------


async def fails(upstream: Ollama, request: ChatRequest | None = None, **fields: Any) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        await upstream.send(call(request, **fields))
    assert upstream.address not in caught.value.message
    assert upstream.address.removeprefix("http://") not in caught.value.message
    return caught.value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (
            400,
            "the prompt is longer than the context length currently available to the model; shorten the prompt",
            (400, "invalid_request_error", "context_length_exceeded", "messages"),
        ),
        (
            500,
            "input length (5000 tokens) exceeds the model's maximum context length (4096 tokens)",
            (400, "invalid_request_error", "context_length_exceeded", "messages"),
        ),
        (400, "llama3.2 does not support tools", (400, "invalid_request_error", "unsupported_parameter", "tools")),
        (
            400,
            '"llama3.2" does not support thinking',
            (400, "invalid_request_error", "unsupported_parameter", "reasoning_effort"),
        ),
    ],
)
async def test_refusals(
    fake: FakeOllama, upstream: Ollama, stream: bool, status: int, text: str, expected: tuple[Any, ...]
) -> None:
    fake.status, fake.error = status, text

    error = await fails(upstream, ask(stream=stream))

    assert (error.status, error.type, error.code, error.param) == expected
    assert text in error.message


async def test_an_overflow_has_the_words_that_clients_look_for(fake: FakeOllama, upstream: Ollama) -> None:
    fake.status, fake.error = 400, "the prompt is longer than the context length"

    error = await fails(upstream, profile=profile(4096), counted=counted(5000))

    assert error.message.startswith(
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens. "
        "Please reduce the length of the messages."
    )
    assert error.message.endswith("(context_length_exceeded)")


async def test_the_asked_way_to_think_is_named(fake: FakeOllama, upstream: Ollama) -> None:
    fake.status, fake.error = 400, '"m" does not support thinking'

    assert (await fails(upstream, ask(think=True))).param == "think"


async def test_addresses_are_not_told(fake: FakeOllama, upstream: Ollama) -> None:
    fake.status, fake.error = 500, 'Post "http://127.0.0.1:41234/completion": dial tcp 10.0.0.7:8080: EOF'

    assert (await fails(upstream)).message == 'Post "***": dial tcp ***: EOF'


@pytest.mark.parametrize(("status", "raw"), [(404, b"404 page not found"), (502, b"<html>"), (400, b'{"error":5}')])
async def test_errors_of_something_in_front(fake: FakeOllama, upstream: Ollama, status: int, raw: bytes) -> None:
    fake.status, fake.raw = status, raw

    error = await fails(upstream)

    assert (error.status, error.code) == (status, None)


@pytest.mark.parametrize(("status", "raw"), [(200, b"hello"), (200, b"[]"), (200, b"{}"), (302, b"")])
@pytest.mark.parametrize("stream", [False, True])
async def test_no_answer_at_all(fake: FakeOllama, upstream: Ollama, status: int, raw: bytes, stream: bool) -> None:
    fake.status, fake.raw = status, raw

    assert isinstance(await fails(upstream, ask(stream=stream)), UpstreamFailed)


async def test_a_server_that_is_down() -> None:
    upstream = ollama("http://127.0.0.1:1")

    assert await upstream.models({}) == []
    assert (await upstream.profile(profile(128_000))).window == 4096
    await upstream.aclose()


async def test_a_body_of_great_depth_is_refused(upstream: Ollama) -> None:
    deep: Any = {}
    for _ in range(50_000):
        deep = {"a": deep}
    request = ask(response_format={"type": "json_schema", "json_schema": {"schema": deep}})

    assert (await fails(upstream, request)).code == "invalid_json"
