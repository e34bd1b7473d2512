"""Measure how well scores tell which memories help: `python -m benchmarks.memories`. Needs the extra `semantic`."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from proxy.config.settings import SentenceTransformersEmbedding
from proxy.memories.relevance import MemoryRelevance
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.sentence_transformers import Sentences

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


async def main() -> None:
    """Print how many held-out pairs reach the two thresholds, and how many of as many wrong ones."""
    embedding = EmbeddingService(Sentences(SentenceTransformersEmbedding(kind="sentence-transformers")))
    await embedding.ready()
    await quality(embedding)
    await embedding.aclose()


async def quality(embedding: EmbeddingService) -> None:
    """Print it for a model."""
    memories = [memory for _, memory in HELD_OUT]
    right: list[float] = []
    wrong: list[float] = []
    with ThreadPoolExecutor(1) as threads:
        relevance = MemoryRelevance(embedding, threads)
        await relevance.warm()
        for place, (question, _) in enumerate(HELD_OUT):
            scores, by_meaning = await relevance.scores("t", question, memories, 60)
            assert by_meaning
            for at, score in enumerate(scores):
                (right if at == place else wrong).append(score)
    for bar in (0.7, 0.5):
        share = [sum(score >= bar for score in group) / len(group) for group in (right, wrong)]
        print(f"held out, score at least {bar}: {share[0]:.0%} of what helps, {share[1]:.1%} of what does not")


if __name__ == "__main__":
    asyncio.run(main())
