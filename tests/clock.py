"""Time that passes when the test says so."""


class Clock:
    """Seconds; `now` may be set."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
