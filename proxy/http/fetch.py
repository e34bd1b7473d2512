"""Fetch files from URLs that clients send, without opening the operator's network to them (SSRF).

A host name is resolved once, all its addresses are checked, and the connection goes to a checked address. So a name
that later resolves to another address (DNS rebinding) has no effect. Each redirect is checked in the same way.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Collection

from yarl import URL

from proxy.chat.errors import UpstreamFailed
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
