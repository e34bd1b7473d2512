"""What `filter_tools` costs: CPU of its turns, and what others wait while unseen tools are embedded.

    python -m benchmarks.tools_speed [--count 60 500 2000] [--load]

Printed are milliseconds of CPU, of all threads of the process together, at the median and the 95th percentile: of a
steady turn (the same user message, one more tool result), and of a new user message whose vector is made. Requests
are parsed anew each time, as from the wire; parsing is not counted. Behind them, milliseconds that pass: small requests
that only pass through a running proxy, while it is quiet and while 500 unseen tools are embedded, and how long the
request with those tools takes. Tools and messages are made of random words, and the vectors are those of the model.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.reload import LENGTH, Upstream
from policies.filter_tools import FilterTools
from proxy.chat import ChatRequest
from proxy.chat.parse import Body
from proxy.config.embedding_settings import SentenceTransformersEmbedding
from proxy.context import CacheRules, Context, Identity
from proxy.models.tokens import TokenService
from proxy.policy import Rewrite
from proxy.state.cache import OnceService
from proxy.state.decisions import Memos
from proxy.state.store import MemoryStore
from proxy.testing import context, profile
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.sentence_transformers import Sentences

ROOT = Path(__file__).parent.parent
_VERBS = "create list delete update find send book cancel convert summarize archive export share rename check"
_NOUNS = """
invoice flight hotel light alarm song ticket calendar recipe package branch payment contact playlist weather parcel
database photo translation meeting contract passenger vehicle sensor account article comment discount warehouse printer
museum patient lesson student exam tariff chart camera voucher reservation
"""
_DETAILS = """
the of a for with by in and given number name date owner status region which returns all matching records current user
identifier optional limit page sorted order between start end time zone currency amount address city country format
"""
VERBS, NOUNS, DETAILS = _VERBS.split(), _NOUNS.split(), _DETAILS.split()
MODEL = profile(10**6, cache=CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300), encoding="o200k_base")
CONFIG = """
upstreams: {{u: {{kind: openai, base_url: "http://127.0.0.1:{port}/v1"}}}}
models:
  - {{match: small, upstream: u, window: 8192, chain: empty}}
  - {{match: many, upstream: u, window: 1000000, chain: tools}}
