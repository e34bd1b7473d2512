"""Telemetry whose spans stay in memory, and requests that it sees."""

from collections.abc import Mapping, Sequence
from time import perf_counter

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proxy.config.settings import TelemetrySettings
from proxy.models.usage import Usage
from proxy.step import Step
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Telemetry
from proxy.telemetry.tracing import Tracing

Spans = dict[str, ReadableSpan]


class Recorded:
    """Telemetry whose spans stay in memory."""

    def __init__(self, settings: TelemetrySettings | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.telemetry = Telemetry(Metrics("1"), Tracing(settings or TelemetrySettings(), [self._exporter]))

    async def finished(self) -> Sequence[ReadableSpan]:
        """All spans, in the order in which they ended."""
        await self.telemetry.aclose()
        return self._exporter.get_finished_spans()

    async def spans(self) -> Spans:
        return {span.name: span for span in await self.finished()}


def scraped(metrics: Metrics) -> dict[str, float]:
    """What a scraper reads, but for the times at which series were made."""
    metrics.flush()
    lines = [line.rpartition(" ") for line in metrics.render("")[1].decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines if not name.partition("{")[0].endswith("_created")}


def step(policy: str = "window_history", **fields: object) -> Step:
    known: dict[str, object] = {
        "verdict": "rewrite", "why": "dropped 10 of 47 turns", "seconds": 0.25, "started": perf_counter(),
        "tokens_before": 900, "tokens_after": 400, "facts": {"dropped_turns": 10},
    }  # fmt: skip
    return Step(policy, **(known | fields))  # type: ignore[arg-type]


def request(
    telemetry: Telemetry,
    *steps: Step,
    headers: Mapping[str, str] | None = None,
    fields: Mapping[str, object] | None = None,
    usage: Usage | None = None,
) -> Mapping[str, str]:
    """One good request from end to end; what the upstream was sent as headers."""
    seen = telemetry.begin("POST", "/v1/chat/completions", headers or {}, request_id="req_1")
    seen.routed(model="gpt-*", upstream="main", chain="default")
    seen.ran(steps, before=900, after=400, window=8192)
    call = seen.call(provider="openai", model="gpt-4o", address="https://user:key@api.example:8443/v1", fields=fields)
    carried = call.carry({"content-type": "application/json", **(headers or {})})
    call.first_chunk()
    call.end(status=200, usage=usage or Usage(), facts={"retries": 1})
    seen.end(200, stream=True)
    return carried
