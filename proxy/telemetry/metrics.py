"""The numbers behind `/metrics`. The only file that knows prometheus_client."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, multiprocess
from prometheus_client.exposition import choose_encoder

from proxy.errors import ConfigError
from proxy.policy import Fact
from proxy.step import Step
from proxy.telemetry.buckets import RATIOS, SECONDS, SHARES, STEP_SECONDS, TOKENS
from proxy.telemetry.mitigations import CALLS, COUNTED, HAPPENED, SCORED, SERIES, WRITES
from proxy.telemetry.service_metrics import IndexMetrics, LimitMetrics, WriterMetrics
from proxy.usage import Usage

_BREAKER = {"closed": 0.0, "half_open": 0.5, "open": 1.0}

_MOST_REASONS = 50
"""Upstreams choose their error codes; beyond so many of one upstream, reasons are counted as `other`."""


class Metrics:
    """All series of one app, in a registry of its own.

    Where `PROMETHEUS_MULTIPROC_DIR` names a directory, all processes that share it are shown as one. Series are looked
    up once and kept: a label look-up costs more than the count itself. Label values must come from the configuration.
    """

    def __init__(self, version: str) -> None:
        """Raises `ConfigError` if `PROMETHEUS_MULTIPROC_DIR` is set and is no directory."""
        self._directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if self._directory is not None and not os.path.isdir(self._directory):
            raise ConfigError(f"PROMETHEUS_MULTIPROC_DIR is {self._directory!r}, which is no directory: create it")
        self._registry = registry = CollectorRegistry()
        self._routes: dict[tuple[str, str], RouteMetrics] = {}
        self._policies: dict[str, _PolicyMetrics] = {}
        self._series = Series(registry)
        self.writer = WriterMetrics(self._series)
        self.config = ConfigMetrics(registry, shared=self._directory is not None)
        self.limits = LimitMetrics(self._series)
        self.index = IndexMetrics(self._series)
        self.active = Gauge(
            "penstock_active_requests", "Requests under way.", registry=registry, multiprocess_mode="livesum"
        )
        self.retries = Counter(
            "penstock_client_retries", "Requests that an SDK sent again by itself.", registry=registry
        )
        self._breakers = Gauge(
            "penstock_upstream_breaker",
            "0 closed, 1 open, 0.5 while a request is let through to see.",
            ["upstream"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        build = Gauge(
            "penstock_build_info", "Always 1.", ["version"], registry=registry, multiprocess_mode="mostrecent"
        )
        build.labels(version).set(1)
        if self._directory is None:
            ProcessCollector(registry=registry)

    def route(self, model: str, upstream: str) -> "RouteMetrics":
        """The series of a model at an upstream."""
        route = self._routes.get((model, upstream))
        if route is None:
            route = self._routes[model, upstream] = RouteMetrics(self._series, model, upstream)
        return route

    def ran(self, steps: Iterable[Step]) -> None:
        """Count the steps of one request."""
        for step in steps:
            policy = self._policies.get(step.policy)
            if policy is None:
                policy = self._policies[step.policy] = _PolicyMetrics(self._series, step.policy)
            policy.ran(step)

    def turned(self, model: str, to: str, reason: str) -> None:
        """Count a request for which another model was asked."""
        self._series.fallbacks.labels(model, to, reason).inc()

    def breaker(self, upstream: str) -> Callable[[str], None]:
        """What is told the states of an upstream's breaker."""
        gauge = self._breakers.labels(upstream)
        gauge.set(0)
        return lambda state: gauge.set(_BREAKER[state])

    def answered(self, facts: Mapping[str, Fact]) -> None:
        """Count the calls of internal tools that an answer took."""
        for name, calls in facts.items():
            if name.startswith(CALLS) and isinstance(calls, int):
                tool = name.removeprefix(CALLS)
                self._series.internal_calls.labels(tool).inc(calls)
                if tool == WRITES:
                    self._series.writes.inc(calls)

    def render(self, accept: str) -> tuple[str, bytes]:
        """Content type and body for a scraper that accepts this: OpenMetrics if it asks for it, else Prometheus text.

        Reads files where several processes share a directory.
        """
        registry = self._registry
        if self._directory is not None:
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry, self._directory)  # type: ignore[no-untyped-call]
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)

    def close(self) -> None:
        """Take this process's requests out of the shared gauge; counters stay."""
        if self._directory is not None:
            multiprocess.mark_process_dead(os.getpid(), self._directory)  # type: ignore[no-untyped-call]


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
        self._statuses: dict[int, Counter] = {}
        self._errors: dict[str, Counter] = {}

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

    def cost(self, usd: float, saved: float) -> None:
        """Count what an answer cost, and about what the chain saved of the prompt; less than nothing, if it added."""
        self._series.cost.labels(self._labels[0]).inc(usd)
        if saved:
            self._series.chain_cost.labels(self._labels[0], "saved" if saved > 0 else "added").inc(abs(saved))

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


