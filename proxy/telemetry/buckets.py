"""Labelled series, and where histograms draw their lines."""

from typing import Generic, TypeVar

from prometheus_client.metrics import MetricWrapperBase

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
STEP_SECONDS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
TOKENS = tuple(4**power for power in range(14))
RATIOS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1, 1.25, 1.5, 2, 4)
"""Where histograms draw their lines."""

Child = TypeVar("Child", bound=MetricWrapperBase)

_MOST_REASONS = 50
"""Upstreams choose their error codes: beyond so many that differ in the last label alone, it is `other`."""


class Labelled(Generic[Child]):
    """The series of one name. Each is looked up once: that costs more in the library than the count itself."""

    def __init__(self, parent: Child) -> None:
        self._parent = parent
        self._known: dict[tuple[str, ...], Child] = {}

    def of(self, *labels: str) -> Child:
        """Return the series with these labels, which is shown from now on."""
        known = self._known.get(labels)
        if known is None:
            known = self._known[labels] = self._parent.labels(*labels)
        return known

    def of_reason(self, *labels: str) -> Child:
        """Return a series whose last label an upstream chose; there are not many of them."""
        if labels not in self._known and sum(each[:-1] == labels[:-1] for each in self._known) >= _MOST_REASONS:
            return self.of(*labels[:-1], "other")
        return self.of(*labels)
