"""What a scraper reads after requests of every kind."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from policies.keep_notes import KeepNotes
from proxy.chat.errors import ConfigError, PenstockError, Unanswered, UpstreamTimeout
from proxy.config.load import policy_class, policy_names
from proxy.context import CacheRules, ModelProfile, Prices
from proxy.models.usage import Usage
from proxy.policy import Count, Fact
from proxy.step import Step, Verdict
from proxy.telemetry.metrics import MOST_MODELS, Metrics
from proxy.telemetry.observation import Observation, Telemetry
from proxy.testing import profile
from tests.telemetry.recorded import scraped

GPT = 'model="gpt-4o",upstream="openai"'


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(Metrics("1.2.3"))


def step(verdict: Verdict, policy: str = "window_history", after: int = 400, *, observed: bool = False) -> Step:
    return Step(policy, verdict, "why", 0.003, 0.0, 1000, after, observed=observed)


def begun(telemetry: Telemetry, headers: Mapping[str, str] | None = None) -> Observation:
    seen = telemetry.begin("POST", "/v1/chat/completions", headers or {})
    seen.routed(model="gpt-4o", upstream="openai", chain="default")
    return seen


def test_the_breaker_of_an_upstream_that_is_gone_is_not_told(telemetry: Telemetry) -> None:
    told = telemetry.metrics.breaker("gone")
    telemetry.metrics.breaker("stays")("open")
    told("open")
    telemetry.metrics.has_upstreams(["stays"])
    told("half_open")
    (known,) = [name for name in scraped(telemetry.metrics) if "breaker" in name]
    assert known == 'penstock_upstream_breaker{upstream="stays"}'
    telemetry.metrics.breaker("gone")
    assert scraped(telemetry.metrics)['penstock_upstream_breaker{upstream="gone"}'] == 0


def test_the_size_of_a_context_and_its_share_are_seen_before_and_after_the_chain(telemetry: Telemetry) -> None:
    begun(telemetry).ran([], before=1000, after=400, window=2000)

    found = scraped(telemetry.metrics)
    assert found['penstock_context_size_tokens_sum{model="gpt-4o",phase="before"}'] == 1000
    assert found['penstock_context_size_tokens_sum{model="gpt-4o",phase="after"}'] == 400
    assert found['penstock_context_size_tokens_bucket{le="1024.0",model="gpt-4o",phase="before"}'] == 1
    assert found['penstock_context_size_tokens_bucket{le="256.0",model="gpt-4o",phase="after"}'] == 0
    assert found['penstock_context_utilization_sum{model="gpt-4o",phase="before"}'] == 0.5
    assert found['penstock_context_utilization_bucket{le="0.2",model="gpt-4o",phase="after"}'] == 1


def test_a_rewrite_that_saves_tokens_is_a_compression(telemetry: Telemetry) -> None:
    steps = [step("rewrite"), step("rewrite", after=1000), step("keep"), step("rewrite", observed=True)]
    begun(telemetry).ran(steps, before=1000, after=400, window=2000)

    found = scraped(telemetry.metrics)
    assert found['penstock_context_compressions_total{strategy="window_history"}'] == 1
    assert found['penstock_compression_ratio_sum{strategy="window_history"}'] == 0.4
    assert found['penstock_compression_ratio_bucket{le="0.3",strategy="window_history"}'] == 0
    assert found['penstock_compression_ratio_bucket{le="0.4",strategy="window_history"}'] == 1


@pytest.mark.parametrize(("after", "error", "overflows"), [
    pytest.param(2000, None, 0, id="exactly full"),
    pytest.param(2001, None, 1, id="over the window"),
    pytest.param(1900, "context_length_exceeded", 1, id="refused"),
    pytest.param(2001, "context_length_exceeded", 1, id="both count once"),
])  # fmt: skip
def test_too_long_a_prompt_is_an_overflow(telemetry: Telemetry, after: int, error: str | None, overflows: int) -> None:
    seen = begun(telemetry)
    seen.ran([], before=3000, after=after, window=2000)
    seen.end(400, error=error)

    assert scraped(telemetry.metrics)['penstock_context_overflows_total{model="gpt-4o"}'] == overflows


def test_every_policy_has_its_time_and_its_verdicts(telemetry: Telemetry) -> None:
    begun(telemetry).ran([step("fail"), step("keep", observed=True), step("skip")], before=1, after=1, window=9)

    found = scraped(telemetry.metrics)
    verdicts = "penstock_policy_verdicts_total"
    assert found[f'{verdicts}{{mode="enforce",policy="window_history",verdict="fail"}}'] == 1
    assert found[f'{verdicts}{{mode="observe",policy="window_history",verdict="keep"}}'] == 1
    assert found[f'{verdicts}{{mode="enforce",policy="window_history",verdict="skip"}}'] == 1
    ran = found['penstock_policy_duration_seconds_count{policy="window_history"}']
    assert ran == 2, "a step that did not run has no duration"


def test_requests_are_counted_by_status_and_only_once(telemetry: Telemetry) -> None:
    seen = begun(telemetry)
    assert scraped(telemetry.metrics)["penstock_active_requests"] == 1
    seen.end(200)
    seen.end(500)

    found = scraped(telemetry.metrics)
    assert found['penstock_requests_total{model="gpt-4o",status="200",upstream="openai"}'] == 1
    assert 'penstock_requests_total{model="gpt-4o",status="500",upstream="openai"}' not in found
    assert found[f"penstock_request_duration_seconds_count{{{GPT}}}"] == 1
    assert found["penstock_active_requests"] == 0


def test_unknown_models_have_a_fixed_label_and_names_are_bounded(telemetry: Telemetry) -> None:
    telemetry.begin("POST", "/v1/chat/completions", {}).end(404, error="model_not_found")

    assert scraped(telemetry.metrics)['penstock_requests_total{model="none",status="404",upstream="none"}'] == 1
    for number in range(MOST_MODELS + 50):
        telemetry.begin("POST", "/", {}).routed(model=f"gpt-{number}", upstream="openai", named=False)
    assert telemetry.metrics.model("gpt-0", named=False) == "gpt-0"
    assert telemetry.metrics.model("gpt-new", named=False) == "other"
    assert telemetry.metrics.model("gpt-new", named=True) == "gpt-new"
    odd = ('x"} 1', "a\nb", "", "m" * 200, "\ud800", "modèle")
    assert {telemetry.metrics.model(name, named=False) for name in odd} == {"other"}


def test_tokens_and_the_first_chunk_come_from_the_upstreams_answer(telemetry: Telemetry) -> None:
    seen = begun(telemetry)
    for _ in range(2):
        call = seen.call(provider="openai", model="gpt-4o")
        call.first_chunk()
        call.first_chunk()
        call.end(status=200, usage=Usage(input=1000, output=50, cached=900))
        call.end(status=500)
    seen.end(200)

    found = scraped(telemetry.metrics)
    assert found['penstock_tokens_total{kind="input",model="gpt-4o"}'] == 2000
    assert found['penstock_tokens_total{kind="output",model="gpt-4o"}'] == 100
    assert found['penstock_tokens_total{kind="cached_input",model="gpt-4o"}'] == 1800
    assert found[f"penstock_time_to_first_chunk_seconds_count{{{GPT}}}"] == 1, "clients wait once, not per call"
    assert not [name for name in found if name.startswith("penstock_upstream_errors_total")]


PRICED = profile(prices=Prices(2.0, 8.0, 5000, 4.0, 16.0), cache=CacheRules(read=0.1, write=1.25, minimum=0, ttl=300))


@pytest.mark.parametrize(("known", "usage", "cost"), [
    pytest.param(PRICED, Usage(input=1000, output=50), 2000 + 400, id="nothing cached"),
    pytest.param(PRICED, Usage(input=1000, cached=900), 200 + 180, id="most of it cached"),
    pytest.param(PRICED, Usage(input=1000, cached=500, written=400), 200 + 100 + 1000, id="some written"),
    pytest.param(PRICED, Usage(input=6000, output=50), 24_000 + 800, id="a prompt above the step"),
    pytest.param(profile(), Usage(input=1000, output=50), None, id="no prices"),
    pytest.param(None, Usage(input=1000, output=50), None, id="no model"),
    pytest.param(PRICED, Usage(output=50), None, id="no usage"),
])  # fmt: skip
def test_reported_tokens_are_priced(
    telemetry: Telemetry, known: ModelProfile | None, usage: Usage, cost: float | None
) -> None:
    seen = telemetry.begin("POST", "/v1/chat/completions", {})
    seen.routed(model="gpt-4o", upstream="openai", profile=known)
    seen.ran([], before=2000, after=500, window=9000)
    seen.call(provider="openai", model="gpt-4o").end(status=200, usage=usage)

    found = {name: usd for name, usd in scraped(telemetry.metrics).items() if "_usd_total" in name}
    assert found.get('penstock_cost_usd_total{model="gpt-4o"}') == (cost and pytest.approx(cost / 1e6))
    assert bool(found) is (cost is not None)


@pytest.mark.parametrize(("after", "refused", "expected"), [
    pytest.param(1399, None, {}, id="below the mark"),
    pytest.param(1400, None, {"warn": 1}, id="at the mark"),
    pytest.param(1950, "context_length_exceeded", {"critical": 1}, id="refused"),
])  # fmt: skip
def test_a_context_that_is_filling_up_is_counted_and_logged(
    telemetry: Telemetry, caplog: pytest.LogCaptureFixture, after: int, refused: str | None, expected: dict[str, float]
) -> None:
    begun(telemetry).ran([], before=1990, after=after, window=2000, refused=refused)

    found = {name: count for name, count in scraped(telemetry.metrics).items() if "context_warnings_total" in name}
    name = 'penstock_context_warnings_total{{level="{}",model="gpt-4o"}}'
    assert found == {name.format(level): count for level, count in expected.items()}
    levels = [{"warn": "WARNING", "critical": "CRITICAL"}[level] for level in expected]
    assert [record.levelname for record in caplog.records] == levels
    for record in caplog.records:
        assert record.__dict__["fields"]["share"] == after / 2000


def test_prompts_that_stay_too_long_are_one_warning(telemetry: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    for refused in ("server_is_overloaded", "state_unavailable") * 3:
        begun(telemetry).ran([], before=1990, after=2100, window=2000, refused=refused)

    assert not [name for name in scraped(telemetry.metrics) if name.startswith("penstock_context_warnings_total")]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    causes = [record.__dict__["fields"]["cause"] for record in caplog.records]
    assert causes == ["server_is_overloaded", "state_unavailable"]


@pytest.mark.parametrize(("status", "error", "reason"), [
    pytest.param(None, UpstreamTimeout("secret"), "upstream_timeout", id="an error with a code"),
    pytest.param(None, ConnectionResetError("secret"), "ConnectionResetError", id="any other exception"),
    pytest.param(None, Unanswered("no answer"), "upstream_broke_off", id="an answer that broke off"),
    pytest.param(None, PenstockError("refused", status=400), "400", id="an error without a code"),
    pytest.param(429, None, "429", id="a status"),
    pytest.param(400, "context_length_exceeded", "context_length_exceeded", id="the upstream's own code"),
    pytest.param(400, 'x"} 1\npenstock_fake 2', "other", id="a code that is none"),
])  # fmt: skip
def test_errors_by_kind(telemetry: Telemetry, status: int | None, error: Exception | str | None, reason: str) -> None:
    begun(telemetry).call(provider="openai", model="gpt-4o").end(status=status, error=error)

    assert scraped(telemetry.metrics)[f'penstock_upstream_errors_total{{reason="{reason}",upstream="openai"}}'] == 1


def test_an_upstream_cannot_make_up_endless_reasons(telemetry: Telemetry) -> None:
    for number in range(500):
        begun(telemetry).call(provider="openai", model="gpt-4o").end(error=f"code_{number}")

    reasons = [name for name in scraped(telemetry.metrics) if name.startswith("penstock_upstream_errors_total")]
    assert len(reasons) == 51
    assert scraped(telemetry.metrics)['penstock_upstream_errors_total{reason="other",upstream="openai"}'] == 450


@pytest.mark.parametrize(("sent", "counted"), [("0", 0), ("1", 1), ("10", 1), ("x", 0), (None, 0)])
def test_retries_of_sdks_are_counted(telemetry: Telemetry, sent: str | None, counted: int) -> None:
    begun(telemetry, {} if sent is None else {"x-stainless-retry-count": sent})

    assert scraped(telemetry.metrics)["penstock_client_retries_total"] == counted


def test_open_metrics_is_served_to_those_who_ask(telemetry: Telemetry) -> None:
    content_type, body = telemetry.metrics.render("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert b'penstock_build_info{version="1.2.3"} 1.0' in body


CHAT = 'gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="gpt-4o"'


def test_calls_of_models_are_counted_by_the_genai_conventions(telemetry: Telemetry) -> None:
    seen = begun(telemetry)
    seen.call(provider="openai", model="gpt-4o-2025").end(status=200, usage=Usage(1000, 3, cached=900))
    seen.call(provider="openai", model="gpt-4o-2025").end(status=429)
    seen.call(provider="openai", model="", operation=None).end(status=200)

    found = scraped(telemetry.metrics)
    for kind, total in (("input", 1000), ("output", 3)):
        labels = CHAT + f',gen_ai_token_type="{kind}"'
        assert found[f"gen_ai_client_token_usage_sum{{{labels}}}"] == total
    for error in ("", "429"):
        assert found[f'gen_ai_client_operation_duration_seconds_count{{error_type="{error}",{CHAT}}}'] == 1
    bounds = [name for name in found if "token_usage_bucket" in name and 'token_type="input"' in name]
    assert len(bounds) == 15, "the conventions' 14, and infinity"


def test_every_metric_is_documented(telemetry: Telemetry) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "telemetry.md").read_text()
    for policy in policy_names():
        telemetry.metrics.declare(policy, policy_class(policy))
    text = telemetry.metrics.render("")[1].decode()
    helped = {line.split()[2] for line in text.splitlines() if line.startswith(("# HELP penstock_", "# HELP gen_ai_"))}
    named = {name for name in helped if not name.endswith("_created")}

    assert named
    assert [name for name in named if f"\n- `{name}`" not in page] == []


WORKER = """
import asyncio, sys
from proxy.config.settings import TelemetrySettings
from proxy.telemetry.observation import Telemetry

