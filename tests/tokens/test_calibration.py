"""The correction of estimates: slow, coarse, and deaf to what is no tokenizer's doing."""

import random
from itertools import pairwise

import pytest

from proxy.tokens.calibration import HIGHEST, LIMIT, PATIENCE, SMALLEST, Calibration

KEY = ("tenant", "model")


def learned(*ratios: float, counted: int = 10_000) -> list[float]:
    calibration, found = Calibration(), []
    for ratio in ratios:
        calibration.observe(KEY, counted, round(counted * ratio))
        found.append(calibration.ratio(KEY))
    return found


def test_it_waits_for_eight_requests_and_then_takes_a_step() -> None:
    assert learned(*[1.23] * 9) == [1.0] * (PATIENCE - 1) + [1.25, 1.25]


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


def test_small_prompts_teach_nothing() -> None:
    assert learned(*[1.5] * 50, counted=SMALLEST - 1)[-1] == 1.0


def test_keys_do_not_mix_and_are_bounded() -> None:
    calibration = Calibration()
    for _ in range(PATIENCE):
        calibration.observe(KEY, 10_000, 15_000)
    assert calibration.ratio(KEY) == 1.5
    assert calibration.ratio(("other", "model")) == 1.0
    for index in range(LIMIT):
        calibration.observe((str(index),), 10_000, 10_000)
    assert calibration.ratio(KEY) == 1.0
