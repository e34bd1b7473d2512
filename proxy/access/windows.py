"""A sliding-window rate over the last minute, from the counts of two fixed minutes. Pure.

The previous minute counts by its share of the last sixty seconds, as if its requests had been spread evenly. The method
needs two numbers per client, and prevents twice the limit around the boundary of two minutes.
"""

import math
from dataclasses import dataclass

MINUTE = 60.0
"""Seconds of a window."""


@dataclass(frozen=True, slots=True)
class Window:
    """The counts at a moment."""

    before: float
    """Count of the previous minute."""
    current: float
    """Count of this minute so far."""
    elapsed: float
    """Seconds since this minute began."""

    @property
    def used(self) -> float:
        """Count of the last sixty seconds."""
        return self.current + self.before * (1 - self.elapsed / MINUTE)

    def remaining(self, limit: int) -> int:
        """Return the unused part of a limit."""
        return max(0, math.floor(limit - self.used))

    @property
    def reset(self) -> float:
        """Seconds until the count is zero, if no request follows."""
        if self.current > 0:
            return 2 * MINUTE - self.elapsed
        return MINUTE - self.elapsed if self.before > 0 else 0.0

    def wait(self, need: float, limit: int) -> float:
        """Return the seconds until `need`, at most the limit, fits under the limit if no request follows."""
        room = limit - need - self.current
        if room >= self.before:
            return 0.0
        if room >= 0:
            return max(0.0, MINUTE * (1 - room / self.before) - self.elapsed)
        return MINUTE - self.elapsed + MINUTE * (1 - (limit - need) / self.current)


def duration(seconds: float) -> str:
    """Return a duration in the format of OpenAI's headers: `120ms`, `6.5s`, `1m30s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds * 10) / 10, MINUTE)
    return (f"{minutes:.0f}m" if minutes else "") + f"{rest:g}s"
