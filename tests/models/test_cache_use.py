"""A cache that an upstream does not use is not counted on."""

from dataclasses import replace

import pytest

from proxy.context import CacheRules
from proxy.models.cache_use import MISSES, CacheUse
from proxy.testing import profile


@pytest.mark.parametrize(("answers", "is_used"), [
    ([], True),
    ([(2000, 0)] * (MISSES - 1), True),
    ([(2000, 0)] * MISSES, False),
    ([(2000, None)] * MISSES, True),
    ([(0, 0)] * MISSES, True),
    ([(2000, 0)] * MISSES + [(0, 1500)], True),
    ([(2000, 0)] * (MISSES - 1) + [(2000, 1500), (2000, 0)], True),
], ids=["nothing known", "a few misses", "many", "not told", "none expected", "read again", "read in between"])  # fmt: skip
def test_a_cache_is_counted_on_while_the_upstream_reads_from_it(
    answers: list[tuple[int, int | None]], is_used: bool
) -> None:
    use, known = CacheUse(), replace(profile(), cache=CacheRules(0.1, 1.0, 1024, 300))
    for expected, reported in answers:
        use.note("openai", known.name, expected, reported)
    assert use.applied("openai", known).cache == (known.cache if is_used else CacheRules())
    assert use.applied("another", known) is known
