"""Cost of streams, and latency of health checks beside them, for each kind of upstream.

    python -m benchmarks.streams --streams 200 --rate 20 --seconds 20

Each kind in turn: a proxy alone on the first core, and on the second a stand-in for the provider, clients that read all
streams, and one that asks for `/healthz` fifty times a second. It prints the share of a core that the proxy uses, CPU
per chunk in ms (for `foreign` also that of litellm's process), and latencies of `/healthz` in ms.
"""

import argparse
import asyncio
import json
import os
import re
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.served import CORES, cpu, latency, served

CONFIG = """
upstreams: {{main: {{kind: {kind}, base_url: "{url}"{more}}}}}
models: [{{match: "*", upstream: main, chain: empty, window: 100000}}]
chains: {{empty: []}}
state: {{kind: memory}}
embedding: {{kind: none}}
telemetry: {{log_level: error}}
"""
KINDS = {"openai": "", "ollama": "", "anthropic": "", "foreign": ", provider: anthropic"}


def _sse(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _openai(delta: dict[str, str], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _ollama(text: str, **more: Any) -> bytes:
    message = {"role": "assistant", "content": text}
    return json.dumps({"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, **more}).encode() + b"\n"


def answer_of(path: str) -> tuple[str, list[bytes], bytes, list[bytes]]:
    """Return the media type, first events, a chunk and the last events of a streamed answer."""
    if path.endswith("/api/chat"):
        figures = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 9}
        return "application/x-ndjson", [], _ollama("word ", done=False), [_ollama("", **figures)]
    if path.endswith("/chat/completions"):
        ending = [_openai({}, "stop"), b"data: [DONE]\n\n"]
        return "text/event-stream", [], _openai({"content": "word "}), ending
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    used = {"input_tokens": 9, "output_tokens": 9}
    begin = [
        _sse("message_start", message={**message, "usage": used}),
        _sse("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ]
    delta = _sse("content_block_delta", index=0, delta={"type": "text_delta", "text": "word "})
    ending = [
        _sse("content_block_stop", index=0),
        _sse("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 9}),
        _sse("message_stop"),
    ]
    return "text/event-stream", begin, delta, ending


class StandIn:
    """A stand-in for a provider that streams at a fixed rate."""

    def __init__(self, rate: float, chunks: int) -> None:
        self._pause, self._chunks = 1 / rate, chunks

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                await reader.readexactly(int(length[1]) if length else 0)
                path = head.split(b" ", 2)[1].decode().partition("?")[0]
                if head.startswith(b"GET") or path.endswith("/api/show"):
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
                    continue
                await self._stream(writer, path)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter, path: str) -> None:
        media, begin, chunk, ending = answer_of(path)
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for each in begin:
            _chunk(writer, each)
        for _ in range(self._chunks):
            _chunk(writer, chunk)
            await asyncio.sleep(self._pause)
        for each in (*ending, b""):
            _chunk(writer, each)
        await writer.drain()


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def _read(port: int, until: float) -> int:
    """Read streams one after the other, and return the number of their events."""
    body = json.dumps({"model": "claude-x", "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    head += "authorization: Bearer sk-none\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    events = 0
    while perf_counter() < until:
        writer.write(request)
        ended = b""
        while b"data: [DONE]" not in ended:
            data = await reader.read(2**16)
            if not data:
                raise ConnectionError("the proxy broke off a stream")
            events += data.count(b"data: ")
            ended = ended[-20:] + data
    writer.close()
    return events


async def _look(http: aiohttp.ClientSession, base: str, until: float) -> list[float]:
    seconds = []
    while perf_counter() < until:
        begun = perf_counter()
        async with http.get(f"{base}/healthz") as response:
            await response.read()
        seconds.append(perf_counter() - begun)
        await asyncio.sleep(0.02)
    return seconds


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def measure(kind: str, options: argparse.Namespace, folder: Path) -> None:
    """Measure one kind of upstream, and print its figures."""
    chunks = round(options.rate * 5)
    server = await asyncio.start_server(StandIn(options.rate, chunks).serve, "127.0.0.1", 0, backlog=1000)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" + ("/v1" if kind == "openai" else "")
    config = folder / f"{kind}.yaml"
    config.write_text(CONFIG.format(kind=kind, url=url, more=KINDS[kind]))
    async with served(config, pinned=True) as (process, base), server:
        port = int(base.rpartition(":")[2])
        await _read(port, perf_counter() + 0.1)  # loads what it needs
        for child in _children(process.pid):
            os.sched_setaffinity(child, CORES[-1:])  # litellm, beside the load
        async with aiohttp.ClientSession() as http:
            pids = [process.pid, *_children(process.pid)]
            before, begun = [cpu(pid) for pid in pids], perf_counter()
            until = begun + options.seconds
            reading = [asyncio.ensure_future(_read(port, until)) for _ in range(options.streams)]
            health = await _look(http, base, until)
            events = sum(await asyncio.gather(*reading))
            spent, seconds = [cpu(pid) - old for pid, old in zip(pids, before, strict=True)], perf_counter() - begun
    beside = f", litellm {1000 * spent[1] / events:.3f}" if len(spent) > 1 else ""
    cost = f"{spent[0] / seconds:.2f} of a core   {1000 * spent[0] / events:.3f} ms a chunk{beside}"
    print(f"{kind:10} {events / seconds:7.0f} chunks/s   {cost}   health {latency(health)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200, help="at once")
    parser.add_argument("--rate", type=float, default=20, help="chunks a second of each")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    os.sched_setaffinity(0, CORES[-1:])
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds.split(","):
            asyncio.run(measure(kind, options, Path(folder)))


if __name__ == "__main__":
    main()