chains: {{empty: [], tools: [filter_tools: {{}}]}}
server: {{watch: false}}
state: {{directory: "{folder}"}}
telemetry: {{log_level: warning}}
"""


def tools(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Definitions of some 800 bytes, each of another name."""
    chance = random.Random(seed)
    pairs = [(verb, noun, n) for n in range(1 + count // 500) for verb in VERBS for noun in NOUNS]
    return [_tool(chance, *pair) for pair in chance.sample(pairs, count)]


def _tool(chance: random.Random, verb: str, noun: str, number: int) -> dict[str, Any]:
    fields = {
        f"{chance.choice(NOUNS)}_{place}": {"type": "string", "description": _words(chance, 8)} for place in range(5)
    }
    about = f"{verb.title()}s a {noun}: {_words(chance, 30)}."
    parameters = {"type": "object", "properties": fields, "required": list(fields)[:2]}
    name = f"{verb}_{noun}" + (f"_{number}" if number else "")
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


def _words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(DETAILS + NOUNS, k=count))


def parsed(messages: Sequence[dict[str, Any]], definitions: Sequence[dict[str, Any]]) -> ChatRequest:
    """A request as it comes from the wire."""
    return Body(json.dumps({"model": "m", "messages": messages, "tools": definitions}).encode()).parse()


class Turns:
    """A conversation that goes on, behind services that last."""

    def __init__(self, embedding: EmbeddingService, definitions: Sequence[dict[str, Any]]) -> None:
        self._tokens, self._once, self._embedding = TokenService(), OnceService(), embedding
        self._memos = Memos(MemoryStore(2**26), ttl=600)
        self._tools = definitions
        self._policy = FilterTools(wait=60, timeout=60)
        self._chance = random.Random(2)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": _words(self._chance, 500)}]

    async def ask(self) -> float:
        """A new user message."""
        verb, noun = self._chance.choice(VERBS), self._chance.choice(NOUNS)
        if self.messages[-1]["role"] != "system":
            self.messages.append({"role": "assistant", "content": f"Done: {_words(self._chance, 10)}."})
        text = f"Please {verb} the {noun} of {_words(self._chance, 12)}."
        self.messages.append({"role": "user", "content": text})
        return await self._taken()

    async def go_on(self) -> float:
        """A tool's result; the same tool each time."""
        function = {"name": self._tools[0]["function"]["name"], "arguments": "{}"}
        call = {"id": f"c{len(self.messages)}", "type": "function", "function": function}
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": _words(self._chance, 150)})
        return await self._taken()

    async def _taken(self) -> float:
        request = parsed(self.messages, self._tools)
        ctx = self._context(request)
        await ctx.tokens.count(request)  # as the steps before it do
        begun = process_time()
        decision = await self._policy.apply(request, ctx)
        taken = (process_time() - begun) * 1000
        assert isinstance(decision, Rewrite), decision
        return taken

    def _context(self, request: ChatRequest) -> Context:
        return context(
            request,
            model=MODEL,
            tokens=self._tokens.bind(Identity("t"), MODEL),
            once=self._once.bind(Identity("t")),
            memo=self._memos.bind(Identity("t", "s")),
            embedder=self._embedding.bind(Identity("t")),
        )

    def close(self) -> None:
        """Stop the threads."""
        self._tokens.close()
        self._once.close()


async def turns(counts: Sequence[int]) -> None:
    """Print what each kind of turn costs."""
    embedding = EmbeddingService(Sentences(SentenceTransformersEmbedding(kind="sentence-transformers")))
    print(f"{'ms of CPU':32}   p50    p95")
    for count in counts:
        conversation = Turns(embedding, tools(count))
        first = await conversation.ask()
        await conversation.go_on()
        asked, steady = [], []
        for _ in range(20):
            asked.append(await conversation.ask())
            await conversation.go_on()
            steady += [await conversation.go_on() for _ in range(5)]
        conversation.close()
        print(f"{count:4} tools, all unseen             {first:6.0f}")
        _show(f"{count:4} tools, new user message", asked)
        _show(f"{count:4} tools, steady turn", steady)
    await embedding.aclose()


def _show(what: str, taken: Sequence[float]) -> None:
    points = statistics.quantiles(taken, n=20)
    print(f"{what:32}{statistics.median(taken):6.2f} {points[18]:6.2f}", flush=True)


async def load(count: int) -> None:
    """Print what small requests wait for, and the request whose tools nobody has seen."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        server = await loop.create_server(partial(Upstream, "u"), "127.0.0.1", 0)
        path = Path(folder) / "config.yaml"
        path.write_text(CONFIG.format(port=server.sockets[0].getsockname()[1], folder=Path(folder) / "state"))
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(path), "--port", "0"]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)/v1", (await process.stdout.readline()).decode())
            assert found is not None
            await _loaded(int(found[1]), count)
        finally:
            process.terminate()
            await process.wait()
            server.close()


async def _loaded(port: int, count: int) -> None:
    # the model loads, and what is imported late is
    await _sent(port, _body("many", tools(60, seed=9)))
    await asyncio.sleep(15)
    await _small(port, 2)
    quiet = await _small(port, 10)
    busy = asyncio.create_task(_small(port, 10))
    await asyncio.sleep(0.5)
    first = await _sent(port, _body("many", tools(count)))
    second = await _sent(port, _body("many", tools(count)))
    for what, taken in ("small requests, quiet", quiet), (f"beside {count} unseen tools", await busy):
        points = statistics.quantiles(taken, n=100)
        print(f"{what:32} p50 {points[49]:6.1f}  p99 {points[98]:6.1f}  slowest {max(taken):6.1f} ms that pass")
    print(f"the request with them {first:20.0f} ms, and the next one {second:.0f}")


async def _small(port: int, seconds: float) -> list[float]:
    body = _body("small", [])
    until = perf_counter() + seconds
    taken: list[float] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while perf_counter() < until:
        taken.append(await _over(reader, writer, body))
        await asyncio.sleep(0.005)
    writer.close()
    return taken


async def _sent(port: int, body: bytes) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = await _over(reader, writer, body)
    writer.close()
    return taken


async def _over(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> float:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    begun = perf_counter()
    writer.write(head % len(body) + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(answer)
    await reader.readexactly(int(length[1]) if length else 0)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return (perf_counter() - begun) * 1000


def _body(model: str, definitions: Sequence[dict[str, Any]]) -> bytes:
    body = {"model": model, "messages": [{"role": "user", "content": "Please cancel the flight of tomorrow."}]}
    return json.dumps({**body, "tools": definitions} if definitions else body).encode()


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, nargs="*", default=[60, 500, 2000], help="tools of a request")
    parser.add_argument("--load", action="store_true", help="also a running proxy, which takes half a minute")
    options = parser.parse_args()
    asyncio.run(turns(options.count))
    if options.load:
        asyncio.run(load(500))


if __name__ == "__main__":
    main()
