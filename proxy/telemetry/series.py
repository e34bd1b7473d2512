"""The labelled series behind `/metrics`."""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from proxy.chat.errors import ConfigError
from proxy.models.usage import Usage
from proxy.policy import NOTES_READ, NOTES_WRITTEN, ORIGINALS_READ, ORIGINALS_WRITTEN, Count
from proxy.telemetry.attributes import opted

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
STEP_SECONDS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
TOKENS = tuple(4**power for power in range(14))
RATIOS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1, 1.25, 1.5, 2, 4)
"""The bucket boundaries of histograms."""

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


Counts = Labelled[Counter]
Mode = Literal["livemax", "livemin", "livesum", "mostrecent"]
"""The value that a gauge shows of several processes."""


class Maker:
    """Makes the series of a registry that have Penstock's names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counts:
        return Labelled(self.total(name, text, *labels))

    def total(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"penstock_{name}", text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Labelled[Histogram]:
        return Labelled(Histogram(f"penstock_{name}", text, labels, buckets=buckets, registry=self.registry))

    def gauge(self, name: str, text: str, mode: Mode, *labels: str) -> Gauge:
        return Gauge(f"penstock_{name}", text, labels, registry=self.registry, multiprocess_mode=mode)


# --- by the names of the GenAI conventions ---

_CALL = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
_EMBEDDINGS = "embeddings"
_UNKNOWN = "unknown"
"""The modality of tokens where the upstream does not break them down."""
_KINDS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cache_read_input_tokens",
    "written": "cache_write_input_tokens",
    "reasoning": "reasoning_output_tokens",
}
"""The latest names of counters, by the field of `Usage`."""


class Generations:
    """The series of calls of models: by the released names, the latest ones, or both."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def seconds(name: str, text: str, *labels: str) -> Labelled[Histogram]:
            return Labelled(
                Histogram(f"gen_ai_client_{name}_seconds", text, labels, buckets=SECONDS, registry=registry)
            )

        def tokens(name: str, text: str, *labels: str) -> Labelled[Histogram]:
            return Labelled(Histogram(f"gen_ai_client_{name}", text, labels, buckets=TOKENS, registry=registry))

        self._released, self._latest = opted()
        # with the latest names, only calls that are no inference have this one
        self._duration = seconds("operation_duration", "Duration of calls of models.", *_CALL, "error_type")
        if self._released:
            self._usage = tokens("token_usage", "Tokens of calls of models.", *_CALL, "gen_ai_token_type")
        if self._latest:
            self._inference = seconds("inference_duration", "Duration of inferences.", *_CALL, "error_type")
            self._first = seconds("inference_time_to_first_chunk", "Time to the first chunk of an answer.", *_CALL)
            self._each = {
                side: tokens(f"inference_operation_{side}_tokens", f"Tokens of inferences: {side}.", *_CALL)
                for side in ("input", "output")
            }
            self._used = {
                kind: Labelled(
                    Counter(
                        f"gen_ai_client_inference_usage_{name}",
                        f"Tokens used: {name.replace('_', ' ')}.",
                        (*_CALL, "gen_ai_token_modality"),
                        registry=registry,
                    )
                )
                for kind, name in _KINDS.items()
            }

    def ended(
        self,
        call: tuple[str, str, str],
        error: str | None,
        seconds: float,
        first_chunk: float | None,
        usage: Usage | None,
    ) -> None:
        """Count a call, of which these are the operation, the provider and the model."""
        is_inference = call[0] != _EMBEDDINGS
        if self._released or not is_inference:
            self._duration.of_reason(*call, error or "").observe(seconds)
        if self._released:
            used = Usage() if usage is None else usage
            for name, count in (("input", used.input), ("output", used.output)):
                histogram = self._usage.of(*call, name)
                if count is not None:
                    histogram.observe(count)
        if self._latest and is_inference:
            self._inference.of_reason(*call, error or "").observe(seconds)
            if first_chunk is not None:
                self._first.of(*call).observe(first_chunk)
            if usage is not None:
                self._count(call, usage)

    def _count(self, call: tuple[str, str, str], usage: Usage) -> None:
        for kind, series in self._used.items():
            count: int | None = getattr(usage, kind)
            if count is None:
                continue
            if kind in self._each:
                self._each[kind].of(*call).observe(count)
            end = f".{kind}_tokens"
            known = {name.removesuffix(end): part for name, part in usage.modalities if name.endswith(end)}
            for modality, part in {**known, _UNKNOWN: count - sum(known.values())}.items():
                if part > 0:
                    series.of(*call, modality).inc(part)


