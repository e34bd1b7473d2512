"""The service beside an inference gateway, by its gRPC contract. `check_envoy.py` has a real Envoy."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from aiohttp import web

from proxy.server.ext_proc import METHOD, MIB, Processor, Request, Response, serve
from tests.e2e.servers import proxy
from tests.loopback import serving

CONFIG = """
upstreams: {echo: {kind: echo}}
models: [{match: echo, upstream: echo, window: 1000}]
chains: {default: [window_history: {keep_turns: 1, stride: 1, summary: false}, reject_oversize: {}]}
state: {kind: memory}
vectors: none
"""
TURNS = [{"role": role, "content": f"{role} {turn}"} for turn in range(9) for role in ("user", "assistant")]
LAST = {"role": "user", "content": "and now?"}
BODY = (
    b'{ "model" : "echo",  "temperature": 0.50, "messages": ' + json.dumps([*TURNS, LAST]).encode() + b' , "x": 1e2 }'
)
HEADERS = {":method": "POST", ":path": "/v1/chat/completions?a=b", "content-type": "application/json"}
UNCHANGED = Response(request_body={})


@asynccontextmanager
async def service(to: str, **options: Any) -> AsyncGenerator[str, None]:
    """A running service for a proxy; its address."""
    begun, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    limits = {"patience": 10.0, "limit": MIB, "closed": False, **options}
    running = asyncio.create_task(serve("127.0.0.1:0", Processor(to, **limits), begun.set_result, stop))
    try:
        yield f"127.0.0.1:{await begun}"
    finally:
        stop.set()
        await running


async def call(address: str, *messages: dict[str, Any]) -> list[Any]:
    """Answers to the messages of one HTTP request."""

    async def sent() -> AsyncIterator[Any]:
        for message in messages:
            yield Request(**message)

    async with grpc.aio.insecure_channel(address) as channel:
        process = channel.stream_stream(METHOD, Request.SerializeToString, Response.FromString)
        return [answer async for answer in process(sent())]


def head(headers: dict[str, str]) -> dict[str, Any]:
    pairs = [{"key": name, "raw_value": value.encode()} for name, value in headers.items()]
    return {"request_headers": {"headers": {"headers": pairs}}}


def whole(body: bytes) -> dict[str, Any]:
    return {"request_body": {"body": body, "end_of_stream": True}}


async def answer_to(address: str, body: bytes, headers: dict[str, str] = HEADERS) -> Any:
    first, second = await call(address, head(headers), whole(body))
    assert first == Response(request_headers={})
    return second


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncGenerator[str, None]:
    async with proxy(CONFIG, tmp_path) as base, service(base) as address:
        yield address


async def test_the_body_is_the_one_that_the_chain_made(beside: str) -> None:
    answer = await answer_to(beside, BODY)
    changed = answer.request_body.response
    body = changed.body_mutation.body
    assert body.startswith(b'{ "model" : "echo",  "temperature": 0.50, "messages": [')
    assert body.endswith(b' , "x": 1e2 }')
    messages = json.loads(body)["messages"]
    assert messages[-1] == LAST
    assert len(messages) < len(TURNS)
    (length,) = changed.header_mutation.set_headers
    assert (length.header.key, int(length.header.raw_value)) == ("content-length", len(body))
    halved = await answer_to(beside, BODY.replace(b'"x": 1e2', b'"x": "\\ud83d"'))
    assert halved.request_body.response.body_mutation.body.endswith(b' , "x": "\\ud83d" }'), "half of an emoji stays"


async def test_a_body_that_the_chain_keeps_has_the_same_bytes(beside: str) -> None:
    body = b'{"messages":[ {"role":"user","content":"\\u0068i"} ], "model":"echo"}'
    changed = (await answer_to(beside, body)).request_body.response
    assert changed.body_mutation.body == body
    assert not changed.header_mutation.set_headers


async def test_other_requests_large_bodies_pieces_and_answers_pass(beside: str) -> None:
    for other in ({":path": "/v1/embeddings"}, {":method": "PUT"}, {"content-encoding": "gzip"}):
        assert await answer_to(beside, BODY, {**HEADERS, **other}) == UNCHANGED
    assert await answer_to(beside, BODY.replace(b'"echo"', b'"other"')) == UNCHANGED, "a model that is not known"
    large = BODY.replace(b"user 0", b"x" * MIB)
    assert await answer_to(beside, large) == UNCHANGED
    piece = {"request_body": {"body": BODY, "end_of_stream": False}}
    assert (await call(beside, head(HEADERS), piece, whole(BODY)))[1:] == [UNCHANGED, UNCHANGED]
    kinds = ("response_headers", "response_body", "response_trailers", "request_trailers")
    answers = await call(beside, *({kind: {}} for kind in kinds))
    assert answers == [Response(**{kind: {}}) for kind in kinds]


async def test_closed_no_conversation_passes_without_its_chain(tmp_path: Path) -> None:
    async with proxy(CONFIG, tmp_path) as base, service(base, closed=True, limit=2 * len(BODY)) as address:
        assert (await answer_to(address, BODY)).request_body.response.body_mutation.body
        piece = {"request_body": {"body": BODY, "end_of_stream": False}}
        for refused in (
            await answer_to(address, BODY + b" " * len(BODY) * 2),
            await answer_to(address, BODY, {**HEADERS, "content-encoding": "gzip"}),
            (await call(address, head(HEADERS), piece))[-1],
        ):
            assert refused.immediate_response.status.code == 503
        assert await answer_to(address, BODY, {**HEADERS, ":path": "/v1/embeddings"}) == UNCHANGED


SECRET = "ana@example.com"


@pytest.mark.parametrize(("path", "fields"), [
    ("/chat/completions", {"user": SECRET, "metadata": {"of": SECRET}}),
    ("/Chat%2F/./completions;a=b?c=d", {"messages": [{"role": "user", "content": SECRET}]}),
    ("/messages", {"max_tokens": 5, "system": "x", "metadata": {"user_id": SECRET}}),
    ("/messages/count_tokens", {"system": SECRET}),
    ("/responses/input_tokens", {"messages": None, "input": SECRET}),
    ("/chat/completions", {"model": "unknown", "user": SECRET}),
])  # fmt: skip
async def test_closed_no_field_goes_past_a_guard(tmp_path: Path, path: str, fields: dict[str, Any]) -> None:
    config = CONFIG.replace("default: [", "default: [redact_secrets: {}, ")
    body = json.dumps({"model": "echo", "messages": [LAST], **fields}).encode()
    async with proxy(config, tmp_path) as base, service(base, closed=True) as address:
        answer = await answer_to(address, body, {**HEADERS, ":path": f"/v1{path}"})
    changed = answer.request_body.response.body_mutation.body
    assert answer.immediate_response.status.code == 404 if "model" in fields else b"redacted-email" in changed
    assert SECRET.encode() not in changed


async def test_a_refusal_is_the_answer_of_the_client(beside: str) -> None:
    body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "word " * 5000}]}).encode()
    refused = (await answer_to(beside, body)).immediate_response
    assert refused.status.code == 400
    assert json.loads(refused.body)["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("fault", ["fails", "hangs", "talks nonsense", "is gone"])
async def test_a_proxy_that_cannot_answer_is_passed_by_or_closes(fault: str) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        if fault == "hangs":
            await asyncio.sleep(60)
        return web.Response(status=500 if fault == "fails" else 200, text="<html>")

    async with serving(broken) as base:
        to = "http://127.0.0.1:9" if fault == "is gone" else base
        async with service(to, patience=0.3) as open_, service(to, patience=0.3, closed=True) as closed:
            assert await answer_to(open_, BODY) == UNCHANGED
            assert (await answer_to(closed, BODY)).immediate_response.status.code == 503


async def test_headers_of_the_client_reach_the_proxy_and_those_of_the_connection_do_not() -> None:
    seen: dict[str, str] = {}

    async def record(request: web.Request) -> web.StreamResponse:
        seen.update({name.lower(): value for name, value in request.headers.items()})
        return web.json_response({"messages": []})

    headers = {**HEADERS, "authorization": "Bearer k", "x-penstock-chain": "lean", "host": "gateway", "te": "trailers"}
    async with serving(record) as base, service(base) as address:
        await answer_to(address, BODY, headers)
    assert (seen["authorization"], seen["x-penstock-chain"]) == ("Bearer k", "lean")
    assert seen["host"] != "gateway"
    assert "te" not in seen
    assert not any(name.startswith(":") for name in seen)
