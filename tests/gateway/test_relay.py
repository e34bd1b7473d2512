"""What those who observe an answer get of it."""

from proxy.gateway.relay import noted
from proxy.models.usage import UsageReader, without_usage
from tests.scripted import Chunks, answer, events

WHOLE = answer("Hello, Ana.", used=(90, 7, 64))


async def test_each_chunk_is_observed_before_the_client_gets_it_and_hidden_usage_is_read() -> None:
    seen: list[bytes] = []
    passing = noted(Chunks([b"a", b"b"]), [seen.append])
    assert (await anext(passing), seen) == (b"a", [b"a"])
    assert (await anext(passing), seen) == (b"b", [b"a", b"b"])
    reader = UsageReader()
    shown = b"".join([chunk async for chunk in without_usage(noted(Chunks(events(WHOLE)), [reader.feed]))])
    assert b"usage" not in shown
    assert (reader.of_stream().input, reader.of_stream().output, reader.of_stream().cached) == (90, 7, 64)


async def test_closing_the_pipe_closes_the_upstream() -> None:
    chunks = Chunks([b"a", b"b"])
    passing = noted(chunks, [])
    await anext(passing)
    await passing.aclose()
    assert chunks.closed
