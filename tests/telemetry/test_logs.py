"""The lines that reach an operator, and what must never be in them."""

import json
import logging
from datetime import datetime

import pytest

from proxy.config.settings import TelemetrySettings
from proxy.telemetry.logs import configure
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.observation import Telemetry
from proxy.telemetry.tracing import Tracing
from tests.telemetry.recorded import request, step

SECRET = "the-prompt-text"


X = logging.getLogger("penstock.x")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


STEPS = (
    step(), step("filter_tools", verdict="keep"), step("summarise", verdict="keep"), step("trim", observed=True),
)  # fmt: skip


def test_a_request_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(TelemetrySettings())
    headers, fields = {"authorization": SECRET}, {"user": SECRET}
    request(Telemetry(Metrics("1")), *STEPS, headers=headers, fields=fields)

    (line,) = lines(capsys)
    assert isinstance(line.pop("ms"), float)
    assert datetime.fromisoformat(str(line.pop("time"))).utcoffset() is not None
    assert line == {
        "level": "info", "logger": "penstock.access", "event": "request", "request_id": "req_1",
        "route": "/v1/chat/completions", "model": "gpt-*", "upstream": "main", "chain": "default", "status": 200,
        "tokens_before": 900, "tokens_after": 400, "verdicts": {"rewrite": 1, "keep": 2, "observed_rewrite": 1},
        "stream": True,
    }  # fmt: skip


async def test_a_line_leads_to_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    configure(TelemetrySettings())
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    telemetry = Telemetry(Metrics("1"), Tracing(TelemetrySettings(), []))
    telemetry.begin("GET", "/v1/models", {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}).end(200)
    await telemetry.aclose()

    assert lines(capsys)[0]["trace_id"] == trace


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure(TelemetrySettings(log_format="text"))
    logging.getLogger("penstock.access").info("request", extra={"fields": {"status": 200, "why": "two words", "a": ""}})

    time, _, rest = capsys.readouterr().err.partition(" ")
    assert time.endswith("Z")
    assert rest == 'INFO penstock.access request status=200 why="two words" a=""\n'


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize(
    "strange", ["a\nb", "a\r\nb", "\x1b[2J", "\u2028", "\x85", "\x00", "\ud800", "\u202e", '"} {"'], ids=ascii
)
def test_no_value_starts_a_line_or_escapes(strange: str, log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure(TelemetrySettings.model_validate({"log_format": log_format}))
    X.info("%s", strange, extra={"fields": {"value": strange, strange: 1}})

    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    if log_format == "json":
        assert json.loads(line)["value"] == strange


def test_a_field_cannot_pretend_to_be_the_lines_head(capsys: pytest.CaptureFixture[str]) -> None:
    configure(TelemetrySettings())
    X.warning("true", extra={"fields": {"event": "false", "level": "debug"}})

    (line,) = lines(capsys)
    assert (line["event"], line["level"]) == ("true", "warning")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_an_exception_is_its_class_and_place_alone(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure(TelemetrySettings.model_validate({"log_format": log_format}))
    try:
        int(SECRET)
    except ValueError:
        X.exception("failed")

    text = capsys.readouterr().err
    assert "ValueError" in text
    assert "test_logs.py:" in text
    assert "int(" not in text
    assert SECRET not in text
    assert len(text.splitlines()) == 1


def test_what_is_no_json_is_written_as_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    class Key:
        def __str__(self) -> str:
            return SECRET

    configure(TelemetrySettings())
    X.info("odd", extra={"fields": {"value": Key()}})

    assert lines(capsys)[0]["value"] == "Key"


@pytest.mark.parametrize("name", ["LiteLLM", "httpx", "openai", "aiohttp.access", "uvicorn.access"])
def test_libraries_stay_quiet(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # servers and upstreams of other tests may have cut it off in this process
    monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    monkeypatch.setattr(logging.getLogger(name), "disabled", False)
    configure(TelemetrySettings(log_level="debug"))
    logging.getLogger(name).info(SECRET)
    logging.getLogger(name).warning("late")

    assert [line["event"] for line in lines(capsys)] == ["late"]


def test_the_level_holds_for_everybody_and_no_line_comes_twice(capsys: pytest.CaptureFixture[str]) -> None:
    configure(TelemetrySettings(log_level="error"))
    request(Telemetry(Metrics("1")))
    logging.getLogger("httpx").warning("late")
    X.error("real")

    assert [line["event"] for line in lines(capsys)] == ["real"]
    configure(TelemetrySettings())
    configure(TelemetrySettings(log_format="text"))
    X.info("once")

    assert len(capsys.readouterr().err.splitlines()) == 1
