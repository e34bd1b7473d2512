"""Provider providers that refuse, fail or break off, and clients that leave early."""

import asyncio

import pytest

from proxy.chat.errors import UpstreamFailed, UpstreamTimeout
from proxy.config.settings import ForeignUpstream
from proxy.upstreams.foreign.provider import Provider
from tests.upstreams.foreign.calls import KEY, ask, error, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic
from tests.upstreams.streams import events

# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "answered", "kind", "code"), [
    (400, 400, "invalid_request_error", None),
    (401, 401, "invalid_request_error", "invalid_api_key"),
    (403, 403, "invalid_request_error", "permission_denied"),
    (404, 404, "invalid_request_error", "model_not_found"),
    (429, 429, "rate_limit_error", "rate_limit_exceeded"),
    (500, 500, "server_error", None),
    (503, 503, "service_unavailable_error", "server_is_overloaded"),
    (529, 503, "service_unavailable_error", "server_is_overloaded"),
])  # fmt: skip
async def test_a_providers_error_keeps_its_status_and_words(
    fake: FakeAnthropic, upstream: Provider, stream: bool, status: int, answered: int, kind: str, code: str | None
) -> None:
    fake.status, fake.error = status, f"No, said the provider to {KEY}."
    fake.error_headers = {"retry-after": "7"}

    reply = await send(upstream, ask(stream=stream))

    assert (reply.status, len(fake.bodies)) == (answered, 1)
    assert error(reply) == {
        "message": "No, said the provider to ***.", "type": kind, "param": None, "code": code
    }  # fmt: skip
    assert (b"retry-after", b"7") in reply.headers


async def test_a_request_that_is_too_large_is_a_full_context(fake: FakeAnthropic, upstream: Provider) -> None:
    fake.status, fake.error = 413, "Request exceeds the maximum size"

    reply = await send(upstream, ask())

    assert (reply.status, error(reply)["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_context_is_said_in_the_words_that_clients_know(
    fake: FakeAnthropic, upstream: Provider, stream: bool
) -> None:
    fake.status, fake.error = 400, "prompt is too long: 200001 tokens > 200000 maximum"

    reply = await send(upstream, ask(stream=stream))

    told = error(reply)
    assert (reply.status, told["type"], told["code"]) == (400, "invalid_request_error", "context_length_exceeded")
    assert told["message"] == (
        "This model's maximum context length is 200000 tokens. However, your messages resulted in 200001 tokens. "
        "Please reduce the length of the messages. prompt is too long: 200001 tokens > 200000 maximum "
        "(context_length_exceeded)"
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_a_slow_provider_is_a_timeout(fake: FakeAnthropic, stream: bool) -> None:
    fake.delay, fake.ending = 30, "never"
    settings = ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url, timeout=3.0)
    upstream = Provider("claude", settings)
    await upstream._loaded()

    if stream:
        reply = await send(upstream, ask(stream=True))
        last = (await events(reply))[-1]
        assert last["error"]["code"] == "upstream_timeout"
    else:
        with pytest.raises(UpstreamTimeout):
            await send(upstream, ask())
    await asyncio.wait_for(fake.dropped.wait(), 60)


async def test_a_request_that_litellm_cannot_translate_is_not_tried_again(
    fake: FakeAnthropic, upstream: Provider
) -> None:
    reply = await send(upstream, ask(web_search_options=5))

    assert 400 <= reply.status <= 500
    assert fake.paths == []
    assert not {"Traceback", "litellm", ".py"} & set(error(reply)["message"].split())


@pytest.mark.parametrize(("ending", "code"), [("error", None), ("cut", "upstream_broke_off")])
async def test_a_stream_that_breaks_ends_with_an_error(
    fake: FakeAnthropic, upstream: Provider, ending: str, code: str | None
) -> None:
    fake.ending = ending

    reply = await send(upstream, ask(stream=True))
    *chunks, last = await events(reply)

    assert chunks
    assert not any(choice["finish_reason"] for chunk in chunks for choice in chunk["choices"])
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert (last["error"]["type"], last["error"]["code"]) == ("server_error", code)
    if ending == "error":
        assert last["error"]["message"] == "Overloaded"


async def test_a_stream_that_breaks_before_its_first_chunk_keeps_its_status(
    fake: FakeAnthropic, upstream: Provider
) -> None:
    fake.ending = "empty"

    with pytest.raises(UpstreamFailed):
        await send(upstream, ask(stream=True))


# --- leaving early ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [0, 2])
async def test_closing_a_stream_drops_the_providers_work(fake: FakeAnthropic, upstream: Provider, read: int) -> None:
    fake.ending = "never"
    reply = await send(upstream, ask(stream=True))
    assert reply.chunks is not None
    for _ in range(read):
        await anext(aiter(reply.chunks))

    await reply.chunks.aclose()

    await asyncio.wait_for(fake.dropped.wait(), 60)
