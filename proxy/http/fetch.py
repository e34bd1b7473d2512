"""Fetching what a client names by its address, without lending it the way into the operator's network (SSRF).

A name is resolved once, every address that it has is checked, and the connection goes to a checked one: a name that
resolves to another address a moment later (DNS rebinding) reaches nothing else. Each redirect is checked alike.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Collection

from yarl import URL

from proxy.chat.errors import UpstreamFailed
from proxy.http.client import Timeouts, Transport

PUBLIC = "public"
"""In a list of hosts: every host on the public internet, at the usual ports."""

_TIMEOUTS = Timeouts(connect=5.0, idle=5.0)
_DEADLINE = 20.0
"""Seconds for all of a fetch."""
_REDIRECTS = 3
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""Addresses that stand for those of version 4 (RFC 6052), which may be private ones."""


class NotFetched(Exception):
    """Something could not or must not be fetched. The message says why, and nothing of the operator's network."""


class Fetcher:
    """Fetches from some hosts."""

    def __init__(self, hosts: Collection[str], largest: int) -> None:
        """`hosts` are names, with a port where it is not the usual one, and may have `PUBLIC`; `largest` is in bytes.

        A host that is named may have any address.
        """
        self._hosts = frozenset(host.lower() for host in hosts)
        self._transport = Transport("images", _TIMEOUTS, largest=largest)

    async def fetch(self, address: str) -> bytes:
        """Return what is at an `http:` or `https:` address. Raise `NotFetched`."""
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
        """Return the address to connect to. Raise `NotFetched` where nothing may be fetched from there."""
        if url.scheme not in ("http", "https") or not url.host or url.user is not None or url.password is not None:
            raise NotFetched("its address is not a plain http: or https: one")
        is_named = _authority(url).lower() in self._hosts
        if not is_named and (PUBLIC not in self._hosts or url.port not in (80, 443)):
            raise NotFetched("its host is not one that images are fetched from")
        try:
            found = await asyncio.get_running_loop().getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except OSError:
            raise NotFetched("its host is not known") from None
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not (is_named or all(map(is_public, addresses))):
            raise NotFetched("its host is not one that images are fetched from")
        return addresses[0]


def is_public(address: str) -> bool:
    """Whether an IP address is on the public internet, also where it stands for one of version 4."""
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
    """Return the host as a `host` header names it, with the port where it is not the usual one."""
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    return host if url.is_default_port() else f"{host}:{url.port}"
