"""The correction of estimates: slow, coarse, and deaf to what is no tokenizer's doing."""

import random
from itertools import pairwise

import pytest

from proxy.models.tokens import FRAMING, HIGHEST, LIMIT, PATIENCE, Calibration

KEY = ("tenant", "model")


def learned(*ratios: float, counted: int = 10_000) -> list[float]:
    calibration, found = Calibration(), []
    for ratio in ratios:
        calibration.observe(KEY, counted, round(counted * ratio))
        found.append(calibration.ratio(KEY))
    return found


def test_eight_requests_move_it() -> None:
    assert learned(*[1.2] * (PATIENCE + 1)) == [1.0] * (PATIENCE - 1) + [1.2, 1.2]


def test_a_count_that_is_far_too_low_moves_it_at_once() -> None:
    assert learned(1.6) == [1.6]
    assert learned(0.7) == [1.0], "too high is not urgent"


@pytest.mark.parametrize("counted", [200, 500, 5000])
def test_only_a_much_larger_prompt_moves_it_at_once_again(counted: int) -> None:
    calibration = Calibration()
    calibration.observe(KEY, counted, counted)
    calibration.observe(KEY, counted * 2, round(counted * 2 * 1.6))
    assert calibration.ratio(KEY) == 1.0, "not so much larger"
    calibration.observe(KEY, counted * 5, round(counted * 5 * 1.6))
    assert calibration.ratio(KEY) > 1.5


@pytest.mark.parametrize(("least", "ratio"), [(1100, 1.1), (1101, 1.15), (2324, 2.35), (9000, HIGHEST), (900, 1.0)])
def test_a_refusal_moves_it_at_once_and_only_up(least: int, ratio: float) -> None:
    calibration = Calibration()
    calibration.refused(KEY, 1000, least)
    assert calibration.ratio(KEY) == ratio
    calibration.refused(KEY, 1000, 1000)
    assert calibration.ratio(KEY) == ratio


@pytest.mark.parametrize(
    ("ratio", "correction"),
    [(1.0, 1.0), (1.04, 1.0), (0.96, 1.0), (1.06, 1.05), (0.9, 0.9), (1.5, 1.5), (2.0, 2.0), (0.5, 0.5)],
)
def test_it_is_a_multiple_of_a_twentieth_and_ignores_less(ratio: float, correction: float) -> None:
    assert learned(*[ratio] * 20)[-1] == correction


def test_it_does_not_jitter() -> None:
    dice = random.Random(3)
    found = learned(*(1.2 + dice.uniform(-0.1, 0.1) for _ in range(1000)))
    assert sum(before != after for before, after in pairwise(found)) <= 2
    assert found[-1] in (1.15, 1.2, 1.25)


def test_it_follows_a_lasting_change_slowly() -> None:
    found = learned(*[1.0] * 50, *[1.3] * 60)
    assert found[50] == 1.0
    assert found[-1] in (1.25, 1.3)
    assert len(set(found)) <= 6


@pytest.mark.parametrize("ratio", [0.0, 0.1, HIGHEST + 0.1, 50])
def test_a_ratio_that_is_no_tokenizers_is_not_learned_from(ratio: float) -> None:
    assert learned(*[ratio] * 50)[-1] == 1.0


@pytest.mark.parametrize(("counted", "ratio"), [(40, 1.0), (100, 1.35), (900, 1.65), (9000, 1.7)])
def test_small_prompts_teach_less_because_of_their_framing(counted: int, ratio: float) -> None:
    assert learned(1.7, counted=counted)[-1] == pytest.approx(ratio, abs=0.051)
    assert learned(1 + FRAMING / counted, counted=counted)[-1] == 1.0


def test_keys_do_not_mix_and_are_bounded() -> None:
    calibration = Calibration()
    for _ in range(PATIENCE):
        calibration.observe(KEY, 10_000, 15_000)
    assert calibration.ratio(KEY) == 1.5
    assert calibration.ratio(("other", "model")) == 1.0
    for index in range(LIMIT):
        calibration.observe((str(index),), 10_000, 10_000)
    assert calibration.ratio(KEY) == 1.0
