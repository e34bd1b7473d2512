"""Whether a tool is within reach: offered by `filter_tools`, or found by one search with the user's own words.

Takes the requests of a scorer's data whose wanted tool is one (`single`), gives each the same number of tools, offers a
few, and searches the others once for what the user said. Printed is how many requests there are, the share whose tool
is offered, the share whose tool is offered or among the five that are found, or among those that it names besides, and
the share in which a search among all tools finds it when it is asked for by the beginning of its description: its name
is left out.

`--queries` is a JSON object of `source number`, as `--missed` prints it of requests whose tool is not offered, and of a
query that somebody wrote who saw that request alone: what a model would ask. It is searched for instead.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from pathlib import Path

from benchmarks.many_tools import padded
from policies.filter_tools import FilterTools
from proxy.chat import ChatRequest, Fields, Message, Tool
from proxy.config.embedding_settings import SentenceTransformersEmbedding
from proxy.context import Embedder, Identity
from proxy.policy import Rewrite
from proxy.testing import context, profile
from proxy.tools.search_tools import FURTHER, MOST, by_relevance, left_out
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.sentence_transformers import Sentences


def requests_of(folder: Path, count: int) -> dict[str, list[tuple[ChatRequest, str]]]:
    """The requests of each source, and the tool that each wants."""
    defs = json.loads((folder / "tools.defs.json").read_text())
    lists = json.loads((folder / "tools.lists.json").read_text())
    found: dict[str, list[tuple[ChatRequest, str]]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        most = max((row["n_tools"] for row in rows), default=0)
        for row in rows:
            if row["kind"] == "single" and row["n_tools"] == most:
                tools = padded([defs[key] for key in lists[row["tools_list"]]], list(defs.values()), count, row["id"])
                messages = tuple(Message(each) for each in row["messages"])
                found[f"{path.stem} {row['lang']}"].append(
                    (ChatRequest("m", messages, tuple(map(Tool, tools)), Fields()), row["gold"][0])
                )
    return found


async def within_reach(
    request: ChatRequest, gold: str, policy: FilterTools, embedder: Embedder | None, query: str | None
) -> tuple[bool, bool, bool, bool]:
    """Whether the tool is offered, is offered or found, is offered, found or named, and is found by what it is for."""
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
    """The first words of a description."""
    words = str(tool["function"].get("description") or tool.name).split()
    return " ".join(word for word in words if tool.name.lower() not in word.lower())[:60]


async def measure(options: argparse.Namespace) -> None:
    """Print the shares of each source and of all."""
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
    """One line."""
    shares = [sum(each) / len(got) for each in zip(*got, strict=True)]
    print(f"{source:28} {len(got):8}  " + "     ".join(f"{share:.3f}" for share in shares), flush=True)


def main() -> None:
    """Measure."""
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
