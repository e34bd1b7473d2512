"""Where spans go: to a collector, to the console or, without an endpoint, nowhere."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from proxy.chat.errors import ConfigError
from proxy.config.settings import TelemetrySettings
from proxy.models.usage import Usage
from proxy.step import Step
from proxy.telemetry.observation import Telemetry
from tests.loopback import serving
from tests.telemetry.recorded import request, step


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
        scopes = [scope for each in self.requests for resource in each.resource_spans for scope in resource.scope_spans]
        return {span.name for scope in scopes for span in scope.spans}

    @property
    def resource(self) -> dict[str, str]:
        return {a.key: a.value.string_value for a in self.requests[0].resource_spans[0].resource.attributes}


@pytest.fixture
async def sink() -> AsyncGenerator[Sink, None]:
    sink = Sink()
    async with serving(sink.take) as sink.address:
        yield sink


async def export(*steps: Step, **settings: Any) -> None:
    """Send the spans of one request to where the settings say."""
    telemetry = Telemetry.open(TelemetrySettings(**settings))
    request(telemetry, *steps)
    await telemetry.aclose()


@pytest.mark.parametrize("path", ["", "/v1/traces"])
async def test_spans_reach_an_otlp_collector(sink: Sink, path: str) -> None:
    await export(step(), endpoint=sink.address + path, service_name="gate")

    assert sink.paths == ["/v1/traces"]
    assert sink.names == {"POST /v1/chat/completions", "policy window_history", "chat gpt-4o"}
    assert sink.resource["service.name"] == "gate"


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
async def test_the_environment_turns_tracing_on_too(sink: Sink, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, sink.address)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-environment")
    await export()

    assert "chat gpt-4o" in sink.names
    assert sink.resource["service.name"] == "from-environment"


async def test_the_name_may_be_an_attribute_of_the_environment(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=from-attributes,deployment.environment.name=test")
    await export(endpoint=sink.address)

    assert sink.resource["service.name"] == "from-attributes"


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
    await export(endpoint=f"http://127.0.0.1:{port}", protocol="grpc")
    server.stop(None)

    assert len(received[0].resource_spans[0].scope_spans[0].spans) == 2


def test_grpc_without_its_package_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)

    with pytest.raises(ConfigError, match=r"penstock\[grpc\]"):
        Telemetry.open(TelemetrySettings(endpoint="http://127.0.0.1:4317", protocol="grpc"))


async def test_the_console_gets_one_line_of_json_per_span(capsys: pytest.CaptureFixture[str]) -> None:
    await export(console=True)

    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["name"] for line in err.splitlines()] == ["chat gpt-4o", "POST /v1/chat/completions"]


async def test_a_missing_collector_holds_up_no_exit(unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    telemetry = Telemetry.open(TelemetrySettings(endpoint=f"http://127.0.0.1:{unused_tcp_port}"))
    request(telemetry)
    async with asyncio.timeout(30):  # by itself the library tries again for more than a minute
        await telemetry.aclose(0.2)


OFF = """
import sys
from proxy.config.settings import TelemetrySettings
from proxy.telemetry.observation import Telemetry

telemetry = Telemetry.open(TelemetrySettings())
seen = telemetry.begin("POST", "/v1/chat/completions", {"traceparent": "t"})
call = seen.call(provider="openai", model="gpt-4o")
assert call.carry({"traceparent": "t", "tracestate": "s"}) == {"traceparent": "t", "tracestate": "s"}
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
