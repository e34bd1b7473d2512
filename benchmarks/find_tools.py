"""Reach of tools: offered by `filter_tools`, or found by one search with the user's own words.

It takes the requests of a scorer's data that want one tool (`single`), gives each the same number of tools, offers a
few, and searches the others once for the user's message. It prints the number of requests, and the share in which the
wanted tool is offered; offered or among the five tools found; offered, found or named; and found by a search among all
tools for the beginning of its description, without its name.

`--queries` is a JSON object from `source number`, as `--missed` prints it for requests whose tool is not offered, to a
query that is searched for instead, such as a model would write it.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from pathlib import Path

from benchmarks.many_tools import padded
from policies.filter_tools import FilterTools
from proxy.chat import ChatRequest, Fields, Message, Tool
from proxy.config.settings import SentenceTransformersEmbedding
from proxy.context import Embedder, Identity
from proxy.policy import Rewrite
from proxy.testing import context, profile
from proxy.tools.search_tools import FURTHER, MOST, by_relevance, left_out
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.sentence_transformers import Sentences


def requests_of(folder: Path, count: int) -> dict[str, list[tuple[ChatRequest, str]]]:
    """Return the requests of each source, each with the name of its wanted tool."""
    defs = json.loads((folder / "tools.defs.json").read_text())
    lists = json.loads((folder / "tools.lists.json").read_text())
    by_source: dict[str, list[tuple[ChatRequest, str]]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        most = max((row["n_tools"] for row in rows), default=0)
        for row in rows:
            if row["kind"] == "single" and row["n_tools"] == most:
                tools = padded([defs[key] for key in lists[row["tools_list"]]], list(defs.values()), count, row["id"])
                messages = tuple(Message(each) for each in row["messages"])
                by_source[f"{path.stem} {row['lang']}"].append(
                    (ChatRequest("m", messages, tuple(map(Tool, tools)), Fields()), row["gold"][0])
                )
    return by_source


async def within_reach(
    request: ChatRequest, gold: str, policy: FilterTools, embedder: Embedder | None, query: str | None
) -> tuple[bool, bool, bool, bool]:
    """Return whether the tool is offered; offered or found; offered, found or named; found by its description."""
    ctx = context(request, model=profile(10**6), embedder=embedder)
    decision = await policy.decide(request, ctx)
    offered = (decision.request if isinstance(decision, Rewrite) else request).tools
    rank = by_relevance(request.tools, ctx, {}, {})
    last = next(message.text for message in reversed(request.messages) if message.get("role") == "user")
    found = await rank(query or last, left_out(request.tools, offered))
    wanted = next(tool for tool in request.tools if tool.name == gold)
    described = await rank(need(wanted), request.tools)
    is_offered = any(tool is wanted for tool in offered)
    named = is_offered or wanted in found[: MOST + FURTHER]
    return is_offered, is_offered or wanted in found[:MOST], named, wanted in described[:MOST]


def need(tool: Tool) -> str:
    """Return the first words of a description, without the tool's name."""
    words = str(tool["function"].get("description") or tool.name).split()
    return " ".join(word for word in words if tool.name.lower() not in word.lower())[:60]


async def measure(options: argparse.Namespace) -> None:
    folder, count, keep, model = options.data / "tools", options.count, options.keep, options.model
    queries = json.loads(options.queries.read_text()) if options.queries else {}
    service = EmbeddingService(Sentences(SentenceTransformersEmbedding(kind="sentence-transformers", model=model)))
    policy = FilterTools(keep=keep, strategy="select", wait=600, timeout=600)
    total: list[tuple[bool, ...]] = []
    print(f"{'source':28} requests  offered   within    named   by need")
    for source, rows in requests_of(folder, count).items():
        embedder = service.bind(Identity("benchmark")) if not options.words else None
        if embedder is not None:
            await embedder.similarities("", [tool.name for tool in rows[0][0].tools], wait=600)
        got: list[tuple[bool, ...]] = []
        for number, (request, gold) in enumerate(rows):
            query = queries.get(f"{source} {number}")
            got.append(await within_reach(request, gold, policy, embedder, query))
            if options.missed and not got[-1][0]:
                print(json.dumps({f"{source} {number}": request.messages[-1].text}, ensure_ascii=False))
        total += got
        show(source, got)
    show("all", total)
    await service.aclose()


def show(source: str, got: list[tuple[bool, ...]]) -> None:
    shares = [sum(each) / len(got) for each in zip(*got, strict=True)]
    print(f"{source:28} {len(got):8}  " + "     ".join(f"{share:.3f}" for share in shares), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the scorer's data")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--keep", type=int, default=10)
    parser.add_argument("--model", help="a folder with another sentence-transformers model")
    parser.add_argument("--queries", type=Path, help="a file with queries that were written for some of the requests")
    parser.add_argument("--missed", action="store_true", help="print the requests whose tool is not offered")
    parser.add_argument("--words", action="store_true", help="by words alone")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
