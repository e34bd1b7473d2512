"""Images that a request names by their addresses, for providers that take only their bytes."""

import asyncio
from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Any

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import BadRequest
from proxy.config.upstream_settings import Translated
from proxy.http.fetch import Fetcher, NotFetched

_LARGEST = 20 * 2**20
"""Bytes of an image."""
_MOST = 20
"""Images of one request that are fetched."""
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)
"""The first bytes of files that providers take, and their media types."""


class Images:
    """The fetcher of images, where the operator has named hosts for that."""

    def __init__(self, settings: Translated, schemes: Collection[str]) -> None:
        """`schemes` are those that the provider does not read itself."""
        hosts = settings.fetch_images_from
        self._fetcher = Fetcher(hosts, _LARGEST) if hosts else None
        self._schemes = tuple(f"{scheme}:" for scheme in schemes)

    async def inlined(self, request: ChatRequest) -> ChatRequest:
        """Return the request with `data:` URLs in place of the addresses. Raise `BadRequest` where one is refused."""
        if self._fetcher is None:
            return request
        places = [
            (index, at, url)
            for index, message in enumerate(request.messages)
            for at, part in enumerate(message.parts)
            if (url := _address(part)) and url.lower().startswith(self._schemes)
        ]
        if len(places) > _MOST:
            raise BadRequest(
                f"more than {_MOST} images are named by their addresses; send fewer, or data: URLs",
                code="array_above_max_length",
            )
        if not places:
            return request
        urls = list({url for _, _, url in places})
        where = {url: f"messages[{index}].content[{at}].image_url.url" for index, at, url in reversed(places)}
        fetched = await asyncio.gather(*(self._fetch(self._fetcher, url, where[url]) for url in urls))
        data = dict(zip(urls, fetched, strict=True))
        changed = {index for index, _, _ in places}
        made = [_inlined(m, data) if index in changed else m for index, m in enumerate(request.messages)]
        return request.with_messages(made)

    async def _fetch(self, fetcher: Fetcher, url: str, place: str) -> str:
        try:
            content = await fetcher.fetch(url)
        except NotFetched as error:
            raise BadRequest(
                f"the image could not be fetched: {error}", param=place, code="image_not_fetched"
            ) from None
        kind = next((kind for begin, kind in _KINDS if content.startswith(begin)), None)
        if kind is None:
            told = "the image could not be fetched: not a PNG, JPEG, GIF or WebP; convert it"
            raise BadRequest(told, param=place, code="image_not_fetched")
        return f"data:{kind};base64,{b64encode(content).decode()}"

    async def aclose(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.aclose()


def _address(part: Mapping[str, Any]) -> str | None:
    image = part.get("image_url") if part.get("type") == "image_url" else None
    url = image.get("url") if isinstance(image, Mapping) else image
    return url if isinstance(url, str) else None


def _inlined(message: Message, data: Mapping[str, str]) -> Message:
    parts: list[Mapping[str, Any]] = []
    for part in message.parts:
        url = _address(part)
        if url is not None and url in data:
            image = part["image_url"]
            given = dict(image) if isinstance(image, Mapping) else {}
            part = {**part, "image_url": {**given, "url": data[url]}}
        parts.append(part)
    return message.with_changes(content=parts)
