"""A rate over the last minute: nobody gets more than the limit, and who waits as long as told gets in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.limits import MINUTE, Window, duration
from proxy.http.headers import retry_after


@pytest.mark.parametrize(
    ("before", "current", "elapsed", "used"),
    [(0, 0, 0, 0), (60, 0, 0, 60), (60, 0, 30, 30), (60, 5, 45, 20), (60, 5, 60, 5)],
)
def test_the_previous_minute_counts_by_its_share_of_sixty_seconds(
    before: float, current: float, elapsed: float, used: float
) -> None:
    assert Window(before, current, elapsed).used == used


@given(
    limit=st.integers(1, 10**6),
    before=st.integers(0, 10**6),
    current=st.integers(0, 10**6),
    elapsed=st.floats(0, 59.99),
    need=st.integers(1, 10**6),
)
def test_a_need_fits_after_the_wait(limit: int, before: int, current: int, elapsed: float, need: int) -> None:
    need = min(need, limit)
    wait = Window(before, current, elapsed).wait(need, limit)
    later = elapsed + wait
    if later < MINUTE:
        window = Window(before, current, later)
    else:
        assert later <= 2 * MINUTE + 1e-6
        window = Window(current, 0, later - MINUTE)
    assert window.used + need <= limit * (1 + 1e-9) + 1e-6
    if wait > 1e-3:
        sooner = later - 1e-3
        early = Window(before, current, sooner) if sooner < MINUTE else Window(current, 0, sooner - MINUTE)
        assert early.used + need > limit - 1e-6


def test_remaining_is_never_negative() -> None:
    assert Window(0, 7, 1).remaining(5) == 0
    assert Window(10, 1, 30).remaining(10) == 4


@pytest.mark.parametrize(("window", "seconds"), [(Window(0, 0, 9), 0), (Window(3, 0, 10), 50), (Window(0, 3, 10), 110)])
def test_reset_ends_when_the_count_is_zero(window: Window, seconds: float) -> None:
    assert window.reset == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.1201, "121ms"), (1, "1s"), (6.54, "6.6s"), (60, "1m0s"), (90.01, "1m30.1s")]
)
def test_durations_have_the_format_of_openai(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("seconds", "whole", "exact"), [(0, "1", "1"), (0.2, "1", "200"), (1.0004, "2", "1001")])
def test_retry_after_rounds_up(seconds: float, whole: str, exact: str) -> None:
    assert retry_after(seconds) == {"retry-after": whole, "retry-after-ms": exact}
