"""What providers report, turned into a correction of estimated token counts."""

from dataclasses import dataclass
from threading import Lock

SMALLEST = 1000
"""Counts below this teach nothing: framing and hidden instructions weigh too much in them."""
LOWEST, HIGHEST = 0.5, 2.0
"""A ratio beyond this is no tokenizer's: the prompt was cut, or something was added to it. It is not learned from."""
WEIGHT = 0.1
"""The share of a new ratio in the running mean, once there are ten."""
PATIENCE = 8
"""Ratios to see before the correction moves, for the first time and ever again."""
STEP = 0.05
"""The correction is a multiple of this, and moves only when the mean is further away than this."""
LIMIT = 4096
"""Corrections kept; beyond it the oldest is forgotten."""


@dataclass(slots=True)
class _Learned:
    mean: float = 1.0
    seen: int = 0
    since_move: int = 0
    ratio: float = 1.0


class Calibration:
    """Learns the ratio of reported to counted tokens, one per key, and corrects with it in rare, coarse steps.

    Counts decide where conversations are cut, and a cut that moves costs the provider's prompt cache. So the correction
    is 1 until eight requests were seen, is always a multiple of 0.05, and changes only when the running mean lies more
    than 5 % away from it and eight more requests were seen. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._learned: dict[tuple[object, ...], _Learned] = {}
        self._lock = Lock()

    def ratio(self, key: tuple[object, ...]) -> float:
        """What to multiply counts by, between 0.5 and 2."""
        learned = self._learned.get(key)
        return 1.0 if learned is None else learned.ratio

    def observe(self, key: tuple[object, ...], counted: float, reported: int) -> None:
        """Learn from one request: its tokens as counted without correction, and as the provider reported them."""
        if counted < SMALLEST or not LOWEST <= reported / counted <= HIGHEST:
            return
        with self._lock:
            learned = self._learned.setdefault(key, _Learned())
            learned.seen += 1
            learned.since_move += 1
            learned.mean += (reported / counted - learned.mean) * max(WEIGHT, 1 / learned.seen)
            if learned.since_move >= PATIENCE and abs(learned.mean / learned.ratio - 1) > STEP:
                learned.ratio = round(round(learned.mean / STEP) * STEP, 2)
                learned.since_move = 0
            if len(self._learned) > LIMIT:
                del self._learned[next(iter(self._learned))]
