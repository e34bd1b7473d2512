"""litellm itself: loaded once and late, missed by name, and silent."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import UpstreamFailed
from proxy.upstreams.foreign import library as foreign_library
from proxy.upstreams.foreign.provider import Provider
from tests.upstreams.foreign.calls import KEY, MODEL, ask, send
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic
from tests.upstreams.streams import events


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
