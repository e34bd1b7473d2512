"""Images that a request names by their addresses, for providers that take only their bytes."""

import asyncio
from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Any

from yarl import URL

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import BadRequest, UpstreamFailed
from proxy.config.settings import Translated
from proxy.http.client import Timeouts, Transport

_TIMEOUTS = Timeouts(connect=5.0, idle=5.0)
_DEADLINE = 20.0
"""Seconds for all of a request."""
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
    """A client that fetches images from hosts that the operator has named, and from nowhere else."""

    def __init__(self, settings: Translated, schemes: Collection[str]) -> None:
        """`schemes` are those that the provider does not read itself."""
        self._hosts = frozenset(host.lower() for host in settings.fetch_images_from)
        self._transport = Transport("images", _TIMEOUTS, largest=_LARGEST)
        self._schemes = tuple(f"{scheme}:" for scheme in schemes)

    async def inlined(self, request: ChatRequest) -> ChatRequest:
        """Return the request with `data:` URLs in place of the addresses. Raise `BadRequest` where one is refused."""
        if not self._hosts:
            return request
        places: dict[str, str] = {}
        for index, message in enumerate(request.messages):
            for at, part in enumerate(message.parts):
                if (url := _address(part)) and url.lower().startswith(self._schemes):
                    places.setdefault(url, f"messages[{index}].content[{at}].image_url.url")
        if len(places) > _MOST:
            told = f"more than {_MOST} images are named by their addresses; send fewer, or data: URLs"
            raise BadRequest(told, code="array_above_max_length")
        if not places:
            return request
        data = dict(zip(places, await asyncio.gather(*(self._data(*each) for each in places.items())), strict=True))
        return request.with_messages([_inlined(message, data) for message in request.messages])

    async def _data(self, url: str, place: str) -> str:
        try:
            async with asyncio.timeout(_DEADLINE):
                return await self._fetch(URL(url))
        except (TimeoutError, ValueError, UpstreamFailed) as error:
            # no details of the operator's network
            why = str(error) if isinstance(error, ValueError) else "its server did not answer, or it is too large"
            told = f"the image could not be fetched: {why}"
            raise BadRequest(told, param=place, code="image_not_fetched") from None

    async def _fetch(self, url: URL) -> str:
        """Raise `ValueError` if an image may not be fetched, or is none, and `UpstreamFailed`."""
        host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
        named = host if url.is_default_port() else f"{host}:{url.port}"
        if url.user is not None or named.lower() not in self._hosts:
            raise ValueError("its host is not one that images are fetched from")
        response = await self._transport.request("GET", url, {})
        if response.status != 200:
            response.close()
            raise ValueError(f"its server answered with {response.status}")
        content = await response.read()
        kind = next((kind for begin, kind in _KINDS if content.startswith(begin)), None)
        if kind is None:
            raise ValueError("not a PNG, JPEG, GIF or WebP; convert it")
        return f"data:{kind};base64,{b64encode(content).decode()}"

    async def aclose(self) -> None:
        await self._transport.aclose()


def _address(part: Mapping[str, Any]) -> str | None:
    image = part.get("image_url") if part.get("type") == "image_url" else None
    url = image.get("url") if isinstance(image, Mapping) else image
    return url if isinstance(url, str) else None


def _inlined(message: Message, data: Mapping[str, str]) -> Message:
    if data.keys().isdisjoint(map(_address, message.parts)):
        return message
    parts = [*message.parts]
    for place, part in enumerate(parts):
        if url := data.get(_address(part) or ""):
            image = part["image_url"] if isinstance(part["image_url"], Mapping) else {}
            parts[place] = {**part, "image_url": {**image, "url": url}}
    return message.with_changes(content=parts)
