"""Statements about the world: most that agree are left alone, though they share most of their words."""

import pytest

from tests.policies.resolve_clashes.conversation import clashing
from tests.policies.resolve_clashes.world_es import AGREE, DIFFER


def flagged(pairs: list[tuple[str, str]]) -> int:
    return sum(bool(clashing(older, "De acuerdo.", newer)) for older, newer in pairs)


def test_most_that_agree_are_left_alone_and_most_that_do_not_are_found() -> None:
    assert flagged(AGREE) <= 0.05 * len(AGREE)
    assert flagged(DIFFER) >= 0.75 * len(DIFFER)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("In the 18th century the port did not admit foreign ships.", "The port admits foreign ships."),
        ("The union did not join the strike of the miners.", "The union of drivers joined the strike of the miners."),
        ("The novel was rejected by three publishers.", "The novel was accepted by the critics with joy."),
    ],
)
def test_what_is_denied_of_another_time_or_part_agrees(older: str, newer: str) -> None:
    assert clashing(older, "All right.", newer) == []


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The port admits foreign ships.", "The port does not admit foreign ships."),
        ("The abbey was destroyed during the war.", "The abbey was never destroyed."),
        ("The novel was rejected by the publisher.", "The novel was accepted by the publisher."),
    ],
)
def test_what_is_denied_of_the_same_does_not(older: str, newer: str) -> None:
    assert clashing(older, "All right.", newer) != []
