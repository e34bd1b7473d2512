"""The spans of a request, where they go, and what must never be in them."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

import grpc  # type: ignore[import-untyped]
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from proxy.context import CacheRules, Prices
from proxy.errors import ConfigError, UpstreamTimeout
from proxy.settings import TelemetrySettings
from proxy.step import Step
from proxy.telemetry import Telemetry
from proxy.telemetry.attributes import operation_of
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import ObservedCall
from proxy.telemetry.tracing import Tracing
from proxy.testing import profile
from proxy.usage import Usage

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "vendor=1", "baggage": "user=alice"}
SECRET = "the-prompt-text"

Spans = dict[str, ReadableSpan]


class Recorded:
    """Telemetry whose spans stay in memory."""

    def __init__(self, settings: TelemetrySettings | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.telemetry = Telemetry(Metrics("1"), Tracing(settings or TelemetrySettings(), [self._exporter]))

    async def spans(self) -> Spans:
        await self.telemetry.aclose()
        return {span.name: span for span in self._exporter.get_finished_spans()}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def step(policy: str = "window_history", **fields: object) -> Step:
    known: dict[str, object] = {
        "verdict": "rewrite",
        "why": "dropped 10 of 47 turns",
        "seconds": 0.25,
        "started": perf_counter(),
        "tokens_before": 900,
        "tokens_after": 400,
        "facts": {"dropped_turns": 10},
    }
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


def failed_call(telemetry: Telemetry) -> ObservedCall:
    return telemetry.begin("POST", "/v1/chat/completions", {}).call(provider="openai", model="gpt-4o")


async def test_a_request_is_a_server_span_with_its_steps_and_its_call_below(recorded: Recorded) -> None:
    request(recorded.telemetry, step(), step("filter_tools"))

    spans = await recorded.spans()
    server = spans["POST /v1/chat/completions"]
    assert {name: span.kind for name, span in spans.items()} == {
        "POST /v1/chat/completions": SpanKind.SERVER,
        "policy window_history": SpanKind.INTERNAL,
        "policy filter_tools": SpanKind.INTERNAL,
        "chat gpt-4o": SpanKind.CLIENT,
    }
    assert server.context is not None
    children = [span for span in spans.values() if span is not server]
    assert all(span.parent is not None and span.parent.span_id == server.context.span_id for span in children)


async def test_the_server_span_says_what_was_asked_and_answered(recorded: Recorded) -> None:
    request(recorded.telemetry)

    assert dict((await recorded.spans())["POST /v1/chat/completions"].attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "http.response.status_code": 200,
        "penstock.request.id": "req_1",
        "penstock.model": "gpt-*",
        "penstock.upstream": "main",
        "penstock.chain": "default",
        "penstock.context.tokens_before": 900,
        "penstock.context.tokens_after": 400,
        "penstock.context.window": 8192,
    }


async def test_the_server_span_says_what_the_request_cost(recorded: Recorded) -> None:
    priced = profile(prices=Prices(2.0, 8.0), cache=CacheRules(read=0.1, write=1.0, ttl=300))
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    seen.routed(model="gpt-*", upstream="main", profile=priced)
    seen.ran([], before=900, after=400, window=8192)
    for _ in range(2):
        seen.call(provider="openai", model="gpt-4o").end(status=200, usage=Usage(input=400, output=10, cached=300))
    seen.end(200)

    attributes = (await recorded.spans())["POST /v1/chat/completions"].attributes or {}
    assert attributes["penstock.cost.usd"] == pytest.approx(2 * (2 * (100 + 30) + 80) / 1e6)
    assert attributes["penstock.cost.chain_saved_usd"] == pytest.approx(2 * 2 * 50 / 1e6)


async def test_a_step_is_a_span_with_its_own_times(recorded: Recorded) -> None:
    request(recorded.telemetry, step(started=perf_counter(), seconds=0.25))

    spans = await recorded.spans()
    span, server = spans["policy window_history"], spans["POST /v1/chat/completions"]
    assert dict(span.attributes or {}) == {
        "penstock.policy.name": "window_history",
        "penstock.policy.verdict": "rewrite",
        "penstock.policy.why": "dropped 10 of 47 turns",
        "penstock.policy.mode": "enforce",
        "penstock.policy.tokens_before": 900,
        "penstock.policy.tokens_after": 400,
        "penstock.policy.fact.dropped_turns": 10,
    }
    assert span.start_time is not None
    assert span.end_time is not None
    assert server.start_time is not None
    assert span.end_time - span.start_time == 250_000_000
    assert abs(span.start_time - server.start_time) < 1_000_000_000
    assert span.status.status_code is StatusCode.UNSET


async def test_a_fault_marks_its_step_and_nothing_else(recorded: Recorded) -> None:
    request(recorded.telemetry, step(verdict="fail", why="ValueError"), step("shadow", observed=True))

    spans = await recorded.spans()
    assert [name for name, span in spans.items() if span.status.status_code is StatusCode.ERROR] == [
        "policy window_history"
    ]
    assert (spans["policy shadow"].attributes or {})["penstock.policy.mode"] == "observe"


async def test_the_client_span_follows_the_genai_conventions(recorded: Recorded) -> None:
    request(
        recorded.telemetry,
        step(),
        fields={"max_completion_tokens": 64, "temperature": 0.5, "n": 2, "seed": 7, "stream": True, "user": SECRET},
        usage=Usage(1000, 50, 900, "gpt-4o-2024-08-06", "chatcmpl-1", ("stop", "length")),
    )

    attributes = dict((await recorded.spans())["chat gpt-4o"].attributes or {})
    assert 0 <= float(str(attributes.pop("gen_ai.response.time_to_first_chunk"))) < 1
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "server.address": "api.example",
        "server.port": 8443,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": True,
        "gen_ai.conversation.compacted": True,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.response.finish_reasons": ("stop", "length"),
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 900,
        "penstock.upstream.fact.retries": 1,
    }


async def test_every_attribute_is_documented(recorded: Recorded) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "telemetry.md").read_text()
    numbers = ["max_tokens", "temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "seed", "n"]
    usage = Usage(1, 1, 1, "m", "i", ("stop",))
    request(recorded.telemetry, step(), fields={**dict.fromkeys(numbers, 1), "stream": True}, usage=usage)
    recorded.telemetry.begin("GET", "/v1/models", {}).end(500, error="internal_error")

    named = {key for span in (await recorded.spans()).values() for key in span.attributes or {}}
    assert len(named) > 30
    assert [key for key in named if ".fact." not in key and f"`{key}`" not in page] == []


async def test_only_a_smaller_prompt_is_compacted(recorded: Recorded) -> None:
    request(recorded.telemetry, step(tokens_after=900), step("shadow", observed=True))

    assert "gen_ai.conversation.compacted" not in ((await recorded.spans())["chat gpt-4o"].attributes or {})


@pytest.mark.parametrize(("model", "operation"), [("", "chat"), ("", None), ("gpt-4o", operation_of("/audio/speech"))])
async def test_only_the_call_to_a_model_is_a_generation(recorded: Recorded, model: str, operation: str | None) -> None:
    request(recorded.telemetry, step())
    seen = recorded.telemetry.begin("GET", "/v1/{path}", {}, path="/v1/files")
    seen.call(provider="openai", model=model, operation=operation, address="http://127.0.0.1/v1").end(status=200)

    spans = await recorded.spans()
    assert dict(spans["call openai"].attributes or {}) == {"server.address": "127.0.0.1", "server.port": 80}
    generations = [s.name for s in spans.values() if any(key.startswith("gen_ai.") for key in s.attributes or {})]
    assert generations == ["chat gpt-4o"]


async def test_the_callers_trace_goes_on_to_the_upstream(recorded: Recorded) -> None:
    carried = request(recorded.telemetry, headers=CALLER)

    spans = await recorded.spans()
    server, client = spans["POST /v1/chat/completions"], spans["chat gpt-4o"]
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert client.context is not None
    assert carried == {
        "content-type": "application/json",
        "traceparent": f"00-{TRACE}-{client.context.span_id:016x}-01",
        "tracestate": "vendor=1",
    }


@pytest.mark.parametrize("traceparent", ["", "nonsense", f"00-{'0' * 32}-{'0' * 16}-01", "00-" + "f" * 4000])
async def test_a_broken_traceparent_starts_a_new_trace(recorded: Recorded, traceparent: str) -> None:
    carried = request(recorded.telemetry, headers={"traceparent": traceparent, "tracestate": "vendor=1"})

    span = (await recorded.spans())["POST /v1/chat/completions"]
    assert span.parent is None
    assert span.context is not None
    assert carried["traceparent"].startswith(f"00-{span.context.trace_id:032x}-")
    assert "tracestate" not in carried


@pytest.mark.parametrize(
    ("sample", "headers", "flag"),
    [
        pytest.param(1.0, {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-00"}, "00", id="the caller said no"),
        pytest.param(0.0, {}, "", id="the share says no"),
    ],
)
async def test_an_unsampled_request_is_not_recorded_but_its_trace_goes_on(
    sample: float, headers: dict[str, str], flag: str
) -> None:
    recorded = Recorded(TelemetrySettings(sample=sample))
    carried = request(recorded.telemetry, step(), headers=headers)

    assert int(carried["traceparent"].rpartition("-")[2], 16) & 1 == 0
    assert TRACE in carried["traceparent"] or not flag
    assert await recorded.spans() == {}


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        pytest.param(200, None, StatusCode.UNSET, id="fine"),
        pytest.param(400, "context_length_exceeded", StatusCode.UNSET, id="the client's mistake"),
        pytest.param(499, "client_gone", StatusCode.UNSET, id="the client left"),
        pytest.param(502, "upstream_unreachable", StatusCode.ERROR, id="ours or the upstream's"),
        pytest.param(200, "upstream_unreachable", StatusCode.ERROR, id="broken off"),
    ],
)
async def test_a_server_span_is_an_error_where_the_server_failed(
    recorded: Recorded, status: int, error: str | None, code: StatusCode
) -> None:
    recorded.telemetry.begin("POST", "/v1/chat/completions", {}).end(status, error=error)

    span = (await recorded.spans())["POST /v1/chat/completions"]
    assert span.status.status_code is code
    assert (span.attributes or {}).get("error.type") == error


async def test_errors_are_recorded_by_kind_and_never_by_text(recorded: Recorded) -> None:
    failed_call(recorded.telemetry).end(error=UpstreamTimeout(SECRET))

    span = (await recorded.spans())["chat gpt-4o"]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "upstream_timeout"
    assert SECRET not in span.to_json()


async def test_no_text_of_a_request_is_in_any_span(recorded: Recorded) -> None:
    fields = {
        "messages": [{"role": "user", "content": SECRET}],
        "stop": [SECRET],
        "user": SECRET,
        "temperature": SECRET,
        "max_tokens": [SECRET],
        "metadata": {"note": SECRET},
        "stream": SECRET,
    }
    request(recorded.telemetry, step(), headers={"authorization": SECRET, "cookie": SECRET}, fields=fields)

    spans = await recorded.spans()
    assert len(spans) == 3
    assert SECRET not in "".join(span.to_json() for span in spans.values())
    assert "key" not in "".join(str(span.attributes) for span in spans.values()), "the address has credentials"


async def test_values_from_outside_are_cut_to_a_bearable_length(recorded: Recorded) -> None:
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    seen.call(provider="openai", model="m" * 9000).end(usage=Usage(response_id="i" * 9000))

    (span,) = (await recorded.spans()).values()
    assert len(span.name) == len("chat ") + 128
    assert {len(str((span.attributes or {})[key])) for key in ("gen_ai.request.model", "gen_ai.response.id")} == {1024}


class Sink:
    """An OTLP/HTTP collector on loopback."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []
        self.address = ""

    async def take(self, http: web.Request) -> web.Response:
        self.paths.append(http.path)
        self.requests.append(ExportTraceServiceRequest.FromString(await http.read()))
        return web.Response(body=ExportTraceServiceResponse().SerializeToString())

    @property
    def names(self) -> set[str]:
        return {
            span.name
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }

    @property
    def resource(self) -> dict[str, str]:
        return {a.key: a.value.string_value for a in self.requests[0].resource_spans[0].resource.attributes}


