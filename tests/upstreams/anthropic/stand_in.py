"""A strict stand-in for Anthropic on loopback: it refuses what Anthropic refuses, signs, streams and caches as it does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.loopback import serving
from tests.upstreams.anthropic.prompt_cache import PromptCache
from tests.upstreams.anthropic.rules import Block, Body, Refusal, blocks, check, content, signature, tokens

KEY = "sk-ant-api-key"
HELLO: list[Block] = [{"type": "text", "text": "Hello there"}]

_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@dataclass
class Scripted:
    """One answer. Thinking without a signature is signed."""

    content: list[Block] = field(default_factory=lambda: list(HELLO))
    stop_reason: str | None = None
    """That of the content, if None."""
    ending: str = "whole"
    """How a stream ends: `whole`, `cut`, `error`, `empty` or `never`."""


@dataclass
class StandIn:
    """What the server answers next, and what reached it."""

    url: str = ""
    answers: list[Scripted] = field(default_factory=list)
    failures: list[tuple[int, str, dict[str, str]]] = field(default_factory=list)
    """Statuses, types of errors and headers of the next answers."""
    bodies: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    usages: list[dict[str, int]] = field(default_factory=list)
    raw: bytes | None = None
    """Sent instead of an answer, as it is."""
    delay: float = 0.0
    """Seconds before an answer that is not streamed."""
    cache: PromptCache = field(default_factory=PromptCache)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has arrived."""
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client leaves before its answer is complete."""

    def say(self, *made: Block, **more: Any) -> None:
        """Have an answer said next."""
        self.answers.append(Scripted(list(made), **more))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path_qs)
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        headers = self.headers[-1]
        if not (headers.get("x-api-key") == KEY or headers.get("authorization") == f"Bearer {KEY}"):
            return _error(401, "authentication_error", "invalid x-api-key")
        if not headers.get("anthropic-version"):
            return _error(400, "invalid_request_error", "anthropic-version: header is required")
        if request.method == "GET":
            told = {"type": "model", "created_at": "2026-05-01T00:00:00Z", "max_input_tokens": 10}
            entry = {"id": "claude-opus-5", **told}
            return web.json_response({"data": [entry], "has_more": False})
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.asked.set()
        if self.failures:
            status, kind, more = self.failures.pop(0)
            return _error(status, kind, "told by the test", more)
        if request.path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": sum(tokens(block) for _, block in blocks(body))})
        try:
            check(body)
        except Refusal as refusal:
            self.refused.append(str(refusal))
            return _error(400, "invalid_request_error", str(refusal))
        scripted = self.answers.pop(0) if self.answers else Scripted()
        message = self._message(body, scripted)
        AnthropicMessage.model_validate(message)
        return await self.tell(request, message, scripted.ending)

    async def tell(self, request: web.Request, message: dict[str, Any], ending: str) -> web.StreamResponse:
        """Send a message, whole or as a stream."""
        try:
            if self.raw is not None:
                return web.Response(body=self.raw)
            if self.bodies[-1].get("stream"):
                return await self._stream(request, stream_events(message, ending), 0.05 * (ending == "never"))
            await asyncio.sleep(self.delay)
        except (asyncio.CancelledError, ConnectionResetError):
            self.dropped.set()
            raise
        return web.json_response(message)

    def _message(self, body: Body, scripted: Scripted) -> dict[str, Any]:
        before = [[message["role"], block] for message in body["messages"] for block in content(message)]
        made: list[Block] = []
        for block in scripted.content:
            if block["type"] == "thinking" and "signature" not in block:
                block = {**block, "signature": signature(body, before, block["thinking"])}
            made.append(block)
            before.append(["assistant", block])
        usage = {**self.cache.used(body), "output_tokens": max(1, tokens(made))}
        self.usages.append(usage)
        called = any(block["type"] == "tool_use" for block in made)
        return {
            "id": f"msg_{len(self.bodies)}", "type": "message", "role": "assistant", "model": body["model"],
            "content": made, "stop_reason": scripted.stop_reason or ("tool_use" if called else "end_turn"),
            "stop_sequence": None, "usage": {**usage, "service_tier": "standard"},
        }  # fmt: skip

    async def _stream(self, request: web.Request, events: list[dict[str, Any]], pause: float) -> web.StreamResponse:
        headers = {"content-type": "text/event-stream; charset=utf-8", "request-id": "req_1"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for event in events:
            if event["type"] == "cut":
                assert request.transport is not None
                request.transport.close()
                return response
            if event["type"] not in ("ping", "error"):
                _EVENT.validate_python(event)
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(pause)
        return response


def _error(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return web.json_response(body, status=status, headers=headers)


def stream_events(message: dict[str, Any], ending: str) -> list[dict[str, Any]]:
    """The events of a stream that says a message; a `cut` is where the connection breaks, `never` has no end."""
    if ending == "empty":
        return []
    head = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    made: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(message["content"]):
        begun, deltas = _pieces(block)
        made.append({"type": "content_block_start", "index": index, "content_block": begun})
        made += [{"type": "ping"}] if index == 0 else []
        made += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        if ending in ("error", "cut") and index + 1 == len(message["content"]):
            return [*made, {"type": ending, "error": {"type": "overloaded_error", "message": "Overloaded"}}]
        made.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    made.append({"type": "message_delta", "delta": delta, "usage": message["usage"]})
    return [*made[:4], *[made[3]] * 500] if ending == "never" else [*made, {"type": "message_stop"}]


def _pieces(block: Block) -> tuple[Block, list[dict[str, Any]]]:
    """How a block begins, and what follows."""
    match block["type"]:
        case "text":
            cited = [{"type": "citations_delta", "citation": each} for each in block.get("citations", ())]
            return {"type": "text", "text": ""}, [*_halves("text_delta", "text", block["text"]), *cited]
        case "thinking":
            parts = _halves("thinking_delta", "thinking", block["thinking"])
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*parts, signed]
        case "tool_use" | "server_tool_use":
            text = json.dumps(block["input"]) if block["input"] else ""
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": ""},
                                            *_halves("input_json_delta", "partial_json", text)]  # fmt: skip
    return block, []


def _halves(kind: str, key: str, text: str) -> list[dict[str, Any]]:
    half = (len(text) + 1) // 2
    return [{"type": kind, key: part} for part in (text[:half], text[half:]) if part]


@asynccontextmanager
async def stand_in() -> AsyncIterator[StandIn]:
    """Serve on a free port of the loopback interface."""
    made = StandIn()
    async with serving(made.answer) as made.url:
        yield made
