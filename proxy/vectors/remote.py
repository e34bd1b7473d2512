"""A server with OpenAI's `/v1/embeddings`."""

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import orjson
from yarl import URL

from proxy.chat.errors import UpstreamFailed
from proxy.config.settings import OpenAIEmbedding
from proxy.http.client import Timeouts, Transport
from proxy.vectors.base import Backend, EmbeddingFailed
from proxy.vectors.packing import pack

LARGEST = 2**20
"""Bytes that an answer may have for each text of a batch, and once more: 16,000 numbers take 350 kB."""

_REFUSED = {400, 413, 422}
"""The statuses of servers that one of the texts does not suit: too long for the model, mostly."""
_PROBE = "text"
"""A server that refuses this too refuses all."""


class Remote(Backend):
    """Asks a server, a batch at a time."""

    characters = 200_000

    def __init__(self, settings: OpenAIEmbedding) -> None:
        self._settings = settings
        self.name = settings.model
        self.batch = settings.batch
        self._roles = (
            (settings.document_prompt, settings.document_fields),
            (settings.query_prompt, settings.query_fields),
        )
        self.has_roles = self._roles[0] != self._roles[1]
        asked = f"{settings.base_url}\0{settings.longest}" + (f"\0{self._roles}" if self.has_roles else "")
        where = blake2b(asked.encode(), digest_size=8).hexdigest()
        self.version = f"{settings.model}-{where}"
        self._url = URL(f"{settings.base_url}/embeddings")
        self._headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if settings.api_key is not None:
            self._headers["authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        self._transport = Transport(
            "embedding", Timeouts(settings.timeout, settings.timeout), largest=LARGEST * (settings.batch + 1)
        )

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        """Return one vector for each text; none for a text that the server refuses while it takes others."""
        status, body = await self._ask(texts, query)
        if status not in _REFUSED:
            return await self._read(status, body, len(texts))
        if len(texts) > 1:
            return [vector for text in texts for vector in await self.embed([text], query=query)]
        await self._read(*await self._ask([_PROBE], query), wanted=1)
        return [b""]

    async def aclose(self) -> None:
        await self._transport.aclose()
        await super().aclose()

    async def _ask(self, texts: Sequence[str], query: bool) -> tuple[int, bytes]:
        prompt, fields = self._roles[query]
        given = [prompt + text[: self._settings.longest] for text in texts]
        request = {"model": self._settings.model, **fields, "input": given}
        try:
            async with asyncio.timeout(self._settings.timeout):
                response = await self._transport.request("POST", self._url, self._headers, orjson.dumps(request))
                return response.status, await response.read()
        except TimeoutError:
            raise EmbeddingFailed("timeout") from None
        except UpstreamFailed as error:
            is_late, is_large = error.status == 504, error.code == "upstream_answer_too_large"
            raise EmbeddingFailed("timeout" if is_late else "answer_too_large" if is_large else "unreachable") from None

    async def _read(self, status: int, body: bytes, wanted: int) -> list[bytes]:
        if status != 200:
            raise EmbeddingFailed(f"status_{status}")
        try:
            return await self.in_thread(_vectors, body, wanted)
        except (ValueError, KeyError, TypeError):  # orjson's own error is a ValueError
            raise EmbeddingFailed("unexpected_answer") from None


def _vectors(body: bytes, wanted: int) -> list[bytes]:
    """Return the vectors of an answer, in the order of the texts. Raises `ValueError`, `KeyError` or `TypeError`."""
    items: list[Any] = sorted(orjson.loads(body)["data"], key=lambda item: item["index"])
    if [item["index"] for item in items] != list(range(wanted)):
        raise ValueError("one vector for each text")
    rows = [item["embedding"] for item in items]
    if len({len(row) for row in rows}) != 1:
        raise ValueError("all vectors have one dimension")
    return [pack([row]) for row in rows]