@pytest.fixture
async def sink() -> AsyncGenerator[Sink, None]:
    sink = Sink()
    app = web.Application()
    app.router.add_post("/{path:.*}", sink.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    sink.address = f"http://{host}:{port}"
    yield sink
    await runner.cleanup()


@pytest.mark.parametrize("path", ["", "/v1/traces"])
async def test_spans_reach_an_otlp_collector(sink: Sink, path: str) -> None:
    telemetry = Telemetry.open(TelemetrySettings(endpoint=sink.address + path, service_name="gate"))
    request(telemetry, step())
    await telemetry.aclose()

    assert sink.paths == ["/v1/traces"]
    assert sink.names == {"POST /v1/chat/completions", "policy window_history", "chat gpt-4o"}
    assert sink.resource["service.name"] == "gate"


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
async def test_the_environment_turns_tracing_on_too(sink: Sink, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, sink.address)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-environment")
    telemetry = Telemetry.open(TelemetrySettings())
    request(telemetry)
    await telemetry.aclose()

    assert "chat gpt-4o" in sink.names
    assert sink.resource["service.name"] == "from-environment"


async def test_no_value_from_outside_can_cost_a_batch_its_export(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry.open(TelemetrySettings(endpoint=sink.address))
    strange = "\ud800"
    seen = telemetry.begin("POST", "/v1/chat/completions", {}, path=strange, request_id=strange)
    seen.ran([step(why=strange, facts={"huge": 10**400, "text": strange})], before=2**70, after=1, window=9)
    call = seen.call(provider="openai", model=strange, fields={"seed": 2**64, "n": -(2**70), "top_p": float("nan")})
    call.end(usage=Usage(2**63, 1, 1, strange, strange, (strange,) * 999))
    seen.end(200)
    await telemetry.aclose()

    assert sink.names == {"POST /v1/chat/completions", "policy window_history", "chat ?"}
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


async def test_spans_reach_a_collector_over_grpc() -> None:
    received: list[ExportTraceServiceRequest] = []

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: object) -> ExportTraceServiceResponse:
            received.append(request)
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    telemetry = Telemetry.open(TelemetrySettings(endpoint=f"http://127.0.0.1:{port}", protocol="grpc"))
    request(telemetry)
    await telemetry.aclose()
    server.stop(None)

    assert len(received[0].resource_spans[0].scope_spans[0].spans) == 2


def test_grpc_without_its_package_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)

    with pytest.raises(ConfigError, match=r"penstock\[grpc\]"):
        Telemetry.open(TelemetrySettings(endpoint="http://127.0.0.1:4317", protocol="grpc"))