class ConfigMetrics:
    """The series of the configuration that is in force."""

    def __init__(self, registry: CollectorRegistry, *, shared: bool) -> None:
        """With `shared`, several processes are shown as one."""
        self._shared = shared
        self._version: str | None = None
        self._info = Gauge(
            "penstock_config_info",
            "Processes that run a version of the configuration.",
            ["version"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._reloads = Counter("penstock_config_reloads", "Reloads of it.", ["outcome"], registry=registry)
        self._successful = Gauge(
            "penstock_config_last_reload_successful",
            "1 if what the file says is in force, 0 if it was refused.",
            registry=registry,
            multiprocess_mode="livemin",
        )
        self._when = Gauge(
            "penstock_config_last_reload_success_timestamp_seconds",
            "When it was last loaded.",
            registry=registry,
            multiprocess_mode="livemin",
        )

    def runs(self, version: str) -> None:
        """Say which version is in force from now on."""
        if self._version is not None and self._version != version:
            if self._shared:  # the library removes no series that processes share
                self._info.labels(self._version).set(0)
            else:
                self._info.remove(self._version)
        self._version = version
        self._info.labels(version).set(1)
        self._successful.set(1)
        self._when.set_to_current_time()

    def reloaded(self, outcome: str) -> None:
        """Count a reload: `applied`, `unchanged` or `refused`."""
        self._reloads.labels(outcome).inc()
        self._successful.set(0 if outcome == "refused" else 1)


class _PolicyMetrics:
    def __init__(self, series: "Series", policy: str) -> None:
        self._series = series
        self._policy = policy
        self._duration = series.policy_duration.labels(policy)
        self._compressions = series.compressions.labels(policy)
        self._ratio = series.ratio.labels(policy)
        self._verdicts: dict[tuple[str, bool], Counter] = {}
        self._mitigations: dict[str, Counter] = {}

    def ran(self, step: Step) -> None:
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
        happened: set[str] = set()
        for name, value in step.facts.items():
            if isinstance(value, str):
                continue
            if name in COUNTED:
                self._mitigation(COUNTED[name]).inc(value)
            elif name in SCORED:
                self._series.scores.labels(SCORED[name]).observe(value)
            elif name in HAPPENED and value > 0 and step.verdict == "rewrite":
                happened.add(HAPPENED[name])
        for name in happened:
            self._mitigation(name).inc()

    def _mitigation(self, name: str) -> Counter:
        if name not in self._mitigations:
            self._mitigations[name] = self._series.mitigations[name].labels(self._policy)
        return self._mitigations[name]


class Series:
    """The labelled series of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"penstock_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(f"penstock_{name}", text, labels, buckets=buckets, registry=registry)

        route = ("model", "upstream")
        self.size = histogram(
            "context_size_tokens", "Tokens of the prompt, before and after the chain.", TOKENS, "model", "phase"
        )
        self.utilization = histogram(
            "context_utilization", "Share of the usable window that the prompt takes.", SHARES, "model", "phase"
        )
        self.overflows = counter("context_overflows", "Requests too large for the model's window.", "model")
        self.compressions = counter("context_compressions", "Rewrites that made a prompt smaller.", "strategy")
        self.ratio = histogram("compression_ratio", "Tokens after a compression / before.", RATIOS, "strategy")
        self.requests = counter("requests", "Requests answered.", *route, "status")
        self.duration = histogram("request_duration_seconds", "Until the last byte.", SECONDS, *route)
        self.first_chunk = histogram("time_to_first_chunk_seconds", "Until the first byte.", SECONDS, *route)
        self.tokens = counter("tokens", "Tokens, as upstreams report them.", "model", "kind")
        self.cost = counter("cost_usd", "Cost of answers by reported usage, where prices are known.", "model")
        self.chain_cost = counter(
            "chain_cost_usd", "Estimated cost of the tokens that chains removed or added.", "model", "change"
        )
        self.errors = counter("upstream_errors", "Calls that an upstream failed.", "upstream", "reason")
        self.fallbacks = counter("fallbacks", "Requests that went on to another model.", "model", "to", "reason")
        self.written = counter("writer_summaries", "Summaries asked of the small model.", "outcome")
        self.writer_tokens = counter("writer_tokens", "Tokens of the small model, as upstreams report them.", "kind")
        self.limited = counter("limited_requests", "Requests refused by a limit.", "reason")
        self.unchecked = counter("limits_unchecked", "Counts for limits that could not be had.")
        self.index_failures = counter("index_failures", "Calls of the vector index that failed.", "operation", "cause")
        self.index_degraded = Gauge(
            "penstock_index_degraded",
            "Processes that do without the vector index, because it does not work.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.policy_duration = histogram("policy_duration_seconds", "Time in a policy.", STEP_SECONDS, "policy")
        self.verdicts = counter("policy_verdicts", "What policies decided.", "policy", "verdict", "mode")
        self.mitigations = {name: counter(name, text, "policy") for name, text in SERIES.items()}
        self.scores = histogram("content_quality", "Scores of new contents from outside.", RATIOS, "measure")
        self.internal_calls = counter("internal_calls", "Calls of tools that the proxy runs itself.", "tool")
        self.writes = counter("scratchpad_writes", "Notes that the model has taken.")
