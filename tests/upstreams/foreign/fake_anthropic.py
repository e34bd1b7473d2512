"""An Anthropic server on loopback that says what it is told to say, whatever it is asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.loopback import serving
from tests.upstreams.anthropic.stand_in import StandIn

USAGE = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 7}


@dataclass
class FakeAnthropic(StandIn):
    """Gives all answers alike."""

    content: list[dict[str, Any]] = field(default_factory=lambda: [{"type": "text", "text": "hello"}])
    stop_reason: str = "end_turn"
    ending: str = "whole"
    status: int = 200
    error: str = ""
    error_headers: dict[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        self.bodies.append(await request.json() if request.can_read_body else {})
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        self.asked.set()
        if self.status != 200:
            body = {"type": "error", "error": {"type": "some_error", "message": self.error}}
            return web.json_response(body, status=self.status, headers=self.error_headers)
        fixed = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-20990101"}
        said = {"content": self.content, "stop_reason": self.stop_reason, "stop_sequence": None, "usage": USAGE}
        return await self.tell(request, {**fixed, **said}, self.ending)


@asynccontextmanager
async def fake_anthropic() -> AsyncIterator[FakeAnthropic]:
    """Serve on a free port of the loopback interface."""
    fake = FakeAnthropic()
    async with serving(fake.answer) as fake.url:
        yield fake