# --- by Penstock's own names ---


class Series:
    """The labelled series of a registry."""

    def __init__(self, make: Maker) -> None:
        counter, total, histogram = make.counter, make.total, make.histogram
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
        self.harmful_steps = counter(
            "harmful_steps", "Steps put on hold in a conversation, because the vendor reports harm.", "policy", "reason"
        )
        self.key_requests = counter("key_requests", "Requests of each key of Penstock.", "key", "status")
        self.key_tokens = counter("key_tokens", "Tokens of each key, as upstreams report them.", "key", "kind")
        self.key_cost = counter("key_cost_usd", "Cost of each key's answers, where prices are known.", "key")
        self.errors = counter("upstream_errors", "Calls that an upstream failed.", "upstream", "reason")
        self.upstream_cpu = counter(
            "upstream_cpu_seconds", "CPU time of the process in which litellm runs, by whom it worked for.", "upstream"
        )
        self.fallbacks = counter("fallbacks", "Requests that went on to another model.", "model", "to", "reason")
        self.written = counter("writer_summaries", "Summaries asked of the small model.", "outcome")
        self.writer_tokens = counter("writer_tokens", "Tokens of the small model, as upstreams report them.", "kind")
        self.judged = counter("judge_verdicts", "Pairs of texts that a model was to judge.", "outcome")
        self.judge_tokens = counter("judge_tokens", "Tokens of the judge, as its upstream reports them.", "kind")
        self.pilot = counter("pilot_requests", "Refreshes of prompt caches, and held requests.", "outcome")
        self.pilot_cost = counter("pilot_cost_usd", "Cost of the refreshes of prompt caches, as expected.", "model")
        about = "Until the judge had answered."
        self.judge_duration = Histogram(
            "penstock_judge_duration_seconds", about, buckets=STEP_SECONDS, registry=make.registry
        )
        self.limited = counter("limited_requests", "Requests refused by a limit, or for want of time.", "reason")
        self.without_state = total(
            "requests_without_state", "Requests decided without the state, which did not answer."
        )
        self.unchecked = total("limits_unchecked", "Counts for limits that could not be had.")
        self.index_failures = counter("index_failures", "Calls of the vector index that failed.", "operation", "cause")
        self.index_degraded = make.gauge(
            "index_degraded", "Processes that do without the vector index, because it does not work.", "livesum"
        )
        self.memories = counter("memories", "Memories, by what became of them.", "change")
        self.memory_bytes = total("memory_written_bytes", "Bytes of memories that were stored.")
        self.memory_searches = counter("memory_searches", "Searches in memories.", "found_by")
        self.memory_losses = counter("memory_losses", "Memories that left for want of room, in bulk.", "what")
        self.service_degraded = make.gauge(
            "service_degraded", "Processes that do without a service, because it does not work.", "livesum", "service"
        )
        self.policy_duration = histogram("policy_duration_seconds", "Time in a policy.", STEP_SECONDS, "policy")
        self.verdicts = counter("policy_verdicts", "What policies decided.", "policy", "verdict", "mode")
        self.internal_calls = counter("internal_calls", "Calls of tools that the proxy runs itself.", "tool")
        self.generations = Generations(make.registry)
        self._registry = make.registry
        self._counts: dict[str, tuple[str, bool, Counter | Histogram]] = {}
        """The counts of policies: the label, True for a score, and the series."""
        for count in (NOTES_READ, NOTES_WRITTEN):
            self.declare(count)
        self.originals_read, self.originals_written = self.of(ORIGINALS_READ), self.of(ORIGINALS_WRITTEN)

    def declare(self, count: Count) -> None:
        """Make the series of a count, unless it is there. Raise `ConfigError` where its name is that of another one."""
        name, label = f"penstock_{count.series}", "policy" if count.label is None else count.label[0]
        known = self._counts.get(count.series)
        if known is not None and known[:2] == (label, count.kind == "score"):
            return
        try:
            if count.kind == "score":
                series: Counter | Histogram = Histogram(
                    name, count.text, [label], buckets=RATIOS, registry=self._registry
                )
            else:
                series = Counter(name, count.text, [label], registry=self._registry)
        except ValueError as error:
            raise ConfigError(f"{name}, which a policy counts, cannot be made: {error}") from None
        self._counts[count.series] = label, count.kind == "score", series

    def of(self, count: Count, policy: str = "") -> Any:
        """Return the series of a count that was declared."""
        return self._counts[count.series][2].labels(policy if count.label is None else count.label[1])
