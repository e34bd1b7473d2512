"""Spans, their attributes and their export; `data/spans.txt` has the names.

The only file that loads OpenTelemetry, and that only for spans to send.
"""

import asyncio
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from time import perf_counter, time_ns
from urllib.parse import urlsplit

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
from proxy.models.usage import Usage
from proxy.policy import Fact
from proxy.step import Step
from proxy.telemetry.record import Record, conversation_id, names_of, turn_of
from proxy.text.tables import sections

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
"""The version of the conventions that the released names are from."""

_NAMES = {section: [line.split() for line in lines] for section, lines in sections("spans").items()}
_NUMBERS = {field: (name, kind) for kind in (int, float) for field, name in _NAMES[kind.__name__]}
"""The attributes of a call, below `gen_ai.request`, that are numbers in the request."""
_TOO_LARGE = 2**63
_MOST_ITEMS = 128
_LEVEL = re.compile(r"[a-z]{1,12}")
_ID = re.compile(r"[\w-]{1,128}")

_LONGEST_VALUE = 1024
"""Characters of an attribute: clients and upstreams choose some values."""
_LONGEST_NAME = 128
"""Characters of a model's name in a span's name; where the configuration has globs, it is the client's to choose."""

_TRACE_HEADERS = frozenset({"traceparent", "tracestate"})

_log = logging.getLogger("penstock.tracing")
_propagator = TraceContextTextMapPropagator()

Value = str | bool | int | float | list[str]


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
        self._tracer = self._provider.get_tracer("penstock", __version__, SCHEMA)
        self._all_steps = settings.spans == "all"

    def begin(self, method: str, route: str, path: str, headers: Mapping[str, str]) -> "RequestSpan":
        known = {"http.request.method": method, "http.route": route, "url.path": path, "url.scheme": "http"}
        parent = _propagator.extract(headers, Context())
        span = self._tracer.start_span(f"{method} {route}", parent, SpanKind.SERVER, _clean(known))
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
        self._span.add_event(name, _clean(known))

    def call(
        self,
        operation: str | None,
        provider: str,
        model: str,
        address: str | None,
        fields: Mapping[str, object],
        request: Record,
    ) -> "CallSpan":
        """Open the CLIENT span of a call; of a request that is not sampled it is the request's own span."""
        if not self._span.is_recording():
            return CallSpan(self._span)
        name, known = f"call {provider}", dict(_server(address))
        if operation and model:
            # a lone surrogate in a name would cost a whole batch its export
            name, who = f"{operation} {_text(model[:_LONGEST_NAME])}", request.who()
            known |= {
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": model,
                **_asked(fields),
                # a hash of an opening may be another conversation's too
                "gen_ai.conversation.id": conversation_id(who) if who.is_named else None,
                "gen_ai.conversation.compacted": any(step.compressed for step in request.steps) or None,
            }
        return CallSpan(self._tracer.start_span(name, self._context, SpanKind.CLIENT, _clean(known)), is_own=True)

    def end(self, request: Record, facts: Mapping[str, object], steps: Iterable[Step]) -> None:
        """Close the span, behind one for each step with its real times."""
        if not self._span.is_recording():
            return
        for step in steps:
            if self._all_steps or step.verdict not in ("keep", "skip"):
                start = self._epoch + int(step.started * 1e9)
                span = self._tracer.start_span(f"policy {step.policy}", self._context, start_time=start)
                of_step = {**_named("step", step), "penstock.policy.mode": "observe" if step.observed else "enforce"}
                of_step |= {f"penstock.policy.fact.{name}": value for name, value in step.facts.items()}
                _end(span, of_step, has_failed=step.verdict == "fail", at=start + int(step.seconds * 1e9))
        known = {name: facts.get(field) for name, field in _NAMES["request"]}
        turn = None if request.rewriting is None else turn_of(request.rewriting.came)
        conversation = {f"penstock.{name}.id": id for name, id in names_of(request.who()).items()}
        has_failed = request.status >= 500 or (request.error is not None and request.status < 400)
        if has_failed:  # an upstream's own error may have no code
            known["error.type"] = request.error or str(request.status)
        _end(self._span, {**known, **conversation, "penstock.conversation.turn": turn}, has_failed=has_failed)


