"""The series that the requirements name, made from what steps and answers tell."""

import pytest

from proxy.policy import Fact
from proxy.step import Step, Verdict
from proxy.telemetry.metrics import Metrics


def scraped(metrics: Metrics) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in metrics.render("")[1].decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines if not name.partition("{")[0].endswith("_created")}


def told(facts: dict[str, Fact], verdict: Verdict = "rewrite", *, observed: bool = False) -> dict[str, float]:
    metrics = Metrics("1")
    metrics.ran([Step("p", verdict, "why", 0.001, 0.0, 10, 10, facts, observed)])
    return scraped(metrics)


@pytest.mark.parametrize(
    ("facts", "series", "value"),
    [
        ({"poisoning_attempts": 2}, 'penstock_poisoning_attempts_total{policy="p"}', 2),
        ({"clashes_resolved": 1}, 'penstock_clashes_resolved_total{policy="p"}', 1),
        ({"poor_contents": 3}, 'penstock_poor_contents_total{policy="p"}', 3),
        ({"poisoning_attempts": 5, "poisoning_attempts_new": 2}, 'penstock_poisoning_attempts_total{policy="p"}', 2),
        ({"clashes_resolved_new": 0, "clashes_resolved": 3}, 'penstock_clashes_resolved_total{policy="p"}', 0),
        ({"memories_injected": 4, "memories_injected_new": 1}, 'penstock_memories_selected_total{policy="p"}', 1),
        ({"notes": 2}, 'penstock_scratchpad_reads_total{kind="note"}', 2),
        ({"correction_notes": 1}, 'penstock_correction_notes_total{policy="p"}', 1),
        ({"dropped_messages": 30, "left_messages": 4}, 'penstock_distraction_mitigations_total{policy="p"}', 1),
        ({"tools_offered": 8}, 'penstock_confusion_mitigations_total{policy="p"}', 1),
        ({"quality_score": 0.84}, 'penstock_content_quality_sum{measure="overall"}', 0.84),
        ({"relevance_score": 0.79}, 'penstock_content_quality_sum{measure="relevance"}', 0.79),
        ({"accuracy_score": 0.94}, 'penstock_content_quality_bucket{le="0.9",measure="accuracy"}', 0),
    ],
)
def test_a_fact_becomes_its_series(facts: dict[str, Fact], series: str, value: float) -> None:
    assert told(facts)[series] == value


def test_what_was_only_observed_or_did_nothing_mitigates_nothing() -> None:
    name = 'penstock_distraction_mitigations_total{policy="p"}'
    assert name not in told({"dropped_messages": 3}, observed=True)
    assert name not in told({"dropped_messages": 3}, "keep")
    assert name not in told({"dropped_messages": 0})
    assert 'penstock_poisoning_attempts_total{policy="p"}' in told({"poisoning_attempts": 1, "code": "x"}, "reject")


def test_calls_of_internal_tools_are_counted_by_tool() -> None:
    metrics = Metrics("1")
    metrics.answered({"rounds": 3, "calls_note": 2, "calls_search_tools": 1, "calls_recall": 4})
    found = scraped(metrics)
    assert found['penstock_internal_calls_total{tool="search_tools"}'] == 1
    assert found['penstock_internal_calls_total{tool="note"}'] == 2
    assert found['penstock_scratchpad_writes_total{kind="note"}'] == 2
    assert found['penstock_scratchpad_reads_total{kind="original"}'] == 4
