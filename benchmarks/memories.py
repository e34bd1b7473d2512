"""Recall and precision of the scores of memories: `python -m benchmarks.memories`. Needs the extra `semantic`."""

import asyncio
import tempfile
from pathlib import Path

from proxy.config.embedding_settings import SentenceTransformersEmbedding
from proxy.memories.vectors import MemoryVectors
from proxy.text.bm25 import fits, index
from proxy.vectors.base import IndexBounds
from proxy.vectors.embedded import Embedded
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.index import IndexService
from proxy.vectors.sentence_transformers import Sentences

# pairs that the calibration has not seen: a request, and a memory that helps
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


async def main() -> None:
    """Print the share of held-out pairs that reach each threshold, and that of wrong pairs."""
    with tempfile.TemporaryDirectory() as folder:
        points = IndexService(Embedded(Path(folder), IndexBounds(10**6, 10**6, 1e6)), timeout=60)
        embedding = EmbeddingService(Sentences(SentenceTransformersEmbedding(kind="sentence-transformers")), points)
        await embedding.ready()
        await quality(embedding, MemoryVectors(embedding, points))
        await embedding.aclose()
        await points.aclose()


async def quality(embedding: EmbeddingService, vectors: MemoryVectors) -> None:
    calibration = await vectors.calibration(60)
    assert calibration is not None
    memories = [memory for _, memory in HELD_OUT]
    right: list[float] = []
    wrong: list[float] = []
    for place, (question, _) in enumerate(HELD_OUT):
        cosines = [each or 0.0 for each in await embedding.similarities("t", question, memories, wait=60)]
        vector = await vectors.of_question("t", question, 60)
        assert vector is not None
        shares = fits(question, [index(memories)]).shares.tolist()
        for at, figure in enumerate(calibration.figures(vector, cosines, shares)):
            (right if at == place else wrong).append(calibration.score(figure))
    for bar in (0.7, 0.5):
        share = [sum(score >= bar for score in scores) / len(scores) for scores in (right, wrong)]
        print(f"held out, score at least {bar}: {share[0]:.0%} of what helps, {share[1]:.1%} of what does not")


if __name__ == "__main__":
    asyncio.run(main())
