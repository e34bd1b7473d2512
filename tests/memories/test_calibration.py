"""Scores mean the same whatever model made the cosines, and vectors that are alike are found as pairs."""

from random import Random

import pytest

from proxy.memories.calibration import WORDS, ScoreCurve, calibrated
from proxy.vectors.packing import alike, pack, similarities
from proxy.vectors.scale import pairs
from tests.memories.made import Terms, remembering


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (0.6, 0.3), (-0.2, 0.5)])
def test_models_whose_cosines_lie_elsewhere_get_the_same_scores(shift: float, scale: float) -> None:
    chance = Random(1)
    helping, near, others = ([chance.gauss(mean, 0.1) for _ in range(200)] for mean in (0.5, 0.3, 0.1))
    plain = calibrated(helping, near, others)
    moved = calibrated(*([shift + scale * each for each in some] for some in (helping, near, others)))
    assert plain is not None
    assert moved is not None
    for cosine in (0.0, 0.2, 0.35, 0.5, 0.9):
        assert plain.score(cosine) == pytest.approx(moved.score(shift + scale * cosine), abs=0.01)
    assert plain.score(-1) < plain.score(0.2) < plain.score(0.4) < plain.score(1) <= 1


def test_a_model_that_tells_nothing_apart_has_no_calibration() -> None:
    chance = Random(1)
    same = [[chance.gauss(0.5, 0.1) for _ in range(50)] for _ in range(3)]
    assert calibrated(*same) is None
    assert calibrated([0.5], [0.1]) is None
    assert calibrated([0.5, 0.5], [0.5, 0.5]) is None
    assert calibrated([0.5, 0.5], [0.1, 0.1]) is not None


def test_extreme_figures_have_scores() -> None:
    assert 0 <= WORDS.score(-1e9) < 1e-9
    assert 1 - 1e-9 < WORDS.score(1e9) <= 1


def test_what_counts_is_how_far_a_cosine_lies_above_those_of_the_same_language() -> None:
    question = pack([[1.0, 0.0, 0.0]])
    alike, apart = pack([[0.9, 0.4, 0.0]]), pack([[0.1, 1.0, 0.0]])
    curve = ScoreCurve(0.1, 6.0)
    spanish, english = curve._replace(others=(alike,) * 10 + (apart,) * 40), curve._replace(others=(apart,) * 50)
    assert spanish.figures(question, [0.9], [0.0])[0] < 0.1 < english.figures(question, [0.9], [0.0])[0]
    assert spanish.figures(question, [0.9], [0.5])[0] > 0.1, "shared words count beside it"


def test_the_pairs_are_whole() -> None:
    assert len(pairs()) == 34
    assert len({text for pair in pairs() for text in pair}) == 3 * len(pairs())


async def test_a_model_that_tells_nothing_apart_is_not_used() -> None:
    class Same(Terms):
        pass

    backend = Same()
    backend.vector = lambda text: [1.0] * backend.dimensions  # type: ignore[method-assign]
    async with remembering(backend=backend) as service:
        service._vectors._is_measured = False
        assert await service._vectors.calibration(30) is None
        assert len(backend.texts) == 3 * len(pairs())


@pytest.mark.parametrize("first", [None, 1, 7, 40])
def test_pairs_are_those_that_a_search_for_each_finds(first: int | None) -> None:
    chance = Random(first)
    texts = [pack([[chance.gauss(0, 1) for _ in range(3)]]) if n % 9 else None for n in range(40)]
    expected = {
        (one, other)
        for one in range(40 if first is None else first)
        for other, cosine in enumerate(similarities(texts[one] or b"", texts))
        if one < other and cosine is not None and cosine >= 0.8
    }
    assert set(alike(texts, 0.8, first=first)) == expected
    assert alike([], 0.5) == alike([None, texts[1]], 0.5) == []
