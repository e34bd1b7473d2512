"""What services tell metrics: small models, limits, the index, memories and the archive."""

from collections.abc import Iterator

from proxy.policy import ORIGINALS_READ, ORIGINALS_WRITTEN
from proxy.telemetry.series import Series


class WriterMetrics:
    """The series of the small model that writes summaries: its tokens are in no request's."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def ended(self, outcome: str) -> None:
        """Count a summary: `written`, `unusable`, `failed`, `timeout` or `broken`."""
        self._series.written.of(outcome).inc()

    def used(self, prompt: object, completion: object) -> None:
        """Count the tokens that the upstream reported."""
        for kind, tokens in _tokens(prompt, completion):
            self._series.writer_tokens.of(kind).inc(tokens)


class JudgeMetrics:
    """The series of the model that judges texts: its tokens are in no request's."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def ended(self, outcome: str, seconds: float) -> None:
        """Count a pair that was `judged`, or why not: `unusable`, `failed`, `timeout`, `broken` or `dropped`."""
        self._series.judged.of(outcome).inc()
        if outcome != "dropped":
            self._series.judge_duration.observe(seconds)

    def used(self, prompt: object, completion: object) -> None:
        """Count the tokens that the upstream reported."""
        for kind, tokens in _tokens(prompt, completion):
            self._series.judge_tokens.of(kind).inc(tokens)


class LimitMetrics:
    """The series of what was refused for want of room, or could not be counted."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def limited(self, reason: str) -> None:
        """Count a refusal: for `requests`, `tokens`, `budget`, `concurrency`, `overload`, `bodies` or `not_in_time`."""
        self._series.limited.of(reason).inc()

    def unchecked(self) -> None:
        """Count a count that could not be had."""
        self._series.unchecked.inc()


class IndexMetrics:
    """The series of the index of vectors."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def failed(self, operation: str, cause: str) -> None:
        """Count a call that did not work; both are of a few words that the code has, statuses and exceptions' names."""
        self._series.index_failures.of(operation, cause).inc()

    def degraded(self, degraded: bool) -> None:
        """Say whether it does without."""
        self._series.index_degraded.set(int(degraded))


class MemoryMetrics:
    """The series of what is remembered of users. Those who say what happened say it in a few words that they have."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def changed(self, change: str, count: int) -> None:
        """Count what became of memories, such as `added`, `merged` or `refused`."""
        if count:
            self._series.memories.of(change).inc(count)

    def wrote(self, size: int) -> None:
        """Count the bytes that were stored."""
        self._series.memory_bytes.inc(size)

    def searched(self, found_by: str) -> None:
        """Count a search: by `meaning`, by `words`, or one that `failed`."""
        self._series.memory_searches.of(found_by).inc()

    def lost(self, what: str) -> None:
        """Count a `page` that the store has no more, or a `user` who made room for another one."""
        self._series.memory_losses.of(what).inc()


class ScratchpadMetrics:
    """The series of what leaves contexts for the archive, and is asked for again."""

    def __init__(self, series: Series) -> None:
        self._wrote, self._read = series.of(ORIGINALS_WRITTEN), series.of(ORIGINALS_READ)

    def wrote(self) -> None:
        """Count an original that was not there yet."""
        self._wrote.inc()

    def read(self) -> None:
        """Count one that a client has asked for."""
        self._read.inc()


def _tokens(prompt: object, completion: object) -> Iterator[tuple[str, int]]:
    """What of the tokens that an upstream reported are some, by their kind."""
    for kind, tokens in (("input", prompt), ("output", completion)):
        if isinstance(tokens, int) and tokens > 0:
            yield kind, tokens
