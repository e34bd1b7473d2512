"""What comes back from litellm, and litellm itself: loaded once and late, missed by name, and silent."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import UpstreamFailed
from proxy.config.settings import ForeignUpstream
from proxy.upstreams.completion import Completion, spent
from proxy.upstreams.foreign import library as foreign_library
from proxy.upstreams.foreign.worker import ForeignAnswer, Provider
from tests.upstreams.foreign.conftest import KEY, MODEL, ask, call, error, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic
from tests.upstreams.streams import events


async def test_a_model_may_repeat_itself(fake: FakeAnthropic, upstream: Provider) -> None:
    fake.content = [{"type": "text", "text": "........"}] * 100

    *chunks, done = await events(await send(upstream, ask(stream=True)))

    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "." * 800


async def said(*choices: dict[str, Any], stream: bool = True) -> list[Any]:
    """Return the choices that a client gets for those of litellm's chunks."""
    completion = Completion(call(ask(stream=stream)), {})
    answer = ForeignAnswer(completion)

    async def deltas() -> AsyncGenerator[dict[str, Any], None]:
        for choice in choices:
            for delta in answer.deltas({"id": "x", "created": 1, "model": "m", "choices": [choice]}):
                yield delta

    reply = await completion.reply(deltas())
    chunks = (await events(reply))[:-1] if stream else [json.loads(reply.body or b"")]
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks} == {("x", 1, "m")}
    return [choice for chunk in chunks for choice in chunk["choices"]]


async def test_calls_that_share_an_index_are_told_apart_by_id() -> None:
    def piece(**fields: Any) -> dict[str, Any]:
        return {"index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}

    both, more = [piece(id="a"), piece(id="b")], [piece(id="b")]
    rest = [piece(id="c")], [piece(id=None, index=5)]
    _, *parts = await said(*({"index": 0, "delta": {"tool_calls": calls}} for calls in (both, more, *rest)))
    first, second, third, last = (part["delta"]["tool_calls"] for part in parts)

    assert [part["index"] for part in first] == [0, 1]
    assert second == [{"index": 1, "function": {"arguments": "{}"}}]
    assert third[0]["index"] == 2
    assert last[0]["id"].startswith("call_")


async def test_images_reach_the_client() -> None:
    """As a Gemini model that makes images answers through litellm."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}, "index": 0}
    message = {"content": None, "images": [image]}

    assert (await said({"index": 0, "delta": message}))[-1]["delta"]["images"] == [image]
    assert (await said({"message": message}, stream=False))[0]["message"]["images"] == [image]


@pytest.mark.parametrize("stream", [False, True])
async def test_each_of_several_answers_has_its_text_and_its_end(stream: bool) -> None:
    name = "delta" if stream else "message"
    parts = [{"index": n, name: {"content": text}, "finish_reason": "stop"} for n, text in enumerate(("one", "two"))]
    choices = await said(*parts, stream=stream)

    ends = [choice for choice in choices if choice["finish_reason"]]
    assert [(end["index"], end[name]["content"]) for end in ends] == [(0, "one"), (1, "two")]
    assert [choice["index"] for choice in choices] == ([0, 0, 1, 1] if stream else [0, 1])


def test_usage_has_the_tokens_written_to_the_cache() -> None:
    details = {"cached_tokens": 3, "cache_creation_tokens": 4}
    used = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": details}
    assert spent(used)["prompt_tokens_details"] == {"cached_tokens": 3, "cache_write_tokens": 4}


async def test_a_provider_that_streams_for_too_long_is_a_timeout(fake: FakeAnthropic) -> None:
    fake.ending = "never"
    settings = ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url, timeout=3.0)
    upstream = Provider("claude", settings)
    await upstream._loaded()

    *_, last = await events(await send(upstream, ask(stream=True)))

    assert last["error"]["code"] == "upstream_timeout"
    await asyncio.wait_for(fake.dropped.wait(), 60)


async def test_an_untranslated_request_is_not_tried_again(fake: FakeAnthropic, upstream: Provider) -> None:
    reply = await send(upstream, ask(web_search_options=5))

    assert 400 <= reply.status <= 500
    assert fake.paths == []
    assert not {"Traceback", "litellm", ".py"} & set(error(reply)["message"].split())


async def test_a_missing_litellm_is_named(upstream: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("proxy.upstreams.foreign.library.importlib.import_module", missing)

    with pytest.raises(UpstreamFailed, match=r"^upstream 'claude' needs litellm: pip install 'penstock\[foreign\]'$"):
        await send(upstream, ask())


async def test_first_requests_share_an_import_off_the_loop(upstream: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, beaten = 0, threading.Event()
    real = foreign_library.load

    def slow() -> Any:
        nonlocal loads
        loads += 1
        assert beaten.wait(60)
        return real()

    monkeypatch.setattr("proxy.upstreams.foreign.worker.load", slow)

    async def heart() -> None:
        while not loads:
            await asyncio.sleep(0.001)
        for _ in range(10):
            await asyncio.sleep(0.001)
        beaten.set()

    *replies, _ = await asyncio.gather(*(send(upstream, ask()) for _ in range(5)), heart())

    assert [reply.status for reply in replies if reply is not None] == [200] * 5
    assert loads == 1


async def test_importing_litellm_leaves_tiktokens_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/somewhere/else")
    sys.modules.pop("litellm.litellm_core_utils.default_encoding", None)

    foreign_library.load()

    assert os.environ["TIKTOKEN_CACHE_DIR"] == "/somewhere/else"


async def test_nothing_is_logged_or_printed(
    fake: FakeAnthropic, upstream: Provider, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "a-prompt-that-nobody-may-log"
    request = ChatRequest(MODEL, (Message({"role": "user", "content": secret}),))
    with caplog.at_level(logging.DEBUG):
        await send(upstream, request)
        await events(await send(upstream, request.with_field("stream", True)))
        fake.status = 500
        await send(upstream, request)
        await asyncio.sleep(0.1)

    printed = capfd.readouterr()
    assert secret not in caplog.text + printed.out + printed.err
    assert KEY not in caplog.text + printed.out + printed.err


def test_litellm_is_not_imported_before_it_is_needed() -> None:
    program = "import sys, proxy.upstreams.foreign.worker; sys.exit('litellm' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
