"""What `filter_tools` costs: CPU of its turns.

    python -m benchmarks.tools_speed [--count 60 500 2000]

Printed are milliseconds of CPU, of all threads of the process together, at the median and the 95th percentile: of a
steady turn (the same user message, one more tool result), and of a new user message whose vector is made. Requests
are parsed anew each time, as from the wire; parsing is not counted. Tools and messages are made of random words, and
the vectors are those of the model.
"""

import argparse
import asyncio
import json
import random
import statistics
from collections.abc import Sequence
from time import process_time
from typing import Any

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


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, nargs="*", default=[60, 500, 2000], help="tools of a request")
    asyncio.run(turns(parser.parse_args().count))


if __name__ == "__main__":
    main()
