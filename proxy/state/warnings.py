"""Warnings that would come with every request, at most once a minute each."""

import logging
import time
from collections.abc import Callable

EVERY = 60.0


class Warnings:
    """One event of the log. Its fields hold no content and no path."""

    def __init__(self, log: logging.Logger, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._event, self._clock = log, event, clock
        self._last: dict[tuple[str, ...], float] = {}

    def warn(self, more: dict[str, object] | None = None, /, **cause: str) -> None:
        """Write a line, unless one with this cause was written within the last minute. `more` is shown with it."""
        now, key = self._clock(), tuple(cause.values())
        if now - self._last.get(key, float("-inf")) >= EVERY:
            self._last[key] = now
            self._log.warning(self._event, extra={"fields": {**cause, **(more or {})}})
