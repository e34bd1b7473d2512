"""What comes back from litellm, and litellm itself: loaded once and late, missed by name, and silent."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import UpstreamFailed
from proxy.config.settings import ForeignUpstream
from proxy.upstreams.foreign import library as foreign_library
from proxy.upstreams.foreign.provider import ForeignStream, Provider, spent, whole
from tests.upstreams.foreign.calls import KEY, MODEL, ask, error, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic
from tests.upstreams.streams import events


async def test_a_model_may_repeat_itself(fake: FakeAnthropic, upstream: Provider) -> None:
    fake.content = [{"type": "text", "text": "........"}] * 100

    *chunks, done = await events(await send(upstream, ask(stream=True)))

    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "." * 800


def test_calls_that_share_an_index_are_told_apart_by_id() -> None:
    chunks = ForeignStream(show_usage=False)
    head = {"id": "x", "created": 1, "model": "m"}

    def said(*calls: dict[str, Any]) -> list[Any]:
        choice = {"index": 0, "delta": {"tool_calls": list(calls)}}
        (event,) = chunks.events({**head, "choices": [choice]})
        return list(json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["tool_calls"])

    def piece(**fields: Any) -> dict[str, Any]:
        return {"index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}

    assert [part["index"] for part in said(piece(id="a"), piece(id="b"))] == [0, 1]
    assert said(piece(id="b")) == [{"index": 1, "function": {"arguments": "{}"}}]
    assert said(piece(id="c"))[0]["index"] == 2
    assert said(piece(id=None, index=5))[0]["id"].startswith("call_")


def test_images_reach_the_client() -> None:
    """As a Gemini model that makes images answers through litellm."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}, "index": 0}
    said, head = {"content": None, "images": [image]}, {"id": "x", "created": 1, "model": "m"}
    (event,) = ForeignStream(show_usage=False).events({**head, "choices": [{"index": 0, "delta": said}]})

    assert json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["images"] == [image]
    assert whole({**head, "choices": [{"message": said}]})["choices"][0]["message"]["images"] == [image]


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


async def test_a_request_that_litellm_cannot_translate_is_not_tried_again(
    fake: FakeAnthropic, upstream: Provider
) -> None:
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


async def test_the_first_requests_share_one_import_that_leaves_the_loop_free(
    upstream: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, beaten = 0, threading.Event()
    real = foreign_library.load

    def slow() -> Any:
        nonlocal loads
        loads += 1
        assert beaten.wait(60)
        return real()

    monkeypatch.setattr("proxy.upstreams.foreign.provider.load", slow)

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
