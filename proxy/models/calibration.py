"""Corrections of estimated token counts, learned from usage that providers report."""

from dataclasses import dataclass
from math import ceil
from threading import Lock

from proxy.state.cache import Cache

FRAMING = 32
"""Tokens that a template or hidden instructions may add or spare: so much of a difference teaches nothing."""
LOWEST, HIGHEST = 0.5, 3.0
"""A ratio beyond this is no tokenizer's: the prompt was cut, or something was added to it. It is not learned from."""
WEIGHT = 0.1
"""The share of a new ratio in the running mean, once there are ten."""
PATIENCE = 8
"""Ratios to see before the correction moves again."""
STEP = 0.05
"""The correction is a multiple of this, and moves only when the mean is further away than this."""
SHORT = 1.25
"""The ratio of reported to counted tokens from which a count is far too low."""
LIMIT = 4096
"""Corrections kept; beyond it the oldest is forgotten."""


@dataclass(slots=True)
class _Learned:
    size: float = 0.0
    mean: float = 1.0
    seen: int = 0
    since_move: int = 0
    ratio: float = 1.0


class Calibration:
    """The ratio of reported to counted tokens, one per key, which corrects counts in rare, coarse steps.

    Counts decide where conversations are cut, and a cut that moves costs the provider's prompt cache. So the correction
    is always a multiple of 0.05, and changes only when the running mean lies more than 5 % away from it and eight more
    requests were seen. Where a prompt more than twice as large as all before was counted short by a fifth, that counts
    alone and at once: the next one might not fit. So does a refusal, and only up. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._learned: Cache[tuple[object, ...], _Learned] = Cache(LIMIT)
        self._lock = Lock()

    def ratio(self, key: tuple[object, ...]) -> float:
        """Return the factor for counts, between 0.5 and 3."""
        learned = self._learned.get(key)
        return 1.0 if learned is None else learned.ratio

    def observe(self, key: tuple[object, ...], counted: float, reported: int) -> None:
        """Learn from one request: its tokens as counted without correction, and as the provider reported them."""
        more = reported - counted
        ratio = 1 + (more - max(-FRAMING, min(FRAMING, more))) / max(1, counted)
        if not LOWEST <= ratio <= HIGHEST:
            return
        with self._lock:
            learned = self._of(key)
            is_short = counted > 2 * learned.size and ratio > SHORT * learned.ratio
            learned.size = max(learned.size, counted)
            learned.seen = 1 if is_short else learned.seen + 1
            learned.since_move += 1
            learned.mean += (ratio - learned.mean) * max(WEIGHT, 1 / learned.seen)
            if (is_short or learned.since_move >= PATIENCE) and abs(learned.mean / learned.ratio - 1) > STEP:
                learned.ratio = round(round(learned.mean / STEP) * STEP, 2)
                learned.since_move = 0

    def refused(self, key: tuple[object, ...], counted: float, least: int) -> None:
        """Learn from a request that was refused as too long, and had at `least` so many tokens."""
        ratio = min(HIGHEST, ceil(least / max(1, counted) / STEP) * STEP)
        with self._lock:
            learned = self._of(key)
            if ratio > learned.ratio:
                learned.size = max(learned.size, counted)
                learned.mean = learned.ratio = round(ratio, 2)
                learned.seen, learned.since_move = 1, 0

    def _of(self, key: tuple[object, ...]) -> _Learned:
        learned = self._learned.get(key)
        if learned is None:
            learned = _Learned()
            self._learned.put(key, learned)
        return learned
