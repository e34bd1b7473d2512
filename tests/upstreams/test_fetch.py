"""Fetching what a client names: only from where the operator allows, and never into the operator's own network."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from proxy.upstreams.images import Fetcher, NotFetched, is_public

LARGEST = 1000


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """A server of pictures on loopback; its `host:port`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/there":
                return web.Response(body=b"a picture of " + request.headers["host"].encode())
            case "/large":
                return web.Response(body=b"x" * (LARGEST + 1))
            case "/away":
                return web.Response(status=302, headers={"location": request.query["to"]})
            case "/round":
                return web.Response(status=302, headers={"location": "/round"})
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def fetched(url: str, hosts: Collection[str]) -> bytes:
    fetcher = Fetcher(hosts, LARGEST)
    try:
        return await fetcher.fetch(url)
    finally:
        await fetcher.aclose()


async def test_a_listed_host_may_have_a_private_address() -> None:
    async with server() as host:
        port = host.partition(":")[2]
        assert await fetched(f"http://{host}/there", [host]) == f"a picture of {host}".encode()
        named = f"localhost:{port}"
        assert await fetched(f"http://{named}/there", [named.upper()]) == f"a picture of {named}".encode()


async def test_redirects_are_followed_as_far_as_their_hosts_are_allowed() -> None:
    async with server() as host:
        assert await fetched(f"http://{host}/away?to=/there", [host])
        with pytest.raises(NotFetched, match="not one that images are fetched from"):
            await fetched(f"http://{host}/away?to=http://127.0.0.1:9/there", [host, "public"])
        with pytest.raises(NotFetched, match="plain http"):
            await fetched(f"http://{host}/away?to=file:///etc/passwd", [host])
        with pytest.raises(NotFetched, match="redirects too often"):
            await fetched(f"http://{host}/round", [host])


async def test_a_failed_fetch_says_why() -> None:
    async with server() as host:
        with pytest.raises(NotFetched, match="answered with 404"):
            await fetched(f"http://{host}/nothing", [host])
        with pytest.raises(NotFetched, match="too large"):
            await fetched(f"http://{host}/large", [host])
    with pytest.raises(NotFetched, match="could not be asked"):
        await fetched(f"http://{host}/there", [host])


@pytest.mark.parametrize("url", [
    "http://127.0.0.1/x", "http://localhost/x", "http://2130706433/x", "http://0x7f.1/x", "http://[::1]/x",
    "http://[::ffff:127.0.0.1]/x", "http://[64:ff9b::7f00:1]/x", "http://10.0.0.1/x", "http://169.254.169.254/latest",
    "http://192.168.1.1/x", "http://0.0.0.0/x", "http://[fe80::1]/x", "http://8.8.8.8:22/x",
    "http://user@8.8.8.8/x", "ftp://8.8.8.8/x", "file:///etc/passwd", "http:///x", "http://[x/", "gopher:x",
])  # fmt: skip
async def test_public_excludes_private_addresses_and_other_ports(url: str) -> None:
    with pytest.raises(NotFetched, match="its address is not|its host is not"):
        await fetched(url, ["public"])


@pytest.mark.parametrize(("address", "expected"), [
    ("8.8.8.8", True), ("2606:4700::1111", True), ("::ffff:8.8.8.8", True), ("64:ff9b::808:808", True),
    ("127.0.0.1", False), ("100.64.0.1", False), ("224.0.0.1", False), ("2002:7f00:1::", False), ("fc00::1", False),
    ("fe80::1%eth0", False), ("no address", False),
])  # fmt: skip
def test_an_address_is_public(address: str, expected: bool) -> None:
    assert is_public(address) is expected
