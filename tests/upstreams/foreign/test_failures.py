"""Providers behind litellm that refuse or are slow."""

import asyncio

import pytest

from proxy.config.settings import ForeignUpstream
from proxy.upstreams.foreign.provider import Provider
from tests.upstreams.foreign.calls import KEY, ask, error, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic
from tests.upstreams.streams import events


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "answered", "kind", "code"), [
    (429, 429, "rate_limit_error", "rate_limit_exceeded"),
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


async def test_a_provider_that_streams_for_too_long_is_a_timeout(fake: FakeAnthropic) -> None:
    fake.ending = "never"
    settings = ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url, timeout=3.0)
    upstream = Provider("claude", settings)
    await upstream._loaded()

    *_, last = await events(await send(upstream, ask(stream=True)))

    assert last["error"]["code"] == "upstream_timeout"
    await asyncio.wait_for(fake.dropped.wait(), 60)


async def test_a_request_that_litellm_cannot_translate_is_not_tried_again(
    fake: FakeAnthropic, upstream: Provider
) -> None:
    reply = await send(upstream, ask(web_search_options=5))

    assert 400 <= reply.status <= 500
    assert fake.paths == []
    assert not {"Traceback", "litellm", ".py"} & set(error(reply)["message"].split())
