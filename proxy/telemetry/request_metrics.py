"""What requests tell metrics: where they went, what steps did to them."""

from collections.abc import Mapping
from typing import Literal, Protocol

from proxy.models.usage import Usage
from proxy.policy import Count
from proxy.step import Step
from proxy.telemetry.series import Series

_MOST_REASONS = 50
"""Upstreams choose their error codes; beyond so many of one upstream, reasons are counted as `other`."""


Level = Literal["warn", "critical"]
"""How full a context is: nearly full, or too full to be sent."""


class Counted(Protocol):
    """A counter of the metrics' library."""

    def inc(self, amount: float = 1) -> None:
        """Count so much."""


class Observed(Protocol):
    """A histogram of the metrics' library."""

    def observe(self, amount: float) -> None:
        """Take note of a value."""


class RouteMetrics:
    """The series of one model at one upstream."""

    def __init__(self, series: "Series", model: str, upstream: str) -> None:
        self._series = series
        self._labels = (model, upstream)
        self._duration = series.duration.labels(model, upstream)
        self._first_chunk = series.first_chunk.labels(model, upstream)
        self._sizes = series.size.labels(model, "before"), series.size.labels(model, "after")
        self._shares = series.utilization.labels(model, "before"), series.utilization.labels(model, "after")
        self._overflows = series.overflows.labels(model)
        self._input = series.tokens.labels(model, "input")
        self._output = series.tokens.labels(model, "output")
        self._cached = series.tokens.labels(model, "cached_input")
        self._statuses: dict[int, Counted] = {}
        self._errors: dict[str, Counted] = {}

    def context(self, before: int | None, after: int | None, window: int | None) -> None:
        """Observe the tokens before and after the chain, and their share of the usable window."""
        for tokens, size, share in zip((before, after), self._sizes, self._shares, strict=True):
            if tokens is not None:
                size.observe(tokens)
                if window:
                    share.observe(tokens / window)

    def overflowed(self) -> None:
        """Count a request that did not fit."""
        self._overflows.inc()

    def first_chunk(self, seconds: float) -> None:
        """Observe how long the client waited for the first byte of its answer."""
        self._first_chunk.observe(seconds)

    def used(self, usage: Usage) -> None:
        """Count the tokens that the upstream reported."""
        if usage.input:
            self._input.inc(usage.input)
        if usage.output:
            self._output.inc(usage.output)
        if usage.cached:
            self._cached.inc(usage.cached)

    def warned(self, level: Level) -> None:
        """Count a context that was nearly full (`warn`), or refused because it was too large (`critical`)."""
        self._series.warnings.labels(self._labels[0], level).inc()

    def cost(self, usd: float) -> None:
        """Count what an answer cost."""
        self._series.cost.labels(self._labels[0]).inc(usd)

    def expected(self, usd: float, unchanged: float) -> None:
        """Count what a prompt was expected to cost as it was sent, and as the client sent it."""
        self._series.prompt_cost.labels(self._labels[0], "sent").inc(usd)
        self._series.prompt_cost.labels(self._labels[0], "unchanged").inc(unchanged)

    def cached(self, expected: int, reported: int) -> None:
        """Count the tokens that were expected to come from the provider's cache, and those that it says did."""
        self._series.cached_tokens.labels(self._labels[0], "expected").inc(expected)
        self._series.cached_tokens.labels(self._labels[0], "reported").inc(reported)

    def failed(self, reason: str) -> None:
        """Count an upstream's failure."""
        error = self._errors.get(reason)
        if error is None:
            if len(self._errors) >= _MOST_REASONS:
                reason = "other"
            error = self._errors[reason] = self._series.errors.labels(self._labels[1], reason)
        error.inc()

    def ended(self, status: int, seconds: float) -> None:
        """Count a request and observe its duration, in seconds."""
        requests = self._statuses.get(status)
        if requests is None:
            requests = self._statuses[status] = self._series.requests.labels(*self._labels, str(status))
        requests.inc()
        self._duration.observe(seconds)


class CallMetrics:
    """The series of the GenAI conventions for calls of one model."""

    def __init__(self, series: "Series", operation: str, provider: str, model: str) -> None:
        self._series, self._labels = series, (operation, provider, model)
        self._durations: dict[str, Observed] = {}
        self._input, self._output = (
            series.generation_tokens.labels(*self._labels, kind) for kind in ("input", "output")
        )

    def ended(self, seconds: float, error: str | None, usage: Usage | None) -> None:
        """Observe how long a call took, and the tokens that the upstream reported."""
        kind = error or ""
        duration = self._durations.get(kind)
        if duration is None:
            kind = kind if len(self._durations) < _MOST_REASONS else "other"
            duration = self._durations[kind] = self._series.generation_duration.labels(*self._labels, kind)
        duration.observe(seconds)
        if usage is not None:
            for tokens, histogram in ((usage.input, self._input), (usage.output, self._output)):
                if tokens is not None:
                    histogram.observe(tokens)


class PolicyMetrics:
    """The series of one policy."""

    def __init__(self, series: "Series", policy: str, counted: Mapping[str, Count]) -> None:
        self._series = series
        self._policy = policy
        self._counted = counted
        self._duration = series.policy_duration.labels(policy)
        self._compressions = series.compressions.labels(policy)
        self._ratio = series.ratio.labels(policy)
        self._verdicts: dict[tuple[str, bool], Counted] = {}

    def ran(self, step: Step) -> None:
        """Count what the policy decided about a request."""
        key = step.verdict, step.observed
        verdict = self._verdicts.get(key)
        if verdict is None:
            mode = "observe" if step.observed else "enforce"
            verdict = self._verdicts[key] = self._series.verdicts.labels(self._policy, step.verdict, mode)
        verdict.inc()
        if step.verdict != "skip":
            self._duration.observe(step.seconds)
        if step.compressed and step.tokens_before and step.tokens_after is not None:
            self._compressions.inc()
            self._ratio.observe(step.tokens_after / step.tokens_before)
        if step.facts and not step.observed:
            self._told(step)

    def _told(self, step: Step) -> None:
        once: dict[str, Count] = {}
        for fact, value in step.facts.items():
            count = self._counted.get(fact)
            if count is None or isinstance(value, str):
                continue
            if count.kind == "score":
                self._series.of(count, self._policy).observe(value)
            elif count.kind == "amount":
                new = step.facts.get(f"{fact}_new", value)
                self._series.of(count, self._policy).inc(value if isinstance(new, str) else new)
            elif value > 0 and step.verdict == "rewrite":
                once[count.series] = count
        for count in once.values():
            self._series.of(count, self._policy).inc()
