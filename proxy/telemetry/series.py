"""The labelled series behind `/metrics`."""

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from proxy.chat.errors import ConfigError
from proxy.policy import NOTES_READ, NOTES_WRITTEN, ORIGINALS_READ, ORIGINALS_WRITTEN, Count
from proxy.telemetry.buckets import RATIOS, SECONDS, SHARES, STEP_SECONDS, TOKENS, Labelled
from proxy.telemetry.generations import Generations

Counts = Labelled[Counter]


class Series:
    """The labelled series of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counts:
            return Labelled(Counter(f"penstock_{name}", text, labels, registry=registry))

        def total(name: str, text: str) -> Counter:
            return Counter(f"penstock_{name}", text, registry=registry)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Labelled[Histogram]:
            return Labelled(Histogram(f"penstock_{name}", text, labels, buckets=buckets, registry=registry))

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
        self.judge_duration = Histogram(
            "penstock_judge_duration_seconds",
            "Until the judge had answered.",
            buckets=STEP_SECONDS,
            registry=registry,
        )
        self.limited = counter("limited_requests", "Requests refused by a limit, or for want of time.", "reason")
        self.without_state = total(
            "requests_without_state", "Requests decided without the state, which did not answer."
        )
        self.unchecked = total("limits_unchecked", "Counts for limits that could not be had.")
        self.index_failures = counter("index_failures", "Calls of the vector index that failed.", "operation", "cause")
        self.index_degraded = Gauge(
            "penstock_index_degraded",
            "Processes that do without the vector index, because it does not work.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.memories = counter("memories", "Memories, by what became of them.", "change")
        self.memory_bytes = total("memory_written_bytes", "Bytes of memories that were stored.")
        self.memory_searches = counter("memory_searches", "Searches in memories.", "found_by")
        self.memory_losses = counter("memory_losses", "Memories that left for want of room, in bulk.", "what")
        self.service_degraded = Labelled(
            Gauge(
                "penstock_service_degraded",
                "Processes that do without a service, because it does not work.",
                ["service"],
                registry=registry,
                multiprocess_mode="livesum",
            )
        )
        self.policy_duration = histogram("policy_duration_seconds", "Time in a policy.", STEP_SECONDS, "policy")
        self.verdicts = counter("policy_verdicts", "What policies decided.", "policy", "verdict", "mode")
        self.internal_calls = counter("internal_calls", "Calls of tools that the proxy runs itself.", "tool")
        self.generations = Generations(registry)
        self._registry = registry
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
