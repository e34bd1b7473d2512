"""The real litellm against a fake Anthropic server."""

import inspect
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.chat import ChatRequest
from proxy.config.settings import ForeignUpstream
from proxy.testing import chat
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.foreign.worker import Provider
from proxy.upstreams.refusal import Refused
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic, fake_anthropic

KEY = "sk-ant-client-key"
MODEL = "claude-sonnet-4-5"


def call(request: ChatRequest, key: str | None = KEY) -> Call:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return Call("/chat/completions", request.model, request.encode(), headers, request=request)


async def send(provider: Provider, request: ChatRequest, key: str | None = KEY) -> Reply:
    """Ask a provider. Return a refusal as its process does."""
    try:
        return await provider.send(call(request, key))
    except Refused as error:
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        return Reply(error.status, headers, error.body())


def ask(conversation: str = "u1", **rest: Any) -> ChatRequest:
    return chat(conversation, model=rest.pop("model", MODEL), **rest)


def error(reply: Reply) -> dict[str, Any]:
    assert reply.body is not None
    body = json.loads(reply.body)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return dict(body["error"])


@pytest.fixture
async def fake() -> AsyncIterator[FakeAnthropic]:
    async with fake_anthropic() as server:
        yield server


@pytest.fixture
async def upstream(fake: FakeAnthropic) -> Provider:
    return Provider("claude", ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url))


@pytest.fixture(autouse=True)
async def litellms_connections() -> AsyncIterator[None]:
    """Close them after each test: they belong to its event loop."""
    yield
    await close_litellm()


async def close_litellm() -> None:
    """Close the connections of litellm in this process."""
    library: Any = sys.modules.get("litellm")
    if library is not None:
        await library.close_litellm_async_clients()
        for client in list(library.in_memory_llm_clients_cache.cache_dict.values()):
            if inspect.iscoroutinefunction(close := getattr(client, "close", None)):
                await close()
        library.in_memory_llm_clients_cache.flush_cache()
        vars(library).pop("module_level_aclient", None)
