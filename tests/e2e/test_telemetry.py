"""One request as an operator sees it: a trace, metrics, headers and a line in the log."""

import asyncio
import json
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.e2e.conftest import Lab
from tests.e2e.servers import Upstream, proxy

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "gpt-*", upstream: main, window: 8192, prices: {{input: 2, output: 8}}}}]
chains:
  default:
    - consolidate_system: {{}}
    - window_history: {{keep_turns: 2, stride: 1, summary: false}}
telemetry: {{endpoint: "http://127.0.0.1:{sink}", log_level: info}}
"""
TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "my grandmother's recipe"


def exported(sink: Upstream) -> dict[str, Span]:
    spans: dict[str, Span] = {}
    for received in sink.received:
        message = ExportTraceServiceRequest.FromString(received.body)
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                spans |= {span.name: span for span in scope.spans}
    return spans


def attributes(span: Span) -> dict[str, object]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in span.attributes}


async def until_exported(sink: Upstream, name: str) -> None:
    async with asyncio.timeout(60):
        while name not in exported(sink):
            await asyncio.sleep(0.02)


async def test_a_request_is_a_trace(tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")  # the last seconds before an exit are too few on a busy machine
    behind, sink = lab.behind, await lab.upstream()
    async with proxy(CONFIG.format(url=behind.url, sink=sink.port), tmp_path) as base:
        turns = [{"role": "user", "content": text} for text in (SECRET, "b", "c")]
        body = {"model": "gpt-4o", "messages": turns, "temperature": 0.5}
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "authorization": "Bearer sk-secret"}
        status, told, _ = await lab.chat(base, body, headers)
        assert status == 200
        before, after, window = told["x-penstock-context"].split(";")
        assert int(before) > int(after)
        assert window == "8192"
        metrics = await lab.metrics(base)
        await until_exported(sink, "POST /v1/chat/completions")
    spans = exported(sink)
    raw = b"".join(received.body for received in sink.received)

    server, call = spans["POST /v1/chat/completions"], spans["chat gpt-4o"]
    steps = [spans["policy consolidate_system"], spans["policy window_history"]]
    assert server.kind == Span.SPAN_KIND_SERVER
    assert call.kind == Span.SPAN_KIND_CLIENT
    assert {span.trace_id.hex() for span in (server, call, *steps)} == {TRACE}
    assert server.parent_span_id.hex() == "b7ad6b7169203331"
    assert {span.parent_span_id for span in (call, *steps)} == {server.span_id}
    assert attributes(call)["gen_ai.request.temperature"] == 0.5
    assert attributes(call)["gen_ai.usage.input_tokens"] == 9
    written = attributes(call)["gen_ai.usage.output_tokens"]
    assert attributes(server)["penstock.cost.usd"] == pytest.approx((2 * 9 + 8 * int(str(written))) / 1e6)
    assert float(str(attributes(server)["penstock.cost.chain_saved_usd"])) > 0
    assert attributes(steps[1])["penstock.policy.verdict"] == "rewrite"
    assert attributes(steps[1])["penstock.policy.fact.dropped_turns"] == 1

    sent = {name.lower(): value for name, value in behind.last.headers}
    assert sent["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01"

    assert 'penstock_cost_usd_total{model="gpt-4o"}' in metrics
    assert 'penstock_context_compressions_total{strategy="window_history"} 1.0' in metrics
    assert 'penstock_policy_verdicts_total{mode="enforce",policy="consolidate_system",verdict="keep"} 1.0' in metrics
    for secret in (SECRET, "sk-secret"):
        assert secret.encode() not in raw
        assert secret not in metrics
        assert json.dumps(secret) not in metrics
