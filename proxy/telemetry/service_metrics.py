"""What the index and memories tell metrics."""

from proxy.telemetry.series import Series


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