async def test_the_console_gets_one_line_of_json_per_span(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = Telemetry.open(TelemetrySettings(console=True))
    request(telemetry)
    await telemetry.aclose()

    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["name"] for line in err.splitlines()] == ["chat gpt-4o", "POST /v1/chat/completions"]


async def test_an_unreachable_collector_does_not_hold_up_the_exit(unused_tcp_port: int) -> None:
    telemetry = Telemetry.open(TelemetrySettings(endpoint=f"http://127.0.0.1:{unused_tcp_port}"))
    request(telemetry)
    started = perf_counter()
    await telemetry.aclose(0.2)

    assert perf_counter() - started < 1


OFF = """
import sys
from proxy.settings import TelemetrySettings
from proxy.telemetry import Telemetry

telemetry = Telemetry.open(TelemetrySettings())
seen = telemetry.begin("POST", "/v1/chat/completions", {"traceparent": "t"})
call = seen.call(provider="openai", model="gpt-4o")
assert call.carry({"traceparent": "t", "tracestate": "s", "baggage": "b"}) == {"traceparent": "t", "tracestate": "s"}
call.end(status=200)
seen.end(200)
assert seen.trace_id is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")], "loaded for nothing"
"""


@pytest.mark.parametrize(
    "environment", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}]
)
def test_without_an_endpoint_opentelemetry_is_not_even_loaded(environment: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", OFF], env={**os.environ, **environment}, check=True)


async def test_another_model_is_an_event_of_the_request(recorded: Recorded) -> None:
    seen = recorded.telemetry.begin("POST", "/v1/chat/completions", {})
    seen.turned("gpt-*", "claude", "upstream_timeout")
    seen.end(200)

    (event,) = (await recorded.spans())["POST /v1/chat/completions"].events
    assert event.name == "penstock.fallback"
    assert dict(event.attributes or {}) == {
        "penstock.model": "gpt-*",
        "penstock.fallback.model": "claude",
        "penstock.fallback.reason": "upstream_timeout",
    }