telemetry = Telemetry.open(TelemetrySettings())
for _ in range(3):
    seen = telemetry.begin("POST", "/v1/chat/completions", {})
    seen.routed(model="gpt-4o", upstream="openai")
    if sys.argv[1] == "ends":
        seen.end(200)
if sys.argv[1] != "runs":
    asyncio.run(telemetry.aclose())
sys.stdout.write(telemetry.metrics.render("")[1].decode())
"""


def worker(directory: Path, behaviour: str) -> str:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(directory)}
    command = [sys.executable, "-W", "error", "-c", WORKER, behaviour]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_processes_that_share_a_directory_are_scraped_as_one_without_those_that_ended(tmp_path: Path) -> None:
    worker(tmp_path, "ends")
    text = worker(tmp_path, "ends")

    assert 'penstock_requests_total{model="gpt-4o",status="200",upstream="openai"} 6.0' in text
    assert f"penstock_request_duration_seconds_count{{{GPT}}} 6.0" in text
    assert text.count("penstock_build_info{") == 1
    assert "pid=" not in text
    worker(tmp_path, "drops its requests")
    assert "penstock_active_requests 3.0" in worker(tmp_path, "runs")


def test_a_missing_directory_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "missing"))

    with pytest.raises(ConfigError, match="PROMETHEUS_MULTIPROC_DIR"):
        Metrics("1")


def told(
    policy: str, facts: dict[str, Fact], verdict: Verdict = "rewrite", *, observed: bool = False
) -> dict[str, float]:
    metrics = Metrics("1")
    metrics.declare(policy, policy_class(policy))
    metrics.ran([Step(policy, verdict, "why", 0.001, 0.0, 10, 10, facts, observed)])
    return scraped(metrics)


@pytest.mark.parametrize(("policy", "facts", "series", "value"), [
    ("check_facts", {"poisoning_attempts": 2}, "poisoning_attempts_total", 2),
    ("resolve_clashes", {"clashes_resolved": 1}, "clashes_resolved_total", 1),
    ("validate_content", {"poor_contents": 3}, "poor_contents_total", 3),
    ("check_facts", {"poisoning_attempts": 5, "poisoning_attempts_new": 2}, "poisoning_attempts_total", 2),
    ("resolve_clashes", {"clashes_resolved_new": 0, "clashes_resolved": 3}, "clashes_resolved_total", 0),
    ("select_memories", {"memories_injected": 4, "memories_injected_new": 1}, "memories_selected_total", 1),
    ("keep_notes", {"notes": 2}, 'scratchpad_reads_total{kind="note"}', 2),
    ("self_correct", {"correction_notes": 1}, "correction_notes_total", 1),
    ("window_history", {"dropped_messages": 30, "dropped_turns": 4}, "distraction_mitigations_total", 1),
    ("compress_history", {"left_messages": 30}, "distraction_mitigations_total", 1),
    ("clear_tool_results", {"cleared_results": 2}, "distraction_mitigations_total", 1),
    ("offload_content", {"offloaded_messages": 2}, "distraction_mitigations_total", 1),
    ("filter_tools", {"tools_offered": 8}, "confusion_mitigations_total", 1),
    ("filter_tools", {"tools_allowed": 8, "tools_offered": 8}, "confusion_mitigations_total", 1),
    ("validate_content", {"quality_score": 0.84}, 'content_quality_sum{measure="overall"}', 0.84),
    ("validate_content", {"relevance_score": 0.79}, 'content_quality_sum{measure="relevance"}', 0.79),
    ("validate_content", {"accuracy_score": 0.94}, 'content_quality_bucket{le="0.9",measure="accuracy"}', 0),
])  # fmt: skip
def test_a_fact_becomes_a_declared_series(policy: str, facts: dict[str, Fact], series: str, value: float) -> None:
    labels = "" if "{" in series else f'{{policy="{policy}"}}'
    assert told(policy, facts)[f"penstock_{series}{labels}"] == value


def test_what_was_only_observed_or_is_not_declared_counts_nothing() -> None:
    name = 'penstock_distraction_mitigations_total{policy="window_history"}'
    assert name not in told("window_history", {"dropped_messages": 3}, observed=True)
    assert name not in told("window_history", {"dropped_messages": 3}, "keep")
    assert name not in told("window_history", {"dropped_messages": 0})
    rejected = told("check_facts", {"poisoning_attempts": 1, "code": "x"}, "reject")
    assert rejected['penstock_poisoning_attempts_total{policy="check_facts"}'] == 1
    assert not [name for name in told("window_history", {"poisoning_attempts": 2}) if "poisoning" in name]


@pytest.mark.parametrize("count", [
    pytest.param(Count("requests", "One of Penstock's own."), id="a name that Penstock has"),
    pytest.param(Count("poisoning_attempts", "Another label.", label=("kind", "x")), id="another label"),
    pytest.param(Count("poisoning_attempts", "Another kind.", "score"), id="another kind"),
])  # fmt: skip
def test_a_series_that_cannot_be_made_is_refused(count: Count) -> None:
    class Counting(KeepNotes):
        """Counts something that it may not."""

        counted: ClassVar[dict[str, Count]] = {"x": count}

    metrics = Metrics("1")
    metrics.declare("check_facts", policy_class("check_facts"))
    with pytest.raises(ConfigError, match="cannot be made"):
        metrics.declare("counting", Counting)


def test_calls_of_internal_tools_are_counted_by_tool() -> None:
    metrics = Metrics("1")
    for policy in ("offer_recall", "keep_notes"):
        metrics.declare(policy, policy_class(policy))
    metrics.answered({"rounds": 3, "calls_note": 2, "calls_search_tools": 1, "calls_recall": 4}, "main")
    found = scraped(metrics)
    assert found['penstock_internal_calls_total{tool="search_tools"}'] == 1
    assert found['penstock_internal_calls_total{tool="note"}'] == 2
    assert found['penstock_scratchpad_writes_total{kind="note"}'] == 2
    assert found['penstock_scratchpad_reads_total{kind="original"}'] == 4
