"""What choosing memories costs with 10,000 of them, and how well scores tell what helps.

`python -m benchmarks.memories`; needs the extras `semantic` and `vector`. CPU is that of all threads of the process.
"""

import asyncio
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, process_time

from policies.select_memories import SelectMemories
from proxy.chat import ChatRequest, Message
from proxy.config.embedding_settings import SentenceTransformersEmbedding
from proxy.context import Identity
from proxy.memories import Draft, Owner
from proxy.memories.service import MemoryService
from proxy.memories.shelves import Shelves
from proxy.memories.vectors import MemoryVectors
from proxy.state.decisions import Memos
from proxy.state.sqlite import DiskStore
from proxy.testing import context
from proxy.text.bm25 import fits, index
from proxy.vectors.base import IndexBounds
from proxy.vectors.embedded import Embedded
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.index import IndexService
from proxy.vectors.sentence_transformers import Sentences

OWNER = Owner("t", "user-1")
WHO = ["The user", "The user's sister", "The user's manager", "Their team", "The customer", "Her brother", "The dog"]
DOES = ["likes", "bought", "moved to", "works on", "is afraid of", "asked about", "has an appointment for", "collects"]
WHAT = ["old maps", "the harbour", "a green bicycle", "PostgreSQL", "spicy soup", "the dentist", "a loan", "jazz"]
WHEN = [
    "since spring",
    "in Lisbon",
    "on Mondays",
    "for the project",
    "with a friend",
    "every year",
    "by train",
    "at home",
]
# pairs that the calibration has not seen: what is asked, and what helps
HELD_OUT = [
    ("Order lunch for me", "The user does not eat pork"),
    ("Which seat should I reserve on the train?", "The user prefers window seats"),
    ("Write the release notes", "Release notes of this team are written in British English"),
    ("How do I restart the billing service?", "Billing runs as a systemd unit on host bill-02"),
    ("What can my son read this summer?", "The user's son is nine and loves dragons"),
    ("Plan the garden for next year", "The user's garden is in the shade most of the day"),
    ("Find a dentist", "The user lives in Bremen, near the university"),
    ("Make the chart nicer", "The user is colour-blind: red and green look the same"),
    ("When is the rent due?", "The rent is paid on the third of each month"),
    ("Can you help me learn words?", "The user is learning Italian for a trip"),
    ("Which shoes fit the dress code?", "The office asks for formal clothes"),
    ("Call the vet", "The user's dog Biscuit has a heart condition"),
    ("¿Qué vino llevo a la cena?", "El usuario no bebe alcohol"),
    ("Reserva un vuelo a Lima", "El usuario viaja solo con equipaje de mano"),
]
QUESTIONS = [f"{a} {b}" for a in ("Tell me about", "What do you know of", "Please plan") for b in (*WHAT, *WHEN)] + [
    question for question, _ in HELD_OUT
]


def texts(count: int) -> list[str]:
    chance = Random(1)
    found: dict[str, None] = {}
    while len(found) < count:
        words = (chance.choice(some) for some in (WHO, DOES, WHAT, WHEN))
        found[f"{' '.join(words)}, case {chance.randrange(10**6)}"] = None
    return list(found)


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as threads:
        store = DiskStore(Path(folder) / "store", 2**30)
        index = IndexService(Embedded(Path(folder) / "vectors", IndexBounds(10**6, 10**6, 1e6)), timeout=60)
        embedding = EmbeddingService(Sentences(SentenceTransformersEmbedding(kind="sentence-transformers")), index)
        vectors = MemoryVectors(embedding, index)
        service = MemoryService(Shelves(store, ttl=1e6), vectors, threads, most=20_000)
        await embedding.ready()
        await service.warm()
        print("calibration:", await vectors.calibration(60))
        await quality(embedding, vectors)
        start, cpu = perf_counter(), process_time()
        await service.add(OWNER, [Draft(text) for text in texts(count)])
        await service.settled()
        print(f"add {count}: {perf_counter() - start:.1f} s, CPU {process_time() - cpu:.1f} s")
        fresh = MemoryService(Shelves(store, ttl=1e6), vectors, threads)
        start, cpu = perf_counter(), process_time()
        await fresh.total([OWNER])
        print(f"first read of {count}: CPU {1e3 * (process_time() - cpu):.0f} ms")
        cpu = process_time()
        await fresh.search([OWNER], "warm up", limit=50, wait=10)
        print(f"first search of {count}: CPU {1e3 * (process_time() - cpu):.0f} ms")
        await selections(service, store)
        by_words = MemoryService(Shelves(store, ttl=1e6), MemoryVectors(None, None), threads)
        await by_words.search([OWNER], "warm up", limit=50, wait=0)
        print("by words alone:")
        await selections(by_words, store)
        await embedding.aclose()
        await index.aclose()
        await store.aclose()


async def quality(embedding: EmbeddingService, vectors: MemoryVectors) -> None:
    """How many held-out pairs reach the two thresholds, and how many of as many wrong ones."""
    calibration = await vectors.calibration(60)
    assert calibration is not None
    memories = [memory for _, memory in HELD_OUT]
    right: list[float] = []
    wrong: list[float] = []
    for place, (question, _) in enumerate(HELD_OUT):
        found = [each or 0.0 for each in await embedding.similarities("t", question, memories, wait=60)]
        vector = await vectors.of_question("t", question, 60)
        assert vector is not None
        shares = [fit.share for fit in fits(question, [index(memories)])]
        for at, figure in enumerate(calibration.figures(vector, found, shares)):
            (right if at == place else wrong).append(calibration.score(figure))
    for bar in (0.7, 0.5):
        share = [sum(score >= bar for score in some) / len(some) for some in (right, wrong)]
        print(f"held out, score at least {bar}: {share[0]:.0%} of what helps, {share[1]:.1%} of what does not")


async def selections(service: MemoryService, store: DiskStore) -> None:
    policy = SelectMemories(wait=10)
    cpus: list[float] = []
    walls: list[float] = []
    again: list[float] = []
    nothing: list[float] = []
    for number, question in enumerate(QUESTIONS):
        request = ChatRequest("m", (Message({"role": "user", "content": f"{question}, please ({number})"}),))
        ctx = replace(
            context(request, window=100_000),
            identity=Identity("t", "s", OWNER.user),
            memories=service.bind(Identity(OWNER.tenant, user=OWNER.user)),
            memo=Memos(store, ttl=1e6).bind(Identity("t", f"s{id(service)}")),
        )
        for cpu, wall in ((cpus, walls), (again, [])):
            start, used = perf_counter(), process_time()
            await policy.apply(request, ctx)
            wall.append(1e3 * (perf_counter() - start))
            cpu.append(1e3 * (process_time() - used))
        none = replace(ctx, memories=service.bind(Identity("t", user="user-nobody")))
        used = process_time()
        await policy.apply(request, none)
        nothing.append(1e3 * (process_time() - used))
    for name, values in (("selection, CPU", cpus), ("selection, wall", walls), ("as before, CPU", again)):
        ordered = sorted(values)
        print(f"{name}: median {median(ordered):.1f} ms, p95 {ordered[int(len(ordered) * 0.95)]:.1f} ms")
    print(f"a user without memories, CPU: median {median(nothing):.2f} ms")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
