"""An Ollama server on loopback: says what it is told to, cuts prompts as silently as the real one, remembers all."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.loopback import serving

Said = dict[str, Any]


def say(*texts: str) -> list[Said]:
    """The messages of lines that say these texts."""
    return [{"role": "assistant", "content": text} for text in texts]


@dataclass
class FakeOllama:
    """What the server answers next, and what reached it."""

    url: str = ""
    said: list[Said] = field(default_factory=lambda: say("Hel", "lo"))
    """The message of each line; the last line of all is empty but for the figures."""
    last: Said = field(default_factory=lambda: {"done_reason": "stop", "eval_count": 7, "load_duration": 1_500_000})
    logprobs: list[Any] | None = None
    status: int = 200
    error: str = ""
    """Sent instead of an answer; with status 200 as a line behind `said`."""
    raw: bytes | None = None
    """Sent instead of an answer, as it is."""
    piece: int = 0
    """Bytes per write of a stream; 0 for a line each."""
    ending: str = "whole"
    """How a stream ends: `whole`, `cut` (the connection breaks), `short` (no last line) or `never`."""
    window: int = 1_000_000
    """The context of the running model; a longer prompt loses its oldest messages."""
    figures: bool = True
    """Whether the prompt's tokens are told."""
    running: dict[str, int] = field(default_factory=dict)
    shown: Said | None = field(default_factory=dict)
    tags: list[Any] = field(default_factory=list)
    delay: float = 0.0
    """Seconds before any answer."""
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)
    """The clients' ports: one for each connection."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has arrived."""
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client leaves before its answer is complete."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path_qs)
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        raw = await request.read()
        self.bodies.append(json.loads(raw) if raw[:1] == b"{" else raw)
        self.asked.set()
        assert request.transport is not None
        self.ports.add(request.transport.get_extra_info("peername")[1])
        try:
            await asyncio.sleep(self.delay)
            return await self._answer(request)
        except (asyncio.CancelledError, ConnectionResetError):
            self.dropped.set()
            raise

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/v1/"):
            return await self._compatible(request)
        match request.path:
            case "/api/ps":
                models = [{"name": name, "model": name, "context_length": n} for name, n in self.running.items()]
                return web.json_response({"models": models})
            case "/api/show":
                return web.json_response(self.shown or {"error": "model not found"}, status=200 if self.shown else 404)
            case "/api/tags":
                return web.json_response({"models": self.tags})
        if self.raw is not None:
            return web.Response(body=self.raw, status=self.status)
        if self.status != 200:
            return web.json_response({"error": self.error}, status=self.status)
        return await self._chat(request, self.bodies[-1])

    async def _chat(self, request: web.Request, body: Said) -> web.StreamResponse:
        head = {"model": body["model"], "created_at": "2026-11-21T10:00:00.123456789Z"}
        scores = {"logprobs": self.logprobs} if self.logprobs else {}
        last = {**head, "message": {"role": "assistant", "content": ""}, "done": True, **self.last}
        if self.figures:
            last["prompt_eval_count"] = self._evaluated(body["messages"])
        if body.get("stream") is False:
            whole: Said = {"role": "assistant", "content": "".join(said.get("content", "") for said in self.said)}
            for said in self.said:
                if said.get("thinking"):
                    whole["thinking"] = whole.get("thinking", "") + said["thinking"]
                if said.get("tool_calls"):
                    whole["tool_calls"] = whole.get("tool_calls", []) + said["tool_calls"]
            return web.json_response({**last, "message": whole, **scores})
        lines = [{**head, "message": said, "done": False, **scores} for said in self.said]
        if self.error:
            lines.append({"error": self.error})
        elif self.ending == "whole":
            lines.append(last)
        return await self._stream(request, lines)

    async def _stream(self, request: web.Request, lines: list[Said]) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        await answer.prepare(request)
        texts = [json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines]
        whole = b"".join(texts)
        pieces = [whole[at : at + self.piece] for at in range(0, len(whole), self.piece)] if self.piece else texts
        for piece in pieces:
            await answer.write(piece)
            await asyncio.sleep(0)
        if self.ending == "never":
            await asyncio.sleep(60)
        if self.ending == "cut":
            assert request.transport is not None
            request.transport.abort()
        return answer

    def _evaluated(self, messages: list[Said]) -> int:
        """As `chatPrompt` does it: messages leave from the front until the rest fits; system ones and the last stay."""
        for start in range(len(messages)):
            system = [message for message in messages[:start] if message["role"] == "system"]
            size = size_of([*system, *messages[start:]])
            if size <= self.window:
                return size
        return self.window // 2

    async def _compatible(self, request: web.Request) -> web.StreamResponse:
        body = self.bodies[-1]
        if isinstance(body, dict) and body.get("stream"):
            answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await answer.prepare(request)
            await answer.write(b'data: {"choices":[]}\n\n')
            await answer.write(b"data: [DONE]\n\n")
            return answer
        return web.json_response({"path": request.path_qs})


def size_of(messages: list[Said]) -> int:
    """The fake's tokens: one for each four characters of text."""
    return sum(len(message["content"]) for message in messages) // 4


@asynccontextmanager
async def fake_ollama() -> AsyncIterator[FakeOllama]:
    """Serve on a free port of the loopback interface."""
    fake = FakeOllama()
    async with serving(fake.serve) as fake.url:
        yield fake
