"""Which facts of steps and answers are series of their own. Any policy is counted that tells one of these facts.

Clients send the whole conversation with each request, so what a step finds in it, it finds again in the next one. A
step that can tell what is new in a request says so in a second fact, and that is what counts.
"""

from collections.abc import Mapping

COUNTED: Mapping[str, str] = {
    "poisoning_attempts": "poisoning_attempts",
    "clashes_resolved": "clashes_resolved",
    "poor_contents": "poor_contents",
    "correction_notes": "correction_notes",
    "memories_injected": "memories_selected",
}
"""A fact of a step, and the counter to which its amount is added."""

NEW = "_new"
"""What ends the name of the fact that says how much of another is new in the request."""

READ = "notes"
"""The fact of a step that says how many of the model's notes it has put back."""

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
    "poisoning_attempts": "Statements first seen that contradict a trusted fact.",
    "clashes_resolved": "Statements that one first seen replaces, in the same conversation.",
    "poor_contents": "New contents from outside below a threshold of quality.",
    "correction_notes": "Notes about earlier answers that were put into requests.",
    "memories_selected": "Memories that were given to a question.",
    "distraction_mitigations": "Requests whose history was made shorter.",
    "confusion_mitigations": "Requests in which fewer tools were offered.",
}
"""The counters, and what they count."""

CALLS = "calls_"
"""Facts of an answer that begin so say how often an internal tool was called: `calls_note`."""

WRITES, READS = "note", "recall"
"""The internal tools whose calls are what the model writes into its scratchpad, and reads of it."""
