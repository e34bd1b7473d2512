"""A cache that is not read is not counted on: in that conversation, and for a while."""

from dataclasses import replace

import pytest

from proxy.context import CacheRules, Identity
from proxy.models.vendor_reports import MISSES, PAUSE, ReportMemory
from proxy.testing import profile
from tests.clock import Clock

KNOWN = replace(profile(), cache=CacheRules(0.1, 1.0, 1024, 300))
WHO = Identity("tenant", "session")


def is_used(use: ReportMemory, who: Identity = WHO, upstream: str = "openai") -> bool:
    applied = use.applied(who, upstream, KNOWN)
    assert applied.cache in (KNOWN.cache, CacheRules())
    return applied is KNOWN


@pytest.mark.parametrize(("answers", "expected"), [
    ([], True),
    ([(2000, 0)] * (MISSES - 1), True),
    ([(2000, 0)] * MISSES, False),
    ([(2000, None)] * MISSES, True),
    ([(0, 0)] * MISSES, True),
    ([(2000, 0)] * MISSES + [(0, 1500)], True),
    ([(2000, 0)] * (MISSES - 1) + [(2000, 1500), (2000, 0)], True),
], ids=["nothing known", "a few misses", "many", "not told", "none expected", "read again", "read in between"])  # fmt: skip
def test_a_cache_is_counted_on_while_it_is_read(answers: list[tuple[int, int | None]], expected: bool) -> None:
    use = ReportMemory()
    for read, reported in answers:
        use.note(WHO, "openai", KNOWN.name, read, reported)
    assert is_used(use) is expected


def test_misses_of_one_conversation_say_nothing_of_others_and_expire() -> None:
    clock = Clock()
    use = ReportMemory(clock)
    for _ in range(MISSES):
        use.note(WHO, "openai", KNOWN.name, 2000, 0)
    others = (Identity("tenant", "another"), Identity("another", "session"))
    assert [is_used(use), *(is_used(use, other) for other in others), is_used(use, upstream="other")] == [
        False, True, True, True,
    ]  # fmt: skip
    clock.now += PAUSE + 1
    assert is_used(use)


def test_a_tenants_conversations_are_forgotten() -> None:
    use = ReportMemory()
    for _ in range(MISSES):
        use.note(WHO, "openai", KNOWN.name, 2000, 0)
    assert use.forget("tenant") == 1
    assert is_used(use)
