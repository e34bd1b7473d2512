"""Upstreams that receive a request and do not answer it: `python -m benchmarks.duplicate_calls`.

Each upstream reads the whole request, waits, and then closes or resets the connection, is silent until its timeout, or
sends half an answer. The requests cover every kind of path and upstream, streams, fresh and reused connections, and
fallbacks. Exit code 1 if upstreams received a request more often than the operator allows, or not at all, or if a
client received no answer.
"""

import argparse
import asyncio
import itertools
import socket
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.served import served
from tests.e2e.servers import (
    Received,
    Respond,
    Upstream,
    begin_stream,
    breaking_off,
    plainly,
    send_chunk,
    silent,
    upstream,
)

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{main}", idle_timeout: 1, breaker: {{failures: 0}}}}
  other: {{kind: openai, base_url: "{other}", api_key: sk-other, idle_timeout: 1, breaker: {{failures: 0}}}}
  claude: {{kind: anthropic, base_url: "{server}", idle_timeout: 1, breaker: {{failures: 0}}}}
  ollama: {{kind: ollama, base_url: "{server}", idle_timeout: 1, breaker: {{failures: 0}}}}
  foreign: {{kind: foreign, provider: mistral, base_url: "{main}", timeout: 1, breaker: {{failures: 0}}}}
models:
  - {{match: "gpt-*", upstream: main}}
  - {{match: fallback, upstream: main, fallbacks: [other]}}
  - {{match: repeat, upstream: main, fallbacks: [other], may_repeat: true}}
  - {{match: other, upstream: other}}
  - {{match: "claude-*", upstream: claude}}
  - {{match: ollama, upstream: ollama, num_ctx: 8192}}
  - {{match: mistral, upstream: foreign}}
chains: {{default: []}}
default_upstream: main
state: {{kind: memory}}
vectors: none
"""
BEARER = {"authorization": "Bearer sk-client"}
ANTHROPIC = {"x-api-key": "sk-ant-client", "anthropic-version": "2023-06-01"}
"""Headers of Anthropic's clients, whose key goes to Anthropic alone."""
QUESTIONS = ("/api/ps", "/api/show", "/api/tags", "/v1/models")
"""Paths by which Penstock asks about a server, free of charge."""
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a client."""

    path: str
    model: str = ""
    method: str = "POST"
    most: int = 1
    """Largest number of deliveries to upstreams."""
    streams: bool = True

    @property
    def headers(self) -> dict[str, str]:
        """Headers with the client's key, as the upstream's vendor wants them."""
        return ANTHROPIC if self.model == "claude-1" else BEARER

    def body(self, stream: bool) -> dict[str, Any] | None:
        if self.method in ("DELETE", "GET"):
            return None
        messages = [{"role": "user", "content": "hi"}]
        body = {"messages": messages, "input": "hi", "prompt": "hi", "max_tokens": 9, "stream": stream}
        return body | ({"model": self.model} if self.model else {})


ASKED = (
    *(Asked("/chat/completions", model) for model in ("gpt-1", "claude-1", "ollama", "mistral", "fallback")),
    Asked("/chat/completions", "repeat", most=2),
    *(Asked("/messages", model) for model in ("claude-1", "ollama")),
    *(Asked(path, "gpt-1") for path in ("/responses", "/completions", "/images/generations")),
    *(Asked("/embeddings", model, streams=False) for model in ("gpt-1", "ollama")),
    Asked("/batches", streams=False),
    *(Asked("/files/f", method=method, streams=False) for method in ("DELETE", "PATCH", "PUT")),
    Asked("/files/f", method="GET", most=2, streams=False),
)


async def closes(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def resets(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def half_head(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
    writer.close()


async def half_stream(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    await begin_stream(writer)
    await send_chunk(writer, b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n')
    writer.close()


ENDINGS: tuple[Respond, ...] = (closes, resets, silent, half_head, breaking_off, half_stream)


@dataclass
class Counted:
    """The outcomes of all requests."""

    delivered: Counter[int] = field(default_factory=Counter)
    """Requests by their number of deliveries, without those that may be repeated."""
    repeated: Counter[int] = field(default_factory=Counter)
    lost: int = 0

    @property
    def line(self) -> str:
        """Summary in one line."""
        attempts = self.delivered.total() + self.repeated.total()
        deliveries = f"deliveries {dict(sorted(self.delivered.items()))}, most {max(self.delivered)}"
        allowed = f"where repeating is allowed {dict(sorted(self.repeated.items()))}"
        return f"attempts {attempts}, {deliveries}, {allowed}, lost {self.lost}"


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[str, list[Upstream]]]:
    """Run a Penstock and the upstreams behind it."""
    async with AsyncExitStack() as stack:
        behind = [await stack.enter_async_context(upstream()) for _ in range(2)]
        main, other = (each.url for each in behind)
        text = CONFIG.format(main=main, other=other, server=main.removesuffix("/v1"))
        running = await stack.enter_async_context(served(text, folder))
        yield running.base, behind


async def answered(client: aiohttp.ClientSession, base: str, asked: Asked, stream: bool) -> bool:
    """Send a request, and return whether there was any answer."""
    try:
        url, body = f"{base}/v1{asked.path}", asked.body(stream)
        async with client.request(asked.method, url, json=body, headers=asked.headers) as response:
            with suppress(aiohttp.ClientPayloadError):  # an answer that has begun may break off
                await response.read()
            return True
    except (aiohttp.ClientError, TimeoutError):
        return False


async def run(wait: float) -> int:
    """Send all requests, print the outcomes, and return the exit code."""
    counted, faults = Counted(), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        async with world(Path(folder)) as (base, behind):
            patience = aiohttp.ClientTimeout(total=_PATIENCE + wait)
            connector = aiohttp.TCPConnector(force_close=True)
            async with aiohttp.ClientSession(connector=connector, timeout=patience) as client:
                for asked, ending, reused in itertools.product(ASKED, ENDINGS, (False, True)):
                    for stream in (False, True) if asked.streams else (False,):
                        for each in behind:
                            each.respond = plainly
                        if reused:
                            await answered(client, base, asked, False)
                        for each in behind:
                            each.respond = late(ending, wait)
                            each.received.clear()
                        is_answered = await answered(client, base, asked, stream)
                        got = sum(one.path not in QUESTIONS for each in behind for one in each.received)
                        counted.lost += not is_answered
                        (counted.delivered if asked.most == 1 else counted.repeated)[got] += 1
                        if not 1 <= got <= asked.most or not is_answered:
                            name = f"{asked.method} {asked.path} {asked.model} {'stream ' * stream}{'reused ' * reused}"
                            faults.append(f"{name}{ending.__name__}: {got} deliveries, answered: {is_answered}")
    print(*faults, counted.line, sep="\n")
    return int(bool(faults))


def late(ending: Respond, wait: float) -> Respond:
    async def respond(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(wait)
        await ending(upstream, received, writer)

    return respond


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wait", type=float, default=0.02, help="seconds between a request and its end")
    sys.exit(asyncio.run(run(parser.parse_args().wait)))


if __name__ == "__main__":
    main()
