"""The numbers behind `/metrics`. The only file that knows prometheus_client."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, multiprocess
from prometheus_client.exposition import choose_encoder

from proxy.errors import ConfigError
from proxy.policy import Fact
from proxy.step import Step
from proxy.telemetry.buckets import RATIOS, SECONDS, SHARES, STEP_SECONDS, TOKENS
from proxy.telemetry.mitigations import CALLS, READS, SERIES, WRITES
from proxy.telemetry.request_metrics import PolicyMetrics, RouteMetrics
from proxy.telemetry.service_metrics import (
    IndexMetrics,
    JudgeMetrics,
    KeyMetrics,
    LimitMetrics,
    MemoryMetrics,
    ScratchpadMetrics,
    WriterMetrics,
)

MOST_MODELS = 200
"""Names of models that are labels. Where the configuration has globs, clients choose names."""

_NAME = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")
_BREAKER = {"closed": 0.0, "half_open": 0.5, "open": 1.0}


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
        self._models: set[str] = set()
        self._routes: dict[tuple[str, str], RouteMetrics] = {}
        self._policies: dict[str, PolicyMetrics] = {}
        self._keys: dict[str, KeyMetrics] = {}
        self._series = Series(registry)
        self.writer = WriterMetrics(self._series)
        self.judge = JudgeMetrics(self._series)
        self.config = ConfigMetrics(registry, shared=self._directory is not None)
        self.limits = LimitMetrics(self._series)
        self.index = IndexMetrics(self._series)
        self.memories = MemoryMetrics(self._series)
        self.scratchpad = ScratchpadMetrics(self._series)
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

    def model(self, name: str, *, named: bool) -> str:
        """The label of a model: its name, or `other` for one that only clients named once there are many of these."""
        if name not in self._models:
            if not named and (len(self._models) >= MOST_MODELS or not _NAME.fullmatch(name)):
                return "other"
            self._models.add(name)
        return name

    def route(self, model: str, upstream: str) -> "RouteMetrics":
        """The series of a model at an upstream."""
        route = self._routes.get((model, upstream))
        if route is None:
            route = self._routes[model, upstream] = RouteMetrics(self._series, model, upstream)
        return route

    def key(self, name: str) -> KeyMetrics:
        """The series of a key of Penstock."""
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = KeyMetrics(self._series, name)
        return key

    def degraded(self, service: str, degraded: bool) -> None:
        """Say whether this process does without a service."""
        self._series.service_degraded.labels(service).set(int(degraded))

    def without_state(self) -> None:
        """Count a request that was decided without what the state has."""
        self._series.without_state.inc()

    def ran(self, steps: Iterable[Step]) -> None:
        """Count the steps of one request."""
        for step in steps:
            policy = self._policies.get(step.policy)
            if policy is None:
                policy = self._policies[step.policy] = PolicyMetrics(self._series, step.policy)
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
                    self._series.writes.labels("note").inc(calls)
                elif tool == READS:
                    self._series.reads.labels("original").inc(calls)

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
        self.warnings = counter(
            "context_warnings", "Contexts that were nearly full, or too large and refused.", "model", "level"
        )
        self.compressions = counter("context_compressions", "Rewrites that made a prompt smaller.", "strategy")
        self.ratio = histogram("compression_ratio", "Tokens after a compression / before.", RATIOS, "strategy")
        self.requests = counter("requests", "Requests answered.", *route, "status")
        self.duration = histogram("request_duration_seconds", "Until the last byte.", SECONDS, *route)
        self.first_chunk = histogram("time_to_first_chunk_seconds", "Until the first byte.", SECONDS, *route)
        self.tokens = counter("tokens", "Tokens, as upstreams report them.", "model", "kind")
        self.cost = counter("cost_usd", "Cost of answers by reported usage, where prices are known.", "model")
        self.prompt_cost = counter(
            "prompt_cost_usd", "Estimated cost of prompts, as they were sent and unchanged.", "model", "prompt"
        )
        self.cached_tokens = counter(
            "cached_tokens", "Tokens from providers' caches, as expected and as reported.", "model", "source"
        )
        self.key_requests = counter("key_requests", "Requests of each key of Penstock.", "key", "status")
        self.key_tokens = counter("key_tokens", "Tokens of each key, as upstreams report them.", "key", "kind")
        self.key_cost = counter("key_cost_usd", "Cost of each key's answers, where prices are known.", "key")
        self.errors = counter("upstream_errors", "Calls that an upstream failed.", "upstream", "reason")
        self.fallbacks = counter("fallbacks", "Requests that went on to another model.", "model", "to", "reason")
        self.written = counter("writer_summaries", "Summaries asked of the small model.", "outcome")
        self.writer_tokens = counter("writer_tokens", "Tokens of the small model, as upstreams report them.", "kind")
        self.judged = counter("judge_verdicts", "Pairs of texts that a model was to judge.", "outcome")
        self.judge_tokens = counter("judge_tokens", "Tokens of the judge, as its upstream reports them.", "kind")
        self.judge_duration = histogram("judge_duration_seconds", "Until the judge had answered.", STEP_SECONDS)
        self.limited = counter("limited_requests", "Requests refused by a limit, or for want of time.", "reason")
        self.without_state = counter(
            "requests_without_state", "Requests decided without the state, which did not answer."
        )
        self.unchecked = counter("limits_unchecked", "Counts for limits that could not be had.")
        self.index_failures = counter("index_failures", "Calls of the vector index that failed.", "operation", "cause")
        self.index_degraded = Gauge(
            "penstock_index_degraded",
            "Processes that do without the vector index, because it does not work.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.memories = counter("memories", "Memories, by what became of them.", "change")
        self.memory_bytes = counter("memory_written_bytes", "Bytes of memories that were stored.")
        self.memory_searches = counter("memory_searches", "Searches in memories.", "found_by")
        self.memory_losses = counter("memory_losses", "Memories that left for want of room, in bulk.", "what")
        self.service_degraded = Gauge(
            "penstock_service_degraded",
            "Processes that do without a service, because it does not work.",
            ["service"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.policy_duration = histogram("policy_duration_seconds", "Time in a policy.", STEP_SECONDS, "policy")
        self.verdicts = counter("policy_verdicts", "What policies decided.", "policy", "verdict", "mode")
        self.mitigations = {name: counter(name, text, "policy") for name, text in SERIES.items()}
        self.scores = histogram("content_quality", "Scores of new contents from outside.", RATIOS, "measure")
        self.internal_calls = counter("internal_calls", "Calls of tools that the proxy runs itself.", "tool")
        self.writes = counter("scratchpad_writes", "Notes taken, and originals that left a context.", "kind")
        self.reads = counter("scratchpad_reads", "Notes put back into requests, and originals asked for.", "kind")
