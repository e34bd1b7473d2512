"""An Anthropic server on loopback that says what it is told to say, and remembers what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.loopback import serving
from tests.upstreams.anthropic.stand_in import stream_events

USAGE = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 7}


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
        return web.json_response(self._message())

    def _message(self) -> dict[str, Any]:
        fixed = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-20990101"}
        said = {"content": self.content, "stop_reason": self.stop_reason, "stop_sequence": None}
        return {**fixed, **said, "usage": USAGE}

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in self._events():
            if event["type"] == "cut":
                assert request.transport is not None
                request.transport.close()
                return response
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(0.05 if self.ending == "never" else 0)
        return response

    def _events(self) -> list[dict[str, Any]]:
        events = stream_events(self._message(), self.ending)
        match self.ending:
            case "empty":
                return []
            case "never":
                return [*events[:4], *[events[3]] * 500]
        return events


@asynccontextmanager
async def fake_anthropic() -> AsyncIterator[FakeAnthropic]:
    """Serve on a free port of the loopback interface."""
    fake = FakeAnthropic()
    async with serving(fake.answer) as fake.url:
        yield fake
