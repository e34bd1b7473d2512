"""The real litellm against a fake Anthropic server."""

import inspect
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.config.settings import ForeignUpstream
from proxy.upstreams.foreign.provider import Provider
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic, fake_anthropic


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
