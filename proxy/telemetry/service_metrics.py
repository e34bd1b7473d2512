"""What services tell metrics: the small model, limits, the index of vectors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.telemetry.metrics import Series


class WriterMetrics:
    """The series of the small model that writes summaries: its tokens are in no request's."""

    def __init__(self, series: "Series") -> None:
        self._series = series

    def ended(self, outcome: str) -> None:
        """Count a summary: `written`, `unusable`, `failed`, `timeout` or `broken`."""
        self._series.written.labels(outcome).inc()

    def used(self, prompt: object, completion: object) -> None:
        """Count the tokens that the upstream reported."""
        for kind, tokens in (("input", prompt), ("output", completion)):
            if isinstance(tokens, int) and tokens > 0:
                self._series.writer_tokens.labels(kind).inc(tokens)


class LimitMetrics:
    """The series of what was refused for want of room, or could not be counted."""

    def __init__(self, series: "Series") -> None:
        self._series = series

    def limited(self, reason: str) -> None:
        """Count a refusal: for `requests`, `tokens`, `budget`, `concurrency` or `overload`."""
        self._series.limited.labels(reason).inc()

    def unchecked(self) -> None:
        """Count a count that could not be had."""
        self._series.unchecked.inc()


class IndexMetrics:
    """The series of the index of vectors."""

    def __init__(self, series: "Series") -> None:
        self._series = series

    def failed(self, operation: str, cause: str) -> None:
        """Count a call that did not work; both are of a few words that the code has, statuses and exceptions' names."""
        self._series.index_failures.labels(operation, cause).inc()

    def degraded(self, degraded: bool) -> None:
        """Say whether it does without."""
        self._series.index_degraded.set(int(degraded))
