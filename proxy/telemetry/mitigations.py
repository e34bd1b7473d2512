"""Which facts of steps and answers are series of their own. Any policy is counted that tells one of these facts."""

from collections.abc import Mapping

COUNTED: Mapping[str, str] = {
    "poisoning_attempts": "poisoning_attempts",
    "clashes_resolved": "clashes_resolved",
    "poor_contents": "poor_contents",
    "notes": "scratchpad_reads",
    "correction_notes": "correction_notes",
}
"""A fact of a step, and the counter to which its amount is added."""

HAPPENED: Mapping[str, str] = {
    "dropped_messages": "distraction_mitigations",
    "left_messages": "distraction_mitigations",
    "cleared_results": "distraction_mitigations",
    "offloaded_messages": "distraction_mitigations",
    "tools_offered": "confusion_mitigations",
    "tools_allowed": "confusion_mitigations",
    "tools_deferred": "confusion_mitigations",
}
"""A fact of a rewrite that is above zero, and the counter to which it adds one."""

SCORED: Mapping[str, str] = {
    "quality_score": "overall",
    "relevance_score": "relevance",
    "accuracy_score": "accuracy",
}
"""A fact of a step that is a score from 0 to 1, and the measure that it is of."""

SERIES: Mapping[str, str] = {
    "poisoning_attempts": "Statements found that contradict a trusted fact.",
    "clashes_resolved": "Statements that a later one of the same conversation replaces.",
    "poor_contents": "New contents from outside below a threshold of quality.",
    "scratchpad_reads": "Notes of the model that were put back into a request.",
    "correction_notes": "Notes about earlier answers that stand in requests.",
    "distraction_mitigations": "Requests whose history was made shorter.",
    "confusion_mitigations": "Requests in which fewer tools were offered.",
}
"""The counters, and what they count."""

CALLS = "calls_"
"""Facts of an answer that begin so say how often an internal tool was called: `calls_note`."""

WRITES = "note"
"""The internal tool whose calls are what the model writes into its scratchpad."""
