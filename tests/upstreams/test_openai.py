"""Servers that speak OpenAI's API: bytes out, bytes back. Against a real server on the loopback."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from proxy.chat.errors import UpstreamFailed
from proxy.config.settings import OpenAIUpstream
from proxy.context import ModelProfile
from proxy.upstreams.base import Call
from proxy.upstreams.openai import OpenAI
from tests.loopback import serving

SOON = 60.0
"""Seconds after which a test gives up that waits for what may never happen."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BODY = b'{ "model" :"m",\n\t"messages":[ ], "x":1.0 , "y":"\\u00e9 \xc3\xa9" }\r\n'


@asynccontextmanager
async def upstream(handle: Handler, **settings: Any) -> AsyncIterator[OpenAI]:
    """An upstream of a server with one handler for all paths."""
    async with serving(handle) as url:
        made = OpenAI("main", OpenAIUpstream(kind="openai", base_url=f"{url}/v1/", **settings))
        yield made
        await made.aclose()


def recording(answer: Callable[[], web.StreamResponse]) -> tuple[Handler, list[tuple[web.Request, bytes]]]:
    got: list[tuple[web.Request, bytes]] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        got.append((request, await request.read()))
        return answer()

    return handle, got


def call(path: str = "/chat/completions", body: bytes = BODY, **fields: Any) -> Call:
    known: dict[str, Any] = {"headers": {"content-type": "application/json", "accept-encoding": "identity"}}
    return Call(path, "m", body, **(known | fields))


def ok() -> web.StreamResponse:
    return web.Response(body=b'{ "id" : "x" }\n', content_type="application/json")


@pytest.mark.parametrize(("path", "query", "method", "asked"), [
    pytest.param("/chat/completions", "", "POST", "/v1/chat/completions", id="chat"),
    pytest.param("/chat/completions", "api-version=1", "POST", "/v1/chat/completions?api-version=1", id="a query"),
    pytest.param("/files/a%2Fb%7ec/content", "x=%20y%7e&z", "GET", "/v1/files/a%2Fb%7ec/content?x=%20y%7e&z",
                 id="escapes stay as they are"),
    pytest.param("/files/f1", "", "DELETE", "/v1/files/f1", id="another method"),
])  # fmt: skip
async def test_path_query_and_method_are_the_calls(path: str, query: str, method: str, asked: str) -> None:
    handle, got = recording(ok)
    async with upstream(handle) as openai:
        await openai.send(call(path, b"", query=query, method=method))

    assert (got[0][0].method, got[0][0].raw_path) == (method, asked)
    assert got[0][1] == b""


async def test_configured_headers_win_and_values_beyond_ascii_go_out_as_they_came() -> None:
    value = "Z\xfcrich \u65e5".encode()
    handle, got = recording(ok)
    async with upstream(handle) as openai:
        await openai.send(call(headers={"accept-encoding": "identity", "x-title": value.decode()}))

    assert dict(got[0][0].raw_headers)[b"x-title"] == value
    handle, got = recording(ok)
    headers = {"X-Team": SecretStr("ours"), "api-key": SecretStr("k")}
    async with upstream(handle, headers=headers) as openai:
        await openai.send(call(headers={"x-team": "theirs", "x-other": "1"}))

    found = {name: got[0][0].headers.getall(name) for name in ("x-team", "api-key", "x-other")}
    assert found == {"x-team": ["ours"], "api-key": ["k"], "x-other": ["1"]}


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_redirect_is_not_followed(method: str) -> None:
    handle, got = recording(lambda: web.Response(status=307, headers={"location": "https://evil.example/v1"}))
    async with upstream(handle) as openai:
        asked = call(headers={"authorization": "Bearer client"}, method=method)
        if method == "GET":
            assert (await openai.send(asked)).status == 307
        else:
            with pytest.raises(UpstreamFailed, match="set its base_url to the final address"):
                await openai.send(asked)

    assert len(got) == 1


def endless(ended: asyncio.Event) -> Handler:
    """A stream that goes on until nobody reads it any more."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"data: 1\n\n")
                await asyncio.sleep(0)
        finally:
            ended.set()

    return handle


QUOTED = "beyond the maximum context length of 300"


@pytest.mark.parametrize("sent", [
    pytest.param({"body": b'{"role":"%b"}' % QUOTED.encode()}, id="body"),
    pytest.param({"body": b'{"role":"%b"}' % QUOTED.encode().replace(b"of", b"OF")}, id="capitals"),
    pytest.param({"body": b'{"role":"%b"}' % QUOTED.encode().replace(b"of", b"\\u006ff")}, id="escaped"),
    pytest.param({"body": b'{"role":"%b","name":"\\ud800"}' % QUOTED.encode()}, id="half a character"),
    pytest.param({"headers": {"openai-beta": QUOTED}}, id="header"),
    pytest.param({"query": f"v={QUOTED.replace(' ', '%20')}"}, id="query"),
])  # fmt: skip
async def test_a_client_that_is_quoted_sets_no_window(sent: dict[str, Any]) -> None:
    """Servers quote what they refuse, and a window counts for all clients."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        said = body.get("role") or request.headers.get("openai-beta") or request.query.get("v")
        told = f"Invalid value: {said or 'beyond the maximum context length of 400'}."
        return web.json_response({"error": {"message": told}}, status=400)

    known = ModelProfile("m", 8192, 1024, 512)
    async with upstream(handle) as openai:
        for asked, window in ((sent, 8192), ({}, 400)):
            assert (await openai.send(call(**{"body": b"{}", **asked}))).status == 400
            assert (await openai.profile(known)).window == window


@pytest.mark.parametrize(("answer", "ids"), [
    pytest.param({"data": [{"id": "a"}, {}, None, 7, "b", [], {"id": 7}, {"id": None}, {"id": "c"}]}, ["a", "c"],
                 id="some entries are none"),
    pytest.param({"data": []}, [], id="an empty list"),
    pytest.param({"data": None}, [], id="null for a list"),
    pytest.param({"data": "abc"}, [], id="a word for a list"),
    pytest.param({"models": [{"id": "a"}]}, [], id="another key"),
    pytest.param([{"id": "a"}], [], id="a bare list"),
    pytest.param(None, [], id="null"),
    pytest.param(lambda: web.Response(status=404, text="<html>no such page</html>"), [], id="a page"),
    pytest.param(lambda: web.Response(body=b"\xff\x00{"), [], id="no JSON"),
    pytest.param(lambda: web.Response(body=b"data: {}\n\n", content_type="text/event-stream"), [], id="a stream"),
])  # fmt: skip
async def test_a_list_of_models_may_be_any_nonsense(answer: Any, ids: list[str]) -> None:
    handle, _ = recording(answer if callable(answer) else lambda: web.json_response(answer))
    async with upstream(handle) as openai:
        assert [model["id"] for model in await openai.models({})] == ids


async def test_an_endless_answer_to_the_question_for_models_is_dropped() -> None:
    ended = asyncio.Event()
    async with upstream(endless(ended)) as openai:
        gc.disable()  # only the upstream's own doing counts
        try:
            assert await openai.models({}) == []
            await asyncio.wait_for(ended.wait(), SOON)
        finally:
            gc.enable()
