"""CPU of `filter_tools` per turn.

    python -m benchmarks.tools_speed [--count 60 500 2000]

It prints milliseconds of CPU of all threads, at the median and the 95th percentile: of a steady turn (the same user
message, one more tool result), and of a new user message whose vector is computed. Requests are parsed anew each time,
as from the wire; parsing is not counted. Tools and messages are random words, and the vectors are those of the model.
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from time import process_time
from typing import Any

from benchmarks.turns import Writer
from policies.filter_tools import FilterTools
from proxy.chat import ChatRequest
from proxy.chat.parse import Body
from proxy.config.settings import SentenceTransformersEmbedding
from proxy.context import CacheRules, Context, Identity
from proxy.models.tokens import TokenService
from proxy.policy import Rewrite
from proxy.state.cache import OnceService
from proxy.state.decisions import Memos
from proxy.state.sqlite import SqliteStore
from proxy.testing import context, profile
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.sentence_transformers import Sentences

MODEL = profile(10**6, cache=CacheRules(read=0.1, write=1.25, minimum=1024, ttl=300), encoding="o200k_base")


def parsed(messages: Sequence[dict[str, Any]], definitions: Sequence[dict[str, Any]]) -> ChatRequest:
    """Return a request as it comes from the wire."""
    return Body(json.dumps({"model": "m", "messages": messages, "tools": definitions}).encode()).parse()


class Turns:
    """A growing conversation with the services of a running proxy."""

    def __init__(self, embedding: EmbeddingService, definitions: Sequence[dict[str, Any]]) -> None:
        self._tokens, self._once, self._embedding = TokenService(), OnceService(), embedding
        self._memos = Memos(SqliteStore(None, 2**26), ttl=600)
        self._tools = definitions
        self._policy = FilterTools(wait=60, timeout=60)
        self._writer = Writer(2)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": self._writer.text(3500)}]

    async def ask(self) -> float:
        """Add a user message, and return the milliseconds of CPU."""
        if self.messages[-1]["role"] != "system":
            self.messages.append({"role": "assistant", "content": f"Done: {self._writer.text(70)}"})
        self.messages.append({"role": "user", "content": f"Please look into this: {self._writer.text(140)}"})
        return await self._measure()

    async def go_on(self) -> float:
        """Add a result of the same tool, and return the milliseconds of CPU."""
        called, result = self._writer.step(1000)
        called["tool_calls"][0]["function"]["name"] = "tool_0"
        self.messages += [called, result]
        return await self._measure()

    async def _measure(self) -> float:
        request = parsed(self.messages, self._tools)
        ctx = self._context(request)
        await ctx.tokens.count(request)  # as the steps before it do
        begun = process_time()
        decision = await self._policy.decide(request, ctx)
        spent = (process_time() - begun) * 1000
        assert isinstance(decision, Rewrite), decision
        return spent

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
        """Stop the worker threads."""
        self._tokens.close()
        self._once.close()


async def turns(counts: Sequence[int]) -> None:
    """Print the cost of each kind of turn."""
    embedding = EmbeddingService(Sentences(SentenceTransformersEmbedding(kind="sentence-transformers")))
    print(f"{'ms of CPU':32}   p50    p95")
    for count in counts:
        conversation = Turns(embedding, Writer(1).tools(count))
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


def _show(kind: str, costs: Sequence[float]) -> None:
    points = statistics.quantiles(costs, n=20)
    print(f"{kind:32}{statistics.median(costs):6.2f} {points[18]:6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, nargs="*", default=[60, 500, 2000], help="tools of a request")
    asyncio.run(turns(parser.parse_args().count))


if __name__ == "__main__":
    main()
