"""MemoryScores say how well a memory helps with a question, whatever model made the vectors."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest

from proxy.memories.relevance import WORDS, Curve, MeasuredModel, MemoryRelevance, curve_between
from proxy.vectors.embedding import EmbeddingService
from proxy.vectors.packing import pack
from proxy.vectors.scale import pairs
from proxy.vectors.static import Static
from tests.memories.made import Terms, exact


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (0.6, 0.3), (-0.2, 0.5)])
def test_models_whose_cosines_lie_elsewhere_get_the_same_scores(shift: float, scale: float) -> None:
    chance = Random(1)
    helping, near, others = ([chance.gauss(mean, 0.1) for _ in range(200)] for mean in (0.5, 0.3, 0.1))
    plain = curve_between(helping, near, others)
    moved = curve_between(*([shift + scale * each for each in group] for group in (helping, near, others)))
    assert plain is not None
    assert moved is not None
    for cosine in (0.0, 0.2, 0.35, 0.5, 0.9):
        assert plain.of(cosine) == pytest.approx(moved.of(shift + scale * cosine), abs=0.01)
    assert plain.of(-1) < plain.of(0.2) < plain.of(0.4) < plain.of(1) <= 1


def test_a_model_that_tells_nothing_apart_has_no_curve() -> None:
    chance = Random(1)
    same = [[chance.gauss(0.5, 0.1) for _ in range(50)] for _ in range(3)]
    assert curve_between(*same) is None
    assert curve_between([0.5], [0.1]) is None
    assert curve_between([0.5, 0.5], [0.5, 0.5]) is None
    assert curve_between([0.5, 0.5], [0.1, 0.1]) is not None


def test_extreme_figures_have_scores() -> None:
    assert 0 <= WORDS.of(-1e9) < 1e-9
    assert 1 - 1e-9 < WORDS.of(1e9) <= 1


def unit(*numbers: float) -> Any:
    row = np.array([numbers], "f4")
    return row / np.linalg.norm(row)


def scores(model: MeasuredModel, question: Sequence[float], memory: Sequence[float], share: float = 0.0) -> float:
    compared = model.compared([pack([memory])])
    return float(model.scores(pack([question]), compared, np.array([share]))[0])


def test_a_cosine_counts_by_how_far_it_lies_above_those_of_messages_that_ask_for_nothing() -> None:
    none = np.zeros(3, "f4")
    quiet = MeasuredModel(none, none, unit(0, 0, 1), unit(0, 0, 1), unit(0, 0, 1), Curve(0.3, 9.0), Curve(1.0, 30.0))
    loud = quiet._replace(anybody=unit(1, 0.1, 0))
    question, memory = (1.0, 0.0, 0.0), (0.9, 0.4, 0.0)
    assert scores(loud, question, memory) < 0.5 < scores(quiet, question, memory)
    assert scores(loud, question, memory, share=1.0) > 0.5, "shared words count beside it"


def test_what_is_like_a_memory_that_helped_with_such_a_question_counts() -> None:
    none = np.zeros(4, "f4")
    model = MeasuredModel(
        none, none, unit(0, 0, 0, 1), unit(1, 0, 0, 0), unit(0, 1, 0, 0), Curve(0.3, 9.0), Curve(0.5, 12.0)
    )
    dinner, allergy, car = (0.9, 0.0, 0.4, 0.0), (0.0, 0.9, 0.1, 0.0), (0.0, 0.1, 0.0, 0.9)
    assert scores(model, dinner, allergy) > 0.7
    assert scores(model, dinner, car) < 0.2


def test_a_text_without_a_vector_is_compared_by_its_words() -> None:
    model = exact(3)
    compared = model.compared([pack([[1.0, 0.0, 0.0]]), b""])
    assert compared.vectors.shape == (2, 3)
    assert [*compared.is_read] == [True, False]
    assert model.scores(pack([[1.0, 0.0, 0.0]]), compared, np.array([0.0, 1.0]))[1] == WORDS.of(1.0)


async def test_a_language_that_the_model_does_not_know_is_compared_by_words() -> None:
    service = EmbeddingService(Static())
    texts = ["Пользователь читает детективы", "Сестра пользователя медсестра", "Пользователь живёт в Казани"]
    with ThreadPoolExecutor(1) as threads:
        relevance = MemoryRelevance(service, threads)
        await relevance.warm()
        assert (await relevance.scores("t", "Какая столица у Перу?", texts, 30)).values == [0.0] * 3
        found = await relevance.scores("t", "Где работает сестра?", texts, 30)
        assert max(zip(found.values, texts, strict=True))[1] == texts[1]
        await relevance.aclose()
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
        found = await relevance.scores("t", "green tea", ["likes green tea", "is tall"], 30)
        assert (found.by_meaning, found.is_late, [score > 0.5 for score in found.values]) == (
            False,
            False,
            [True, False],
        )
        await relevance.aclose()
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
        found = await relevance.scores("t", question, ENGLISH, 30)
        best = max(zip(found.values, ENGLISH, strict=True))
        assert best[1] == helps
        assert best[0] > 0.5
        await relevance.aclose()
    await service.aclose()
