"""The mixed load of `benchmarks.soak`: its clients, and an upstream that fails now and then."""

import asyncio
import contextlib
import json
import random
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.turns import Writer

KEYS = {"ann": "pk-soak-ann", "bob": "pk-soak-bob", "tight": "pk-soak-tight"}
"""Keys of Penstock by tenant; `tight` has few requests a minute."""

_MARKER = re.compile(r'recall\(\\"([a-z2-7]{20})\\"\)')
_TURNS = 14
"""Turns of an agent's conversation, each with one large tool result, up to some 200 KB."""
_CONVERSATIONS = 8
_TOOLS = Writer(0).tools(45)


class Upstream:
    """A stand-in for OpenAI that now and then fails, stalls or breaks off."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.handles: deque[str] = deque(maxlen=200)
        """Handles in the last requests."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_get("/v1/models", self._models)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m-1", "object": "model"}]})

    async def _embeddings(self, request: web.Request) -> web.Response:
        await request.read()
        entry = {"object": "embedding", "index": 0, "embedding": [0.25] * 256}
        return web.json_response({"object": "list", "data": [entry], "usage": {"prompt_tokens": 4, "total_tokens": 4}})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        text = (await request.read()).decode()
        asked = json.loads(text)
        self.handles += _MARKER.findall(text)
        fault = self._fault()
        if fault == "error":
            return web.json_response({"error": {"message": "no", "code": "upstream_fault"}}, status=500)
        if fault == "busy":
            return web.json_response({"error": {"message": "no", "code": "upstream_busy"}}, status=429)
        if fault == "stall":
            await asyncio.sleep(30)
        if asked.get("stream"):
            return await self._stream(request, breaks=fault == "break")
        if fault == "break" and request.transport is not None:
            request.transport.abort()
        return web.json_response(self._answer(asked, text))

    def _fault(self) -> str | None:
        at = self._chance.random()
        for fault, share in (("error", 0.01), ("busy", 0.005), ("stall", 0.003), ("break", 0.01)):
            if at < share:
                self.faults[fault] += 1
                return fault
            at -= share
        return None

    def _answer(self, asked: dict[str, Any], text: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "Certainly. " * 20}
        reason = "stop"
        found = _MARKER.findall(text)
        tools = {tool["function"]["name"] for tool in asked.get("tools") or ()}
        if found and "recall" in tools and asked["messages"][-1]["role"] != "tool" and self._chance.random() < 0.2:
            function = {"name": "recall", "arguments": json.dumps({"handle": self._chance.choice(found)})}
            call = {"id": f"r{self._chance.random()}", "type": "function", "function": function}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": 40, "total_tokens": len(text) // 4 + 40}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        head = {"id": "c-1", "object": "chat.completion", "created": 1, "model": asked["model"]}
        return {**head, "choices": [choice], "usage": usage}

    async def _stream(self, request: web.Request, *, breaks: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            for n in range(30):
                delta = {"index": 0, "delta": {"content": f"word {n} "}, "finish_reason": None}
                chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [delta]}
                await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                await asyncio.sleep(0.02)
                if breaks and n == 10 and request.transport is not None:
                    request.transport.abort()
            await response.write(b"data: [DONE]\n\n")
        return response


