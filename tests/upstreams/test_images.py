"""Images that a request names by their addresses, for providers that take only their bytes."""

from base64 import b64encode
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from proxy.chat import ChatRequest, Message
from proxy.chat.errors import BadRequest
from proxy.config.settings import OllamaUpstream
from proxy.upstreams.images import Images
from tests.loopback import serving

PNG = b"\x89PNG\r\n\x1a\n and so on"
DATA = f"data:image/png;base64,{b64encode(PNG).decode()}"


@pytest.fixture
async def host() -> AsyncIterator[str]:
    """A server with one picture and one text; its `host:port`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        status, headers = {"/nothing": (404, {}), "/away": (302, {"location": "/cat.png"})}.get(request.path, (200, {}))
        return web.Response(status=status, headers=headers, body=PNG if request.path == "/cat.png" else b"<html>")

    async with serving(answer) as url:
        yield url.removeprefix("http://")


def asking(*urls: str) -> ChatRequest:
    parts = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}} for url in urls]
    return ChatRequest("m", (
        Message({"role": "user", "content": "Hi"}),
        Message({"role": "user", "content": [{"type": "text", "text": "What is it?"}, *parts]}),
    ))  # fmt: skip


async def inlined(request: ChatRequest, *hosts: str, schemes: tuple[str, ...] = ("http", "https")) -> ChatRequest:
    images = Images(OllamaUpstream(kind="ollama", fetch_images_from=hosts), schemes)
    try:
        return await images.inlined(request)
    finally:
        await images.aclose()


async def test_addresses_become_data_and_nothing_else_changes(host: str) -> None:
    request = asking(f"http://{host}/cat.png", DATA, f"http://{host}/cat.png")
    made = await inlined(request, host)

    assert made.messages[0] is request.messages[0]
    text, *images = made.messages[1].parts
    assert text == {"type": "text", "text": "What is it?"}
    assert images == [{"type": "image_url", "image_url": {"url": DATA, "detail": "low"}}] * 3


async def test_servers_that_are_gone_or_not_allowed_give_no_pictures(host: str) -> None:
    request = asking("https://example.com/cat.png")
    assert await inlined(request, host, schemes=("http",)) is request
    assert await inlined(request) is request
    with pytest.raises(BadRequest, match="its server did not answer, or it is too large"):
        await inlined(asking("http://127.0.0.1:9/x"), "127.0.0.1:9")
    with pytest.raises(BadRequest, match="more than 20 images"):
        await inlined(asking(*[f"http://{host}/{n}.png" for n in range(21)]), host)


@pytest.mark.parametrize(("path", "hosts", "told"), [
    ("page", None, "not a PNG, JPEG, GIF or WebP"),
    ("nothing", None, "its server answered with 404"),
    ("away", None, "its server answered with 302"),
    ("cat.png", ["example.com", "127.0.0.1"], "its host is not one that images are fetched from"),
])  # fmt: skip
async def test_a_refusal_names_its_place(host: str, path: str, hosts: list[str] | None, told: str) -> None:
    with pytest.raises(BadRequest, match=told) as caught:
        await inlined(asking(DATA, f"http://{host}/{path}"), *(hosts or [host]))
    assert (caught.value.param, caught.value.code) == ("messages[1].content[2].image_url.url", "image_not_fetched")


@pytest.mark.parametrize("url", [
    "http://127.0.0.1:9/x", "http://localhost/x", "http://2130706433/x", "http://user@example.com/x", "http://[x/",
    "http:///x", "http://example.com:81/x", "http://example.com.evil/x",
])  # fmt: skip
async def test_no_other_host_is_asked(url: str) -> None:
    with pytest.raises(BadRequest) as caught:
        await inlined(asking(url), "example.com")
    assert caught.value.code == "image_not_fetched"
