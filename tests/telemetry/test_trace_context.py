"""The trace of the caller: it goes on to the upstream, and it says whether spans are recorded."""

import pytest

from proxy.config.settings import TelemetrySettings
from tests.telemetry.recorded import Recorded, request, step

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "tracestate": "vendor=1"}


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


@pytest.mark.parametrize(("sample", "headers", "flag"), [
    pytest.param(1.0, {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-00"}, "00", id="the caller said no"),
    pytest.param(0.0, {}, "", id="the share says no"),
])  # fmt: skip
async def test_an_unsampled_request_is_not_recorded_but_its_trace_goes_on(
    sample: float, headers: dict[str, str], flag: str
) -> None:
    recorded = Recorded(TelemetrySettings(sample=sample))
    carried = request(recorded.telemetry, step(), headers=headers)

    assert int(carried["traceparent"].rpartition("-")[2], 16) & 1 == 0
    assert TRACE in carried["traceparent"] or not flag
    assert await recorded.spans() == {}