class CallSpan:
    """The span of one call to an upstream."""

    def __init__(self, span: Span, *, is_own: bool = False) -> None:
        self._span, self._is_own = span, is_own

    def carry(self, headers: Mapping[str, str]) -> dict[str, str]:
        carried = {name: value for name, value in headers.items() if name not in _TRACE_HEADERS}
        _propagator.inject(carried, set_span_in_context(self._span, Context()))
        return carried

    def end(self, usage: Usage | None, facts: Mapping[str, Fact], first_chunk: float | None, error: str | None) -> None:
        if self._is_own:
            known: dict[str, object] = {f"penstock.upstream.fact.{name}": value for name, value in facts.items()}
            if usage is not None:
                known |= _named("answer", usage) | {f"gen_ai.usage.{name}": count for name, count in usage.modalities}
            known |= {"gen_ai.response.time_to_first_chunk": first_chunk, "error.type": error}
            _end(self._span, known, has_failed=error is not None)


def _end(span: Span, known: Mapping[str, object], *, has_failed: bool, at: int | None = None) -> None:
    span.set_attributes(_clean(known))
    if has_failed:
        span.set_status(Status(StatusCode.ERROR))
    span.end(at)


# --- attributes ---


def _named(section: str, source: object) -> dict[str, object]:
    """Return the attributes of a section of `data/spans.txt`."""
    return {name: getattr(source, field) for name, field in _NAMES[section]}


def _asked(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a request as attributes: no texts but a level of reasoning and an earlier response's id."""
    known: dict[str, object] = {}
    for name, value in fields.items():
        attribute, kind = _NUMBERS.get(name, ("", int))
        if attribute and isinstance(value, int | float) and type(value) is not bool and abs(value) < _TOO_LARGE:
            known[attribute] = kind(value) if kind(value) == value else None
    inner = (fields.get("reasoning"), fields.get("output_config"))
    levels = [fields.get("reasoning_effort"), *(each.get("effort") for each in inner if isinstance(each, Mapping))]
    stream, previous = fields.get("stream"), fields.get("previous_response_id")
    known["stream"] = stream if type(stream) is bool else None
    known["reasoning.level"] = next((each for each in levels if isinstance(each, str) and _LEVEL.fullmatch(each)), None)
    known["previous_response.id"] = previous if isinstance(previous, str) and _ID.fullmatch(previous) else None
    return {f"gen_ai.request.{name}": value for name, value in known.items()}


@lru_cache(maxsize=64)
def _server(address: str | None) -> Mapping[str, object]:
    """Return host and port of an upstream's address; nothing else of it, since it may hold credentials."""
    if address is None:
        return {}
    url = urlsplit(address)
    return {"server.address": url.hostname, "server.port": url.port or (443 if url.scheme == "https" else 80)}


def _clean(attributes: Mapping[str, object]) -> dict[str, Value]:
    """Return what can be exported: no None, no other types, nothing that OTLP cannot carry (a traceback each)."""
    return {name: carried for name, value in attributes.items() if (carried := _carried(value)) is not None}


def _carried(value: object) -> Value | None:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return [str(_carried(item)) for item in value[:_MOST_ITEMS]] or None
    if isinstance(value, int) and not -_TOO_LARGE <= value < _TOO_LARGE:
        return None
    return value if isinstance(value, int | float) else None


def _text(value: str) -> str:
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


# --- export ---


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
        named = None if "protocol" in settings.model_fields_set else _traces_variable("PROTOCOL")
        make = _grpc if (named or settings.protocol) == "grpc" else _http
        exporters.append(make(settings.endpoint))
    return exporters


def _traces_variable(name: str) -> str | None:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}")


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
