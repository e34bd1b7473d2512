"""The Ollama upstream against a fake server."""

from collections.abc import AsyncIterator

import pytest

from proxy.upstreams.ollama import Ollama
from tests.upstreams.ollama.calls import ollama
from tests.upstreams.ollama.fake_ollama import FakeOllama, fake_ollama


@pytest.fixture
async def fake() -> AsyncIterator[FakeOllama]:
    async with fake_ollama() as server:
        yield server


@pytest.fixture
async def upstream(fake: FakeOllama) -> AsyncIterator[Ollama]:
    made = ollama(fake.url)
    yield made
    await made.aclose()
