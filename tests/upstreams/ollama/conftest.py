"""The Ollama upstream against a fake server."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.chat import ChatRequest
from proxy.config.settings import OllamaUpstream
from proxy.context import TokenCount
from proxy.testing import chat
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.ollama import Ollama
from tests.upstreams.ollama.fake_ollama import FakeOllama, fake_ollama

KEY = "sk-client-key"
MODEL = "llama3.2"


def ollama(url: str, num_ctx: int | None = None, **settings: Any) -> Ollama:
    return Ollama("local", OllamaUpstream(kind="ollama", base_url=url, **settings), lambda model: num_ctx)


def call(request: ChatRequest | None = None, **fields: Any) -> Call:
    headers = {"authorization": f"Bearer {KEY}", "x-api-key": KEY, "cookie": "c=1", "traceparent": "00-1-2-01"}
    request = request or ask()
    return Call("/chat/completions", request.model, fields.pop("body", b""), headers, request=request, **fields)


def ask(conversation: str = "u1", **rest: Any) -> ChatRequest:
    return chat(conversation, model=MODEL, **rest)


def streamed(**rest: Any) -> ChatRequest:
    return ask(stream=True, **rest)


def counted(tokens: int, *, exact: bool = False) -> TokenCount:
    return TokenCount(system=0, tools=0, messages=tokens, exact=exact)


def deltas(chunks: list[Any]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks if chunk != "[DONE]" and chunk["choices"]]


def body(reply: Reply) -> dict[str, Any]:
    assert reply.body is not None
    answer: dict[str, Any] = json.loads(reply.body)
    return answer


@pytest.fixture
async def fake() -> AsyncIterator[FakeOllama]:
    async with fake_ollama() as server:
        yield server


@pytest.fixture
async def upstream(fake: FakeOllama) -> AsyncIterator[Ollama]:
    made = ollama(fake.url)
    yield made
    await made.aclose()
