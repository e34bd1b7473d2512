"""Spans and their export. The only file that loads OpenTelemetry, and that only where traces are wanted."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter, time_ns

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy import __version__
from proxy.chat.errors import ConfigError
from proxy.config.settings import TelemetrySettings
from proxy.step import Step
from proxy.telemetry import attributes as attr

_LONGEST_VALUE = 1024
"""Characters of an attribute: clients and upstreams choose some values."""

_TRACE_HEADERS = frozenset({"traceparent", "tracestate", "baggage"})

_log = logging.getLogger("penstock.tracing")
_propagator = TraceContextTextMapPropagator()


class Tracing:
    """The tracer of one app, and its way out."""

    def __init__(self, settings: TelemetrySettings, exporters: Sequence[SpanExporter] | None = None) -> None:
        """Send spans where the settings say, or to `exporters`. Raises `ConfigError` if that cannot work."""
        self._exporters = _exporters(settings) if exporters is None else exporters
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sample)),
            resource=_resource(settings),
            span_limits=SpanLimits(max_span_attribute_length=_LONGEST_VALUE),
            shutdown_on_exit=False,
        )
        for exporter in self._exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("penstock", __version__, attr.SCHEMA)
        self._all_steps = settings.spans == "all"

    def begin(self, method: str, route: str, path: str, headers: Mapping[str, str]) -> "RequestSpan":
        known = {"http.request.method": method, "http.route": route, "url.path": path, "url.scheme": "http"}
        parent = _propagator.extract(headers, Context())
        span = self._tracer.start_span(f"{method} {route}", parent, SpanKind.SERVER, attr.clean(known))
        return RequestSpan(self._tracer, span, self._all_steps)

    async def aclose(self, seconds: float = 5.0) -> None:
        flush = threading.Thread(target=self._provider.shutdown, name="penstock-last-spans", daemon=True)
        flush.start()
        await asyncio.to_thread(flush.join, seconds)
        if flush.is_alive():
            _log.warning("spans were lost", extra={"fields": {"why": f"the collector took none for {seconds:g} s"}})
            for exporter in self._exporters:
                threading.Thread(target=exporter.shutdown, daemon=True).start()


class RequestSpan:
    """The SERVER span of a request, and the parent of all others."""

    def __init__(self, tracer: Tracer, span: Span, all_steps: bool) -> None:
        self._tracer, self._span, self._all_steps = tracer, span, all_steps
        self._epoch = time_ns() - int(perf_counter() * 1e9)
        self._context = set_span_in_context(span, Context())

    @property
    def trace_id(self) -> str:
        return f"{self._span.get_span_context().trace_id:032x}"

    def event(self, name: str, known: Mapping[str, object]) -> None:
        self._span.add_event(name, attr.clean(known))

    def call(
        self,
        operation: str | None,
        provider: str,
        model: str,
        address: str | None,
        fields: Mapping[str, object],
        known: Mapping[str, object],
    ) -> Span:
        """Open the CLIENT span of a call; of a request that is not sampled it is the request's own span."""
        if not self._span.is_recording():
            return self._span
        name, all_known = f"call {provider}", attr.of_server(address)
        if operation and model:
            name = f"{operation} {attr.model_name(model)}"
            all_known = {**all_known, **attr.of_generation(operation, provider, model, fields), **known}
        return self._tracer.start_span(name, self._context, SpanKind.CLIENT, attr.clean(all_known))

    def carry(self, call: Span, headers: Mapping[str, str]) -> dict[str, str]:
        carried = {name: value for name, value in headers.items() if name not in _TRACE_HEADERS}
        _propagator.inject(carried, set_span_in_context(call, Context()))
        return carried

    def called(self, call: Span, known: Mapping[str, object], *, has_failed: bool) -> None:
        if self._span.is_recording():
            _end(call, known, has_failed=has_failed)

    def end(self, known: Mapping[str, object], steps: Iterable[Step], *, has_failed: bool) -> None:
        """Close the span, behind one for each step with its real times."""
        if not self._span.is_recording():
            return
        for step in steps:
            if self._all_steps or step.verdict not in ("keep", "skip"):
                start = self._epoch + int(step.started * 1e9)
                span = self._tracer.start_span(f"policy {step.policy}", self._context, start_time=start)
                _end(span, attr.of_step(step), has_failed=step.verdict == "fail", at=start + int(step.seconds * 1e9))
        _end(self._span, known, has_failed=has_failed)


def _end(span: Span, known: Mapping[str, object], *, has_failed: bool, at: int | None = None) -> None:
    span.set_attributes(attr.clean(known))
    if has_failed:
        span.set_status(Status(StatusCode.ERROR))
    span.end(at)


def _resource(settings: TelemetrySettings) -> Resource:
    named = {"service.version": __version__, "service.name": settings.service_name}
    if "service_name" not in settings.model_fields_set and "service.name" in OTELResourceDetector().detect().attributes:
        del named["service.name"]
    return Resource.create(named)


def _exporters(settings: TelemetrySettings) -> list[SpanExporter]:
    exporters: list[SpanExporter] = []
    if settings.console:
        exporters.append(ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: span.to_json(indent=None) + "\n"))
    if settings.endpoint or _traces_variable("ENDPOINT"):
        exporters.append(_grpc(settings.endpoint) if _protocol(settings) == "grpc" else _http(settings.endpoint))
    return exporters


def _traces_variable(name: str) -> str | None:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}")


def _protocol(settings: TelemetrySettings) -> str:
    protocol = _traces_variable("PROTOCOL")
    return protocol if protocol and "protocol" not in settings.model_fields_set else settings.protocol


def _http(endpoint: str | None) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    path = "/v1/traces"
    return OTLPSpanExporter(endpoint if endpoint is None or endpoint.endswith(path) else endpoint + path)


def _grpc(endpoint: str | None) -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ConfigError(
            "telemetry.protocol is grpc, which needs one more package: install penstock[grpc], or set it to http"
        ) from None
    return OTLPSpanExporter(endpoint)
