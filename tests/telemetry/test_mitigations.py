"""The series that policies declare, made from what steps and answers tell."""

from typing import ClassVar

import pytest

from policies.keep_notes import KeepNotes
from proxy.chat.errors import ConfigError
from proxy.config.load import policy_class
from proxy.policy import Count, Fact
from proxy.step import Step, Verdict
from proxy.telemetry.metrics import Metrics
from tests.telemetry.recorded import scraped


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
def test_a_fact_becomes_the_series_that_its_policy_declares(
    policy: str, facts: dict[str, Fact], series: str, value: float
) -> None:
    labels = "" if "{" in series else f'{{policy="{policy}"}}'
    assert told(policy, facts)[f"penstock_{series}{labels}"] == value


def test_what_was_only_observed_or_did_nothing_mitigates_nothing() -> None:
    name = 'penstock_distraction_mitigations_total{policy="window_history"}'
    assert name not in told("window_history", {"dropped_messages": 3}, observed=True)
    assert name not in told("window_history", {"dropped_messages": 3}, "keep")
    assert name not in told("window_history", {"dropped_messages": 0})
    rejected = told("check_facts", {"poisoning_attempts": 1, "code": "x"}, "reject")
    assert rejected['penstock_poisoning_attempts_total{policy="check_facts"}'] == 1


def test_a_fact_that_its_policy_does_not_declare_is_no_series() -> None:
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
