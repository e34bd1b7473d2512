"""A circuit breaker: a state machine with a clock, and nothing else."""

import time
from collections.abc import Callable
from typing import Literal

from proxy.config.upstream_settings import BreakerSettings

State = Literal["closed", "open", "half_open"]

_SHARE = 0.5
"""The least share of failures that opens it: a few among thousands of answers are no reason."""


class Breaker:
    """A circuit breaker: closed, it counts; open, it refuses; half open, it lets a single probe through.

    Models may take their time to answer: while a probe does, one more is let through in each `open_for` seconds.

    `admit` gives a ticket, and each ticket is handed back once, with the outcome. A ticket from before the last change
    of state no longer counts.
    """

    def __init__(
        self,
        settings: BreakerSettings,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[State], None] | None = None,
    ) -> None:
        """`told` is called with each new state."""
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._era = 0
        self._since = clock()
        """When it opened, let the last request through, or began to count."""
        self._failures = self._answers = 0
        self.state: State = "closed"

    def refusal(self) -> float | None:
        """Return the seconds until a request may be let through; None if one may be now."""
        if self.state == "closed":
            return None
        left = self._since + self._settings.open_for - self._clock()
        return left if left > 0 else None

    def admit(self) -> int:
        """Return the ticket of a request. Call it only if `refusal` is None."""
        if self.state != "closed":
            if self.state == "open":
                self._become("half_open")
            self._since = self._clock()
        return self._era

    def succeeded(self, ticket: int) -> None:
        if ticket != self._era:
            return
        if self.state == "half_open":
            self._become("closed")
        else:
            self._count()

    def failed(self, ticket: int) -> None:
        if ticket != self._era:
            return
        if self.state == "half_open":
            self._become("open")
            return
        self._count()
        self._failures += 1
        most = self._settings.failures
        if most and self._failures >= most and self._failures >= _SHARE * self._answers:
            self._become("open")

    def broke_off(self, ticket: int) -> None:
        """Count an answer as failed that had counted as one."""
        if ticket == self._era and self.state == "closed":
            self._answers = max(0, self._answers - 1)
            self.failed(ticket)

    def abandoned(self, ticket: int) -> None:
        """Note that the client left before an outcome was known. A probe is then made anew."""
        if ticket == self._era and self.state == "half_open":
            self._since = float("-inf")

    def _count(self) -> None:
        now = self._clock()
        if now - self._since > self._settings.within:
            self._since, self._failures, self._answers = now, 0, 0
        self._answers += 1

    def _become(self, state: State) -> None:
        self._since = self._clock()
        self.state, self._era = state, self._era + 1
        self._failures = self._answers = 0
        if self._on_change is not None:
            self._on_change(state)
