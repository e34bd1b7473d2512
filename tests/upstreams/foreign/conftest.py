"""The real litellm against a fake Anthropic server."""

from collections.abc import AsyncIterator

import pytest

from proxy.config.settings import ForeignUpstream
from proxy.upstreams.foreign import Foreign
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic, fake_anthropic


@pytest.fixture
async def fake() -> AsyncIterator[FakeAnthropic]:
    async with fake_anthropic() as server:
        yield server


@pytest.fixture
async def upstream(fake: FakeAnthropic) -> AsyncIterator[Foreign]:
    foreign = Foreign("claude", ForeignUpstream(kind="foreign", provider="anthropic", base_url=fake.url))
    yield foreign
    await foreign.aclose()
