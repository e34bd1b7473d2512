"""litellm in a process of its own, reached as OpenAI is: the same answers, shared, and gone with the last upstream."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from proxy.chat import ChatRequest
from proxy.chat.errors import NotFound, PenstockError, Unanswered, UpstreamFailed, UpstreamTimeout
from proxy.config.settings import ForeignUpstream, Settings
from proxy.models.usage import UsageReader
from proxy.upstreams import foreign
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.foreign import Foreign, LitellmProcess
from proxy.upstreams.foreign.worker import Provider
from proxy.upstreams.openai import OpenAI
from proxy.upstreams.refusal import Refused
from tests.scripted import read
from tests.upstreams.foreign.conftest import KEY, ask, call, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic, fake_anthropic

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Lab:
    """A process with an upstream for each of some settings, all of which ask one fake provider."""

    def __init__(self, fake: FakeAnthropic) -> None:
        kinds: dict[str, dict[str, object]] = {
            "claude": {},
            "keyed": {"api_key": "sk-operator"},
            "gone": {"base_url": "http://127.0.0.1:9"},
            "late": {"timeout": 1.0},
            "a b/ü": {},
        }
        each = {"kind": "foreign", "provider": "anthropic", "base_url": fake.url}
        self.fake = fake
        self.settings = {name: ForeignUpstream.model_validate({**each, **more}) for name, more in kinds.items()}
        config = Settings.model_validate(
            {"upstreams": self.settings, "models": [{"match": "*", "upstream": "claude"}], "chains": {"default": ()}}
        )
        self.process = LitellmProcess(self.settings, config)
        self.upstreams = {name: Foreign(name, each, self.process) for name, each in self.settings.items()}

    @property
    def pid(self) -> int:
        assert self.process._process is not None
        return self.process._process.pid

    async def ended(self) -> None:
        assert self.process._process is not None
        await self.process._process.wait()

    async def aclose(self) -> None:
        for upstream in self.upstreams.values():
            await upstream.aclose()


@asynccontextmanager
async def running() -> AsyncIterator[Lab]:
    async with fake_anthropic() as fake:
        lab = Lab(fake)
        yield lab
        await lab.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Lab]:
    """One for all tests: loading litellm takes seconds."""
    async with running() as lab:
        yield lab


@pytest.fixture
def lab(shared: Lab) -> Lab:
    url = shared.fake.url
    vars(shared.fake).update(vars(FakeAnthropic(url=url)))
    return shared


async def test_an_answer_is_the_same_as_litellms_in_this_process(lab: Lab) -> None:
    provider = Provider("claude", lab.settings["claude"])
    request = ask("s u1", seed=1, user="ann")
    here, there = await send(provider, request), await lab.upstreams["claude"].send(call(request))

    bodies = [{**orjson.loads(reply.body or b""), "created": 0, "id": ""} for reply in (here, there)]
    assert bodies[0] == bodies[1]
    assert here.status == there.status == 200
    assert there.headers == [(b"content-type", b"application/json")]
    assert there.facts.keys() == {"cpu_seconds", "ignored"}
    assert there.facts["ignored"] == "seed"
    assert lab.fake.bodies[0] == lab.fake.bodies[1]
    assert await lab.upstreams["claude"].ignored(call(request)) == await provider.ignored(call(request)) == ("seed",)


async def test_large_headers_of_a_client_and_odd_names_of_an_upstream_do_not_matter(lab: Lab) -> None:
    asked = call(ask())
    asked = replace(asked, headers={**asked.headers, "baggage": "x" * 20_000}, query="a=b")
    for name in ("claude", "a b/ü"):
        assert (await lab.upstreams[name].send(asked)).status == 200


async def test_a_stream_ends_with_its_usage(lab: Lab) -> None:
    reply = await lab.upstreams["claude"].send(call(ask(stream=True, stream_options={"include_usage": True})))
    text = await read(reply)
    reader = UsageReader()
    reader.feed(text)

    assert text.endswith(b"data: [DONE]\n\n")
    usage = reader.of_stream()
    assert (usage.input, usage.output, usage.cached, usage.written) == (17, 7, 5, 2)
    assert b"facts" not in text
    assert reply.headers == [(b"content-type", b"text/event-stream; charset=utf-8")]
    assert reply.facts.keys() == {"cpu_seconds"}


async def refused(lab: Lab, request: ChatRequest, name: str = "claude") -> Refused:
    with pytest.raises(Refused) as raised:
        await lab.upstreams[name].send(call(request))
    return raised.value


async def test_a_stream_that_breaks_tells_its_error(lab: Lab) -> None:
    for lab.fake.ending, error in (("cut", "upstream_broke_off"), ("error", "server_error"), ("whole", None)):
        reader = UsageReader()
        reader.feed(await read(await lab.upstreams["claude"].send(call(ask(stream=True)))))
        assert reader.of_stream().error == error


async def test_a_refusal_keeps_its_status_words_and_headers(lab: Lab) -> None:
    lab.fake.error, lab.fake.error_headers = f"No, said the provider to {KEY}.", {"retry-after": "7"}
    for lab.fake.status, status in ((429, 429), (529, 503)):
        refusal = await refused(lab, ask())
        assert (refusal.status, refusal.message) == (status, "No, said the provider to ***.")
        assert refusal.headers == {"retry-after": "7"}

    unknown = await refused(lab, ask(model="../x"))
    assert (unknown.status, unknown.code) == (404, "model_not_found")
    with pytest.raises(PenstockError, match="temperature"):
        await lab.upstreams["claude"].ignored(call(ask(temperature="hot")))


async def test_an_error_of_the_process_itself_is_a_refusal(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(upstream: OpenAI, call: Call) -> Reply:
        return Reply(500, [(b"content-type", b"text/plain; charset=utf-8")], b"500 Internal Server Error")

    monkeypatch.setattr(OpenAI, "send", fails)
    error = await refused(lab, ask())
    assert (error.status, error.type, error.code) == (500, "server_error", None)


async def test_an_unreachable_or_slow_provider_raises(lab: Lab) -> None:
    lab.fake.delay = 30

    with pytest.raises(UpstreamFailed, match=r"^the upstream 'gone' could not be reached$") as gone:
        await lab.upstreams["gone"].send(call(ask()))
    assert not isinstance(gone.value, Unanswered)
    assert "x-should-retry" not in gone.value.headers
    with pytest.raises(UpstreamTimeout, match="'late'") as late:
        await lab.upstreams["late"].send(call(ask()))
    assert (late.value.status, late.value.headers["x-should-retry"]) == (504, "false")
    lab.fake.delay, lab.fake.raw = 0, b"<html>"
    with pytest.raises(Unanswered, match="no answer of this provider") as nonsense:
        await lab.upstreams["claude"].send(call(ask()))
    assert (nonsense.value.status, nonsense.value.code) == (502, "upstream_broke_off")


async def test_an_operators_key_reaches_the_provider_and_stays_secret(lab: Lab) -> None:
    await lab.upstreams["keyed"].send(call(ask()))

    assert lab.fake.headers[0]["x-api-key"] == "sk-operator"
    assert KEY not in str(lab.fake.headers)
    about = Path(f"/proc/{lab.pid}")
    assert b"sk-operator" not in (about / "cmdline").read_bytes() + (about / "environ").read_bytes()
    assert Path(lab.process.socket).parent.stat().st_mode & 0o077 == 0


async def test_a_client_that_leaves_drops_the_providers_work(lab: Lab) -> None:
    for stream in (False, True):
        lab.fake.delay, lab.fake.ending = 30, "never"
        lab.fake.asked.clear()
        lab.fake.dropped.clear()

        async def ask_and_read(stream: bool = stream) -> None:
            await read(await lab.upstreams["claude"].send(call(ask(stream=stream))))

        task = asyncio.create_task(ask_and_read())
        await asyncio.wait_for(lab.fake.asked.wait(), 60)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(lab.fake.dropped.wait(), 60)


async def test_a_request_that_litellm_cannot_translate_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    async with running() as lab:
        await refused(lab, ask(web_search_options=5))

    assert '"logger":"penstock.foreign","event":"a request could not be translated"' in capfd.readouterr().err


async def test_only_chat_completions_are_served(lab: Lab) -> None:
    with pytest.raises(NotFound):
        await lab.upstreams["claude"].send(Call("/embeddings", "x", b"{}", {}))


async def test_models_of_the_provider_are_listed(lab: Lab) -> None:
    """A glob such as `claude-*` routes them, so clients that look a model up must find it."""
    names = [model["id"] for model in await lab.upstreams["claude"].models({})]
    assert "claude-opus-4-1" in names
    assert len(names) == len(set(names))
    assert not any("/" in name or name.startswith("gpt") for name in names)


async def test_a_process_that_is_killed_fails_its_calls_and_is_started_again(lab: Lab) -> None:
    lab.fake.ending = "never"
    stream = await lab.upstreams["claude"].send(call(ask(stream=True)))
    os.kill(lab.pid, 9)

    with pytest.raises(Unanswered):
        await read(stream)
    await lab.ended()
    lab.fake.ending = "whole"
    assert (await lab.upstreams["claude"].send(call(ask()))).status == 200


async def test_a_process_that_hangs_is_ended_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(foreign, "_PING", 0.05)
    async with running() as lab:
        await refused(lab, ask(model="../x"))
        monkeypatch.setattr(foreign, "_SILENCE", 0.2)
        first = lab.pid
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(Unanswered):
            await asyncio.wait_for(lab.upstreams["claude"].send(call(ask())), 60)
        monkeypatch.setattr(foreign, "_SILENCE", 60.0)
        assert (await lab.upstreams["claude"].send(call(ask()))).status == 200
        assert lab.pid != first
    assert [record.getMessage() for record in caplog.records if record.name == "penstock.foreign"] == [
        "the process of litellm hangs and is ended"
    ]


async def test_the_last_upstream_ends_the_process() -> None:
    async with running() as lab:
        await refused(lab, ask(model="../x"))
        pid, folder = lab.pid, Path(lab.process.socket).parent
        *others, last = lab.upstreams.values()
        for upstream in [*others, *others]:
            await upstream.aclose()
        assert (await refused(lab, ask(model="../x"), last.name)).status == 404
        assert lab.pid == pid
        await last.aclose()

        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert not folder.exists()


@pytest.mark.parametrize(("provider", "name"), [("anthropic", "anthropic"), ("bedrock", "aws.bedrock")])
async def test_the_provider_has_its_name_in_telemetry(lab: Lab, provider: str, name: str) -> None:
    assert Foreign("x", ForeignUpstream(kind="foreign", provider=provider), lab.process).provider == name


class TestAProcessThatIsSlowToStart:
    """Programs in its place: how they begin, and how many there were."""

    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[asyncio.subprocess.Process]:
        made: list[asyncio.subprocess.Process] = []
        execute = asyncio.create_subprocess_exec

        async def start(*command: str, **options: Any) -> asyncio.subprocess.Process:
            made.append(await execute(*command, **options))
            return made[-1]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
        return made

    async def test_is_started_once_whoever_leaves(
        self, started: list[asyncio.subprocess.Process], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with running() as lab:
            for _ in range(3):
                asking = asyncio.create_task(lab.upstreams["claude"].send(call(ask(model="../x"))))
                while not started:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.01)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            assert (await refused(lab, ask(model="../x"))).status == 404
        assert len(started) == 1
        assert started[0].returncode is not None

    async def test_is_started_again_when_it_has_ended_though_nobody_waited_for_the_first(
        self, started: list[asyncio.subprocess.Process]
    ) -> None:
        async with running() as lab:
            asking = asyncio.create_task(lab.upstreams["claude"].send(call(ask(model="../x"))))
            while not started:
                await asyncio.sleep(0.01)
            asking.cancel()
            while lab.process._process is None:
                await asyncio.sleep(0.01)
            os.kill(lab.pid, signal.SIGKILL)
            await lab.ended()
            assert (await refused(lab, ask(model="../x"))).status == 404
        assert len(started) == 2

    async def test_ends_with_who_gave_it_up(self, started: list[asyncio.subprocess.Process]) -> None:
        async with running() as lab:
            asking = asyncio.create_task(lab.upstreams["claude"].send(call(ask())))
            while not started:
                await asyncio.sleep(0.01)
            asking.cancel()
        assert await asyncio.wait_for(started[0].wait(), 60) != 0

    async def test_that_never_does_is_an_upstream_that_is_not_there(
        self, started: list[asyncio.subprocess.Process], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(foreign, "_PROGRAM", "import time; time.sleep(600)")
        monkeypatch.setattr(foreign, "_START", 0.2)
        async with running() as lab:
            with pytest.raises(UpstreamFailed, match="could not be started"):
                await lab.upstreams["claude"].send(call(ask()))
            assert await asyncio.wait_for(started[0].wait(), 60) != 0


async def test_what_a_library_prints_does_not_hold_the_process_up(monkeypatch: pytest.MonkeyPatch) -> None:
    talkative = """
from proxy.upstreams.foreign import worker
read = worker.Worker._read
async def talks(self, request):
    print("x" * 2**20, flush=True)
    return await read(self, request)
worker.Worker._read = talks
worker.main()
"""
    monkeypatch.setattr(foreign, "_PROGRAM", talkative)
    async with running() as lab:
        assert (await asyncio.wait_for(refused(lab, ask(model="../x")), 60)).status == 404
