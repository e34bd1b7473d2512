"""Calls of models as series of `/metrics`, by the names of the GenAI conventions as OpenTelemetry writes them."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from proxy.models.usage import Usage
from proxy.telemetry.attributes import opted
from proxy.telemetry.buckets import SECONDS, TOKENS, Labelled

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