class Clients:
    """Clients that send requests of all kinds, and count the outcomes."""

    def __init__(self, base: str, http: aiohttp.ClientSession, upstream: Upstream, seed: int, admin: str) -> None:
        self._base, self._http, self._upstream, self._admin = base, http, upstream, admin
        self._chance = random.Random(seed)
        self._writer = Writer(seed)
        self._serial = 0
        self._agents: list[tuple[str, list[dict[str, Any]]]] = [("", [])] * _CONVERSATIONS
        self._talk: list[dict[str, Any]] = []
        self._ids: deque[str] = deque(maxlen=100)
        self.outcomes: dict[str, Counter[str]] = {}
        self.unexpected: Counter[str] = Counter()
        self.may_be_late = False
        """True while the load exceeds the capacity, so that steps may miss their deadline."""
        kinds: list[tuple[Callable[[], Awaitable[tuple[str, bool]]], int]] = [
            (self._small, 40), (self._stream, 15), (self._leaving, 8), (self._impatient, 3), (self._agent, 8),
            (self._long, 3), (self._compress, 4), (self._retrieve, 5), (self._embed, 5), (self._models, 2),
            (self._wrong, 7), (self._limited, 2), (self._operator, 1),
        ]  # fmt: skip
        self._kinds, self._weights = [kind for kind, _ in kinds], [weight for _, weight in kinds]

    async def one(self, *, only_large: bool = False) -> None:
        """Send one request; with `only_large` one that fills caches."""
        kind = self._agent if only_large else self._chance.choices(self._kinds, self._weights)[0]
        name = kind.__name__.strip("_")
        try:
            async with asyncio.timeout(60):
                outcome, is_fine = await kind()
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as error:
            outcome, is_fine = type(error).__name__, False
        self.outcomes.setdefault(name, Counter())[outcome] += 1
        if not is_fine:
            self.unexpected[f"{name} {outcome}"] += 1

    def begin(self) -> None:
        """Reset the counts."""
        self.outcomes.clear()
        self.unexpected.clear()

    def _is_fine(self, status: int, code: str) -> bool:
        """Return whether an answer is expected: the upstream may fail, Penstock must not."""
        late = status == 503 and code == "server_is_overloaded"
        return status == 200 or code.startswith("upstream_") or (late and self.may_be_late)

    async def _send(self, method: str, path: str, key: str = "", **options: Any) -> tuple[int, bytes]:
        who = key or KEYS[self._chance.choice(("ann", "bob"))]
        headers = {"authorization": f"Bearer {who}"}
        async with self._http.request(method, self._base + path, headers=headers, **options) as response:
            if known := response.headers.get("x-request-id"):  # `/metrics` and probes have none
                self._ids.append(known)
            return response.status, await response.read()

    async def _asked(self, body: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[str, bool]:
        """Send a request, and return its outcome, and whether it is expected."""
        return self._outcome(*await self._send("POST", path, data=json.dumps(body).encode()))

    def _outcome(self, status: int, answer: bytes) -> tuple[str, bool]:
        code = (json.loads(answer)["error"]["code"] or "") if status >= 400 else ""
        return f"{status} {code}".strip(), self._is_fine(status, code)

    def _body(self, **fields: Any) -> dict[str, Any]:
        self._serial += 1
        question = f"Question {self._serial}: {self._writer.text(420)}"
        return {"model": "m", "messages": [{"role": "user", "content": question}], **fields}

    async def _small(self) -> tuple[str, bool]:
        return await self._asked(self._body())

    async def _agent(self) -> tuple[str, bool]:
        place = self._chance.randrange(_CONVERSATIONS)
        key, talk = self._agents[place]
        if not talk or len(talk) > 2 * _TURNS:
            self._serial += 1
            key = self._chance.choice(("ann", "bob"))
            talk = [{"role": "system", "content": "Work."}, {"role": "user", "content": f"Read logs {self._serial}."}]
        self._serial += 1
        call = {"id": f"c{self._serial}", "type": "function", "function": {"name": "tool_1", "arguments": "{}"}}
        lines = "\n".join(f"{n}: {self._serial} {self._writer.text(140)}" for n in range(100))
        more: list[dict[str, Any]] = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": lines},
        ]
        talk = [*talk, *more]
        self._agents[place] = key, talk
        body = {"model": "m", "messages": talk, "tools": _TOOLS}
        sent = json.dumps(body).encode()
        return self._outcome(*await self._send("POST", "/v1/chat/completions", KEYS[key], data=sent))

    async def _long(self) -> tuple[str, bool]:
        """Continue a conversation that outgrows its window, so that it is cut and searched."""
        if not 0 < len(self._talk) < 160:
            self._talk = [self._message(n) for n in range(61)]
        self._talk = [*self._talk, self._message(1), self._message(0)]
        return await self._asked({"model": "m", "messages": self._talk})

    def _message(self, n: int) -> dict[str, Any]:
        self._serial += 1
        lines = [f"{self._serial}.{k} {self._writer.text(210)}" for k in range(8)]
        return {"role": "assistant" if n % 2 else "user", "content": "\n".join(lines)}

    async def _compress(self) -> tuple[str, bool]:
        _, talk = self._agents[self._chance.randrange(_CONVERSATIONS)]
        return await self._asked({"model": "m", "messages": talk or self._body()["messages"]}, "/v1/compress")

    async def _stream(self) -> tuple[str, bool]:
        url, headers = f"{self._base}/v1/chat/completions", {"authorization": f"Bearer {KEYS['ann']}"}
        async with self._http.post(url, json=self._body(stream=True), headers=headers) as response:
            answer = await response.read()
        if response.status != 200:
            return self._outcome(response.status, answer)
        if answer.endswith(b"data: [DONE]\n\n"):
            return "200", True
        return "200, broken off with an error", b'"code":"upstream_' in answer

    async def _leaving(self) -> tuple[str, bool]:
        """Disconnect in mid-stream."""
        url, headers = f"{self._base}/v1/chat/completions", {"authorization": f"Bearer {KEYS['bob']}"}
        async with self._http.post(url, json=self._body(stream=True), headers=headers) as response:
            for _ in range(self._chance.randrange(1, 12)):
                await response.content.readany()
            response.close()
        return f"left a {response.status}", response.status == 200 or response.status >= 429

    async def _impatient(self) -> tuple[str, bool]:
        """Disconnect before the answer begins."""
        try:
            async with asyncio.timeout(self._chance.random() * 0.01):
                return await self._small()
        except TimeoutError:
            return "left", True

    async def _retrieve(self) -> tuple[str, bool]:
        known = list(self._upstream.handles)
        handle = self._chance.choice(known) if known else "a" * 20
        status, _ = await self._send("GET", f"/v1/retrieve/{handle}")
        return str(status), status in (200, 404)

    async def _embed(self) -> tuple[str, bool]:
        return await self._asked({"model": "m", "input": f"text {self._serial}"}, "/v1/embeddings")

    async def _models(self) -> tuple[str, bool]:
        status, _ = await self._send("GET", "/v1/models")
        return str(status), status == 200

    async def _wrong(self) -> tuple[str, bool]:
        """Send a request that must be refused."""
        path = "/v1/chat/completions"
        method, path, key, data, expected = self._chance.choice(
            [
                ("POST", path, "", b'{"model": "m", "messages": [', 400),
                ("POST", path, "", b'{"model": "m", "messages": "hi"}', 400),
                ("POST", path, "pk-nobody", b"{}", 401),
                ("POST", path, "", b'{"model": "m", "model": "n", "messages": []}', 400),
                ("GET", "/v1/files", "", b"", 404),
                ("GET", f"/v1/{self._serial}", "", b"", 404),
            ]
        )
        status, _ = await self._send(method, path, key, data=data)
        return str(status), status == expected

    async def _limited(self) -> tuple[str, bool]:
        status, _ = await self._send("POST", "/v1/chat/completions", KEYS["tight"], json=self._body())
        return str(status), status in (200, 429, 500, 502, 503, 504)

    async def _operator(self) -> tuple[str, bool]:
        known = self._ids[0] if self._ids else "none"
        path = self._chance.choice(("/metrics", "/readyz", "/admin/requests?limit=5", f"/v1/explain/{known}"))
        status, _ = await self._send("GET", path, self._admin if path.startswith(("/admin", "/metrics")) else "")
        return str(status), status in (200, 404)
