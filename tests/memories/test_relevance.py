"""MemoryScores say how well a memory helps with a question, whatever model made the vectors."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.memories.relevance import MemoryRelevance
from proxy.text import bm25
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.packing import pairs
from proxy.vectors.static import Static
from tests.memories.made import ANN, ELSE, Terms, draft, found, remembering


async def test_a_language_that_the_model_does_not_know_is_compared_by_words() -> None:
    service = EmbeddingService(Static())
    texts = ["Пользователь читает детективы", "Сестра пользователя медсестра", "Пользователь живёт в Казани"]
    with ThreadPoolExecutor(1) as threads:
        relevance = MemoryRelevance(service, threads)
        await relevance.warm()
        assert await relevance.scores("t", "Какая столица у Перу?", texts, 30) == ([0.0] * 3, True)
        scores, _ = await relevance.scores("t", "Где работает сестра?", texts, 30)
        assert max(zip(scores, texts, strict=True))[1] == texts[1]
    await service.aclose()


def test_the_pairs_are_whole() -> None:
    assert len(pairs()) == 34
    assert len({text for pair in pairs() for text in pair}) == 3 * len(pairs())


async def test_a_model_that_tells_nothing_apart_is_not_used() -> None:
    backend = Terms()
    backend.vector = lambda text: [1.0] * backend.dimensions  # type: ignore[method-assign]
    service = EmbeddingService(backend)
    with ThreadPoolExecutor(1) as threads:
        relevance = MemoryRelevance(service, threads)
        scores, _ = await relevance.scores("t", "green tea", ["likes green tea", "is tall"], 30)
        assert [score > 0.5 for score in scores] == [True, False], "by words"
    await service.aclose()


ENGLISH = (
    "The user is allergic to peanuts",
    "The user's sister is a nurse",
    "The user works as a teacher in Leeds",
    "The user's car is a red Skoda",
    "The user is allergic to penicillin",
    "The user reads crime novels",
    "The user's flat has no lift",
    "The user supports a football club",
)
ASKED = (
    ("Plan a dinner", "The user is allergic to peanuts"),
    ("Which snacks can I bring to the party?", "The user is allergic to peanuts"),
    ("Which antibiotics can I take for my throat?", "The user is allergic to penicillin"),
    ("Recommend a book", "The user reads crime novels"),
)


@pytest.mark.parametrize(("question", "helps"), ASKED)
async def test_the_shipped_vectors_find_what_helps_without_a_word_in_common(question: str, helps: str) -> None:
    service = EmbeddingService(Static())
    with ThreadPoolExecutor(1) as threads:
        relevance = MemoryRelevance(service, threads)
        await relevance.warm()
        found, _ = await relevance.scores("t", question, ENGLISH, 30)
        best = max(zip(found, ENGLISH, strict=True))
        assert best[1] == helps
        assert best[0] > 0.5
    await service.aclose()


async def test_forget_read_drops_what_is_known_of_the_texts_of_one_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Sequence[str]] = []

    def index(texts: Sequence[str]) -> bm25.Index:
        read.append(texts)
        return bm25.index(texts)

    monkeypatch.setattr("proxy.memories.relevance.index", index)
    async with remembering() as service:
        for owner in (ANN, ELSE):
            await service.add(owner, [draft("likes green tea")])
        for is_forgotten, times in ((False, 2), (False, 2), (True, 3)):
            if is_forgotten:
                assert service.forget_read("t") == 1
            assert [await found(service, owner, "tea") for owner in (ANN, ELSE)] == [["likes green tea"]] * 2
            assert len(read) == times
