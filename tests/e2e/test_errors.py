"""Everything that can go wrong, as a client sees it: OpenAI's error body, the right status, and never a 500."""

import asyncio
import json
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from proxy.server.app import answer_http_error
from tests.e2e import conftest
from tests.e2e.conftest import Client
from tests.e2e.servers import Received, Upstream, answering, begin_stream, send_chunk, silent, streaming

CONFIG = conftest.CONFIG
GOOD = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}
STREAMED = {**GOOD, "model": "plain-1", "stream": True}


def assert_openai_error(answer: Any) -> None:
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert isinstance(answer["error"]["message"], str)
    assert "\n" not in answer["error"]["message"]


async def test_the_limit_holds_while_a_body_of_unknown_length_is_read(client: Client) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(client.base.rpartition(":")[2]))
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(40):
        writer.write(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413")


async def test_the_methods_that_the_framework_allows_are_sorted() -> None:
    request = Request({"type": "http", "method": "PUT", "path": "/", "headers": []})
    for methods in ("GET, HEAD", "HEAD, GET"):  # as its set gives them
        response = await answer_http_error(request, HTTPException(405, headers={"Allow": methods}))
        assert response.headers["allow"] == "GET, HEAD"


async def test_an_oversize_request_reaches_no_upstream(client: Client, behind: Upstream) -> None:
    answer = await client.chat("x " * 100, "tiny-1")
    assert answer.refusal == (400, "context_length_exceeded")
    assert answer.json["error"]["param"] == "messages"
    assert "maximum context length is 60 tokens" in answer.json["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-penstock-context"].endswith(";60")
    assert behind.received == []


class TestADeadUpstream:
    @pytest.mark.parametrize("begun", [b'data: {"choices":[]}', b'data: {"choi'], ids=["event", "half of one"])
    async def test_after_the_first_byte_is_an_event_of_its_own_that_sdks_raise(
        self, client: Client, behind: Upstream, begun: bytes
    ) -> None:
        behind.respond = streaming(begun + b"\n\n" * begun.endswith(b"}"), ends=False)
        answer = await client.post("/v1/chat/completions", STREAMED)
        first, last, rest = answer.body.split(b"\n\n")
        assert (answer.status, first, rest) == (200, begun, b"")
        assert_openai_error(json.loads(last.removeprefix(b"data: ")))

    async def test_has_a_name_where_the_other_events_have_one(self, client: Client, behind: Upstream) -> None:
        """Clients of Anthropic's look at the name alone."""
        begun = b'event: message_start\ndata: {"type":"message_start"}\n\n'
        behind.respond = streaming(begun, ends=False)
        answer = await client.post("/v1/messages", STREAMED)
        name, data = answer.body.removeprefix(begun).strip().split(b"\n")
        told = json.loads(data.removeprefix(b"data: "))
        assert (name, told["type"], told["error"]["type"]) == (b"event: error", "error", "api_error")
        assert told["error"]["details"] == {"error_code": "upstream_broke_off"}

    async def test_that_moved_is_a_502_and_no_redirect(self, client: Client, behind: Upstream) -> None:
        moved = "location: http://elsewhere.example/v1/chat/completions\r\n"
        behind.respond = answering(b"", status=307, headers=moved)
        answer = await client.chat(model="plain-1")
        assert (answer.status, "location" in answer.headers) == (502, False)
        assert "set its base_url to the final address" in answer.json["error"]["message"]


class TestAClientThatLeaves:
    @pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
    @pytest.mark.parametrize("model", ["plain-1", "chain-1"])
    async def test_before_the_first_byte_takes_the_upstream_request_along(
        self, client: Client, behind: Upstream, model: str, stream: bool
    ) -> None:
        behind.respond = silent
        asking = asyncio.ensure_future(client.chat(model=model, stream=stream))
        await behind.arrived(1)
        asking.cancel()
        await asyncio.wait_for(behind.gone.wait(), 60)

    async def test_in_mid_stream_too_and_leaves_nothing_running(self, client: Client, behind: Upstream) -> None:
        async def answer(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
            await begin_stream(writer)
            while True:
                await send_chunk(writer, b"data: {}\n\n")
                await asyncio.sleep(0.01)

        behind.respond = answer
        response = await client.http.post(f"{client.base}/v1/chat/completions", json=STREAMED)
        await response.content.readany()
        response.close()
        await asyncio.wait_for(behind.gone.wait(), 60)
        await client.until("penstock_active_requests 0.0")
        await client.until('status="499"')
