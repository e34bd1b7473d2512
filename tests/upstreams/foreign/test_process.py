"""litellm in a process of its own: the same answers, shared, and gone with the last upstream."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from proxy.chat.errors import BadRequest, NotFound, UpstreamFailed, UpstreamTimeout
from proxy.config.settings import ForeignUpstream
from proxy.upstreams.foreign import Foreign
from proxy.upstreams.foreign.process import LitellmProcess, SeparateForeign
from tests.upstreams.foreign.calls import KEY, ask, call, error
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic, fake_anthropic
from tests.upstreams.streams import events


class Watched(LitellmProcess):
    """The process, and its id."""

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.process.pid

    async def gone(self) -> None:
        """Wait until it has ended."""
        assert self._running is not None
        await self._running.process.wait()

    @property
    def folder(self) -> Path:
        assert self._running is not None
        return Path(self._running.folder.name)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process() -> AsyncIterator[Watched]:
    """One for all tests: loading litellm takes seconds."""
    made = Watched()
    made.share()
    yield made
    await made.leave()


@pytest_asyncio.fixture(loop_scope="module")
async def fake() -> AsyncIterator[FakeAnthropic]:
    async with fake_anthropic() as server:
        yield server


def settings_of(fake: FakeAnthropic, **more: object) -> ForeignUpstream:
    fields = {"kind": "foreign", "provider": "anthropic", "base_url": fake.url, **more}
    return ForeignUpstream.model_validate(fields)


@pytest_asyncio.fixture(loop_scope="module")
async def separate(fake: FakeAnthropic, process: Watched) -> AsyncIterator[SeparateForeign]:
    made = SeparateForeign("claude", settings_of(fake), process)
    yield made
    await made.aclose()


async def test_it_answers_as_litellm_does_here(fake: FakeAnthropic, separate: SeparateForeign) -> None:
    upstream = Foreign("claude", settings_of(fake))
    request = ask("s u1", seed=1, user="ann")
    here, there = await upstream.send(call(request)), await separate.send(call(request))

    told = [{**orjson.loads(reply.body or b""), "created": 0, "id": ""} for reply in (here, there)]
    assert told[0] == told[1]
    assert (here.status, here.headers) == (there.status, there.headers)
    assert there.facts.keys() - here.facts.keys() == {"cpu_seconds"}
    assert here.facts.items() <= there.facts.items()
    assert fake.bodies[0] == fake.bodies[1]
    assert await separate.ignored(call(request)) == await upstream.ignored(call(request)) == ("seed",)
    await upstream.aclose()


async def test_a_stream_arrives_piece_by_piece_and_ends_with_its_facts(
    fake: FakeAnthropic, separate: SeparateForeign
) -> None:
    reply = await separate.send(call(ask(stream=True, stream_options={"include_usage": True})))
    *_, last, done = await events(reply)

    assert done == "[DONE]"
    assert last["usage"]["completion_tokens"] == 7
    assert reply.facts["completion_tokens"] == 7
    assert reply.facts["cpu_seconds"]


async def test_refusals_and_failures_are_the_same_as_here(fake: FakeAnthropic, separate: SeparateForeign) -> None:
    fake.status, fake.error = 429, f"No, said the provider to {KEY}."
    reply = await separate.send(call(ask()))
    assert (reply.status, error(reply)["message"]) == (429, "No, said the provider to ***.")

    with pytest.raises(BadRequest, match="temperature"):
        await separate.send(call(ask(temperature="hot")))
    with pytest.raises(NotFound, match="does not exist"):
        await separate.send(call(ask(model="../x")))


async def test_an_unreachable_or_slow_provider_fails_as_here(fake: FakeAnthropic, process: Watched) -> None:
    gone, late = settings_of(fake, base_url="http://127.0.0.1:9"), settings_of(fake, timeout=1.0)
    first, second = SeparateForeign("gone", gone, process), SeparateForeign("late", late, process)
    fake.delay = 30

    with pytest.raises(UpstreamFailed, match=r"^Upstream 'gone' could not be reached\.$"):
        await first.send(call(ask()))
    with pytest.raises(UpstreamTimeout, match="'late'"):
        await second.send(call(ask()))
    await first.aclose()
    await second.aclose()


async def test_the_key_reaches_the_provider_and_no_one_else_can_read_it(fake: FakeAnthropic, process: Watched) -> None:
    separate = SeparateForeign("claude", settings_of(fake, api_key="sk-operator"), process)
    await separate.send(call(ask()))

    assert fake.headers[0]["x-api-key"] == "sk-operator"
    about = Path(f"/proc/{process.pid}")
    assert b"sk-operator" not in (about / "cmdline").read_bytes() + (about / "environ").read_bytes()
    assert process.folder.stat().st_mode & 0o077 == 0
    await separate.aclose()


async def test_upstreams_share_it_and_the_last_one_ends_it(fake: FakeAnthropic) -> None:
    settings, process = settings_of(fake), Watched()
    first, second = SeparateForeign("one", settings, process), SeparateForeign("two", settings, process)
    await first.send(call(ask()))
    pid, folder = process.pid, process.folder
    await second.send(call(ask()))
    assert process.pid == pid

    await first.aclose()
    await first.aclose()
    assert (await second.send(call(ask()))).status == 200
    await second.aclose()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not await asyncio.to_thread(folder.exists)


async def test_one_that_is_killed_fails_its_calls_and_the_next_call_starts_another(
    fake: FakeAnthropic, separate: SeparateForeign, process: Watched
) -> None:
    fake.ending = "never"
    stream = await separate.send(call(ask(stream=True)))
    os.kill(process.pid, 9)

    assert (await events(stream))[-1]["error"]["code"] == "upstream_broke_off"
    assert stream.facts["error"] == "upstream_broke_off"
    await process.gone()
    fake.ending = "whole"
    assert (await separate.send(call(ask()))).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_drops_the_providers_work(
    fake: FakeAnthropic, separate: SeparateForeign, stream: bool
) -> None:
    fake.delay, fake.ending = 30, "never"

    async def read() -> None:
        reply = await separate.send(call(ask(stream=stream)))
        assert reply.chunks is not None
        async for _ in reply.chunks:
            pass

    task = asyncio.create_task(read())
    await asyncio.wait_for(fake.asked.wait(), 60)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await asyncio.wait_for(fake.dropped.wait(), 60)


async def test_what_litellm_could_not_translate_is_logged_here(
    separate: SeparateForeign, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await separate.send(call(ask(stop=[5])))

    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("penstock.foreign", "a request could not be translated")
    ]
    assert caplog.records[0].__dict__["fields"]["error"]
