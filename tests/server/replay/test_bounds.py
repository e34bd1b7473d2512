"""Bounds of a replay: a name, a sign and a number, and nothing else."""

import pytest

from proxy.chat.errors import ConfigError
from proxy.server.replay.report import totals
from proxy.server.replay.run import NAMES, read_bound

TOTALS = {"cost": {"own": 1.25}, "values": {"lost": 0, "survival": 0.98}, "violations": {"requests": 2}}


@pytest.mark.parametrize(("text", "told"), [
    ("cost > 1.0", "cost > 1.0: it is 1.25"),
    (" cost>=1.25 ", "cost>=1.25: it is 1.25"),
    ("cost > 130%", None),
    ("lost > 0", None),
    ("survival < 99 %", "survival < 99 %: it is 0.98"),
    ("violations != 0", "violations != 0: it is 2"),
])  # fmt: skip
def test_a_bound_is_broken_or_not(text: str, told: str | None) -> None:
    assert read_bound(text)(TOTALS) == told


@pytest.mark.parametrize("text", ["cost", "cost > x", "price > 1", "cost > 1; x", "__import__('os') > 1", "1 > cost"])
def test_nothing_else_is_a_bound(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME > NUMBER"):
        read_bound(text)


def test_a_figure_that_the_replay_has_not_is_no_success() -> None:
    with pytest.raises(ConfigError, match="no cost_against"):
        read_bound("cost_against > 1")(TOTALS)


def test_every_name_is_a_figure_of_the_report() -> None:
    for name, keys in NAMES.items():
        found: object = totals([])
        for key in keys:
            assert isinstance(found, dict)
            assert key in found or name == "cost_against", name
            found = found.get(key, {})
