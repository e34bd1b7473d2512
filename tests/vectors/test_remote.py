"""A server with OpenAI's `/v1/embeddings`, a real one on the loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from proxy.config.settings import OpenAIEmbedding
from proxy.vectors.base import EmbeddingFailed
from proxy.vectors.packing import dimension
from proxy.vectors.remote import LARGEST, Remote
from tests import loopback
from tests.vectors.made import similarities

Answer = Callable[[dict[str, Any]], web.Response]


def vectors(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Nearer the first axis the more often a text has an x."""
    return [{"index": i, "embedding": [text.count("x"), 1]} for i, text in enumerate(asked["input"])]


def well(asked: dict[str, Any]) -> web.Response:
    return web.json_response({"object": "list", "data": vectors(asked)[::-1], "usage": {"prompt_tokens": 1}})


class Server:
    def __init__(self) -> None:
        self.answer: Answer = well
        self.asked: list[tuple[web.Request, dict[str, Any]]] = []
        self.free = asyncio.Event()
        """While it is not set, nothing is answered."""
        self.free.set()

    async def handle(self, request: web.Request) -> web.Response:
        assert (request.method, request.path) == ("POST", "/v1/embeddings")
        asked = await request.json()
        self.asked.append((request, asked))
        await self.free.wait()
        return self.answer(asked)


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[tuple[Server, Remote]]:
    script = Server()
    async with loopback.serving(script.handle) as url:
        remote = Remote(OpenAIEmbedding(kind="openai", model="m", base_url=f"{url}/v1/", **settings))
        yield script, remote
        await remote.aclose()


async def test_questions_and_documents_have_their_own_prompts_and_fields() -> None:
    plain = {"query_prompt": "query: ", "document_prompt": "passage: "}
    async with serving(**plain, query_fields={"input_type": "query"}, longest=100) as (server, remote):
        assert remote.has_roles
        await remote.embed(["x" * 300], query=True)
        await remote.embed(["x"])
        asked = [asked for _, asked in server.asked]
    assert asked[0] == {"model": "m", "input_type": "query", "input": ["query: " + "x" * 100]}
    assert asked[1] == {"model": "m", "input": ["passage: x"]}
    async with serving(query_prompt="a") as (_, one), serving(query_prompt="b") as (_, other):
        assert one.version != other.version


async def test_a_batch_is_one_request_and_its_vectors_come_in_the_order_of_the_texts() -> None:
    async with serving(api_key=SecretStr("sk-1"), longest=100) as (server, remote):
        await remote.load()
        one, two, three = await remote.embed(["", "x" * 300, "xé"])
        ((request, asked),) = server.asked
    async with serving() as (server, remote):
        await remote.embed(["x"])
    assert "authorization" not in server.asked[0][0].headers, "without a key none is sent"
    assert asked == {"model": "m", "input": ["", "x" * 100, "xé"]}
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.headers["accept-encoding"] == "identity"
    assert similarities(three, [one, two]) == pytest.approx([0.7071, 0.7071], abs=0.01)
    assert dimension(one) == 2


def says(data: Any, status: int = 200) -> Answer:
    return lambda asked: web.json_response(data, status=status)


def rows(*embeddings: Any, first: int = 0) -> Answer:
    return says({"data": [{"index": first + i, "embedding": row} for i, row in enumerate(embeddings)]})


@pytest.mark.parametrize(("answer", "cause"), [
    (says({"error": {"message": "no such key"}}, 401), "status_401"),
    (lambda asked: web.Response(status=302, headers={"location": "/elsewhere"}), "unreachable"),
    (lambda asked: web.Response(body=b"<html>"), "unexpected_answer"),
    (lambda asked: web.Response(body=b"[" * 100_000), "unexpected_answer"),
    (says(None), "unexpected_answer"),
    (rows([1.0]), "unexpected_answer"),
    (rows([1.0], [1.0], first=1), "unexpected_answer"),
    (rows([1.0], [1.0, 2.0]), "unexpected_answer"),
    (rows([0.0], [1.0]), "unexpected_answer"),
    (rows("AAAA", "AAAA"), "unexpected_answer"),
    (rows([None], [1.0]), "unexpected_answer"),
    (lambda asked: web.Response(body=b" " * (LARGEST * 33 + 1)), "answer_too_large"),
])  # fmt: skip
async def test_other_answers_are_failures_with_a_cause(answer: Answer, cause: str) -> None:
    async with serving() as (server, remote):
        server.answer = answer
        with pytest.raises(EmbeddingFailed) as caught:
            await remote.embed(["a secret", "another"])
    assert caught.value.cause == cause
    assert not caught.value.lasting
    assert "secret" not in str(caught.value)


async def test_a_text_that_is_refused_does_not_take_the_others_with_it() -> None:
    def choosy(asked: dict[str, Any]) -> web.Response:
        if any(len(text) > 5 for text in asked["input"]):
            return web.json_response({"error": {"message": "too long"}}, status=400)
        return well(asked)

    async with serving() as (server, remote):
        server.answer = choosy
        found = await remote.embed(["x", "far too long", "xx"])
        assert [dimension(packed) for packed in found] == [2, 0, 2]
        assert await remote.embed(["far too long"]) == [b""], "the server takes other texts"
        server.answer = says({"error": {"message": "no such model"}}, 400)
        for texts in (["x"], ["x", "xx"]):
            with pytest.raises(EmbeddingFailed, match="status_400"):
                await remote.embed(texts)


async def test_a_server_that_is_gone_or_silent_is_a_failure() -> None:
    async with serving(timeout=0.05) as (server, remote):
        server.free.clear()
        with pytest.raises(EmbeddingFailed, match="timeout"):
            await remote.embed(["x"])
        server.free.set()
    gone = Remote(OpenAIEmbedding(kind="openai", model="m", base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(EmbeddingFailed, match="unreachable"):
        await gone.embed(["x"])
    await gone.aclose()


async def test_other_servers_models_and_lengths_have_other_vectors() -> None:
    def version(**fields: Any) -> str:
        known: dict[str, Any] = {"kind": "openai", "model": "m", "base_url": "http://a/v1"}
        return Remote(OpenAIEmbedding(**(known | fields))).version

    different: list[dict[str, Any]] = [{}, {"model": "n"}, {"base_url": "http://b/v1"}, {"longest": 500}]
    assert len({version(**fields) for fields in different}) == len(different)
    assert version() == version(api_key=SecretStr("k"), batch=3, timeout=1.0)
