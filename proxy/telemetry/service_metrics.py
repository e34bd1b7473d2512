"""What services tell metrics: the small model, limits, the index of vectors, and what each key used."""

from typing import TYPE_CHECKING

from proxy.usage import Usage

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


class KeyMetrics:
    """The series of one key of Penstock. Its name stands in the configuration: there are no more than those."""

    def __init__(self, series: "Series", name: str) -> None:
        self._series = series
        self._name = name

    def used(self, usage: Usage) -> None:
        """Count the tokens that the upstream reported."""
        for kind, tokens in (("input", usage.input), ("output", usage.output), ("cached_input", usage.cached)):
            if tokens:
                self._series.key_tokens.labels(self._name, kind).inc(tokens)

    def cost(self, usd: float) -> None:
        """Count what an answer cost, in US dollars."""
        self._series.key_cost.labels(self._name).inc(usd)

    def ended(self, status: int) -> None:
        """Count a request."""
        self._series.key_requests.labels(self._name, str(status)).inc()
