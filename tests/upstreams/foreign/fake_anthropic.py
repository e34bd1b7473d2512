"""An Anthropic server on loopback that says what it is told to say, and remembers what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.loopback import serving

USAGE = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 7}

Event = tuple[str, dict[str, Any]]


@dataclass
class FakeAnthropic:
    """What the server answers next, and what reached it."""

    url: str = ""
    content: list[dict[str, Any]] = field(default_factory=lambda: [{"type": "text", "text": "hello"}])
    stop_reason: str = "end_turn"
    status: int = 200
    error: str = ""
    error_headers: dict[str, str] = field(default_factory=dict)
    ending: str = "whole"
    """How a stream ends: `whole`, `cut`, `error`, `empty`, or `never`."""
    delay: float = 0.0
    """Seconds before an answer that is not streamed."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has arrived."""
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client leaves before its answer is complete."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        self.bodies.append(await request.json() if request.can_read_body else {})
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        self.asked.set()
        if self.status != 200:
            body = {"type": "error", "error": {"type": "some_error", "message": self.error}}
            return web.json_response(body, status=self.status, headers=self.error_headers)
        try:
            if self.bodies[-1].get("stream"):
                return await self._stream(request)
            await asyncio.sleep(self.delay)
        except (asyncio.CancelledError, ConnectionResetError):
            self.dropped.set()
            raise
        return web.json_response({**self._message(), "content": self.content, "stop_reason": self.stop_reason})

    def _message(self) -> dict[str, Any]:
        fixed = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-20990101"}
        return {**fixed, "stop_sequence": None, "usage": USAGE}

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for kind, fields in self._events():
            if kind == "pause":
                await asyncio.sleep(0.05)
                continue
            if kind == "cut":
                assert request.transport is not None
                request.transport.close()
                return response
            await response.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())
        return response

    def _events(self) -> list[Event]:
        if self.ending == "empty":
            return []
        events: list[Event] = [("message_start", {"message": {**self._message(), "content": []}})]
        for index, block in enumerate(self.content):
            events += _block(index, block)
        match self.ending:
            case "never":
                return [*events[:3], *([("pause", {}), events[2]] * 500)]
            case "cut":
                return [*events[:3], ("pause", {}), ("cut", {})]
            case "error":
                return [*events[:3], ("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}})]
        delta = {"stop_reason": self.stop_reason, "stop_sequence": None}
        return [*events, ("message_delta", {"delta": delta, "usage": {"output_tokens": 7}}), ("message_stop", {})]


def _block(index: int, block: dict[str, Any]) -> list[Event]:
    start: dict[str, Any]
    match block["type"]:
        case "text":
            start = {"type": "text", "text": ""}
            half = len(block["text"]) // 2
            parts = [block["text"][:half], block["text"][half:]]
            deltas = [{"type": "text_delta", "text": part} for part in parts]
        case "thinking":
            start = {"type": "thinking", "thinking": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        case _:
            start = {**block, "input": {}}
            text = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in (text[:4], text[4:])]
    return [
        ("content_block_start", {"index": index, "content_block": start}),
        *[("content_block_delta", {"index": index, "delta": delta}) for delta in deltas],
        ("content_block_stop", {"index": index}),
    ]


@asynccontextmanager
async def fake_anthropic() -> AsyncIterator[FakeAnthropic]:
    """Serve on a free port of the loopback interface."""
    fake = FakeAnthropic()
    async with serving(fake.answer) as fake.url:
        yield fake
