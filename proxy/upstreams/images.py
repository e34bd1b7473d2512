"""Images that a request names by their addresses, for providers that take only their bytes."""

import asyncio
import ipaddress
import socket
from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Any

from yarl import URL

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import BadRequest, UpstreamFailed
from proxy.config.upstream_settings import Translated
from proxy.http.client import Timeouts, Transport

PUBLIC = "public"
"""Entry in a list of hosts that stands for every host on the public internet, at ports 80 and 443."""

_TIMEOUTS = Timeouts(connect=5.0, idle=5.0)
_DEADLINE = 20.0
"""Seconds for a fetch with all its redirects."""
_REDIRECTS = 3
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that embed an IPv4 address (RFC 6052), which may be private."""


class NotFetched(Exception):
    """A file could not or must not be fetched. The message says why, without details of the operator's network."""


class Fetcher:
    """A client that fetches from an allowlist of hosts."""

    def __init__(self, hosts: Collection[str], largest: int) -> None:
        """Allow `hosts`: names, each with its port unless it is the default one, or `PUBLIC`; `largest` is in bytes.

        A host that is listed by name may have a private address.
        """
        self._hosts = frozenset(host.lower() for host in hosts)
        self._transport = Transport("images", _TIMEOUTS, largest=largest)

    async def fetch(self, address: str) -> bytes:
        """Return the content at an `http:` or `https:` URL. Raise `NotFetched`."""
        try:
            async with asyncio.timeout(_DEADLINE):
                return await self._fetch(URL(address))
        except TimeoutError:
            raise NotFetched("its server did not answer in time") from None
        except ValueError:
            raise NotFetched("its address is not valid") from None
        except UpstreamFailed as error:
            too_large = error.code == "upstream_answer_too_large"
            raise NotFetched("it is too large" if too_large else "its server could not be asked") from None

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _fetch(self, url: URL) -> bytes:
        for _ in range(_REDIRECTS + 1):
            response = await self._transport.request(
                "GET", url.with_host(await self._checked(url)), {"host": _authority(url)}, server_name=url.host
            )
            headers = dict(response.headers)
            if response.status in (301, 302, 303, 307, 308) and b"location" in headers:
                response.close()
                url = url.join(URL(headers[b"location"].decode("latin-1")))
                continue
            if response.status != 200:
                response.close()
                raise NotFetched(f"its server answered with {response.status}")
            return await response.read()
        raise NotFetched("its server redirects too often")

    async def _checked(self, url: URL) -> str:
        """Return the IP address to connect to. Raise `NotFetched` if the URL is not allowed."""
        if url.scheme not in ("http", "https") or not url.host or url.user is not None or url.password is not None:
            raise NotFetched("its address is not a plain http: or https: URL")
        is_named = _authority(url).lower() in self._hosts
        if not is_named and (PUBLIC not in self._hosts or url.port not in (80, 443)):
            raise NotFetched("its host is not one that images are fetched from")
        try:
            entries = await asyncio.get_running_loop().getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except OSError:
            raise NotFetched("its host is not known") from None
        addresses = [str(entry[4][0]) for entry in entries]
        if not addresses or not (is_named or all(map(is_public, addresses))):
            raise NotFetched("its host is not one that images are fetched from")
        return addresses[0]


def is_public(address: str) -> bool:
    """Return whether an IP address, or the IPv4 address that it embeds, is on the public internet."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(known, ipaddress.IPv6Address):
        inner = known.ipv4_mapped or known.sixtofour
        if known in _NAT64:
            inner = ipaddress.IPv4Address(int(known) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return known.is_global and not known.is_multicast


def _authority(url: URL) -> str:
    """Return the value of the `host` header, with the port unless it is the default one."""
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    return host if url.is_default_port() else f"{host}:{url.port}"


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
