"""The record of one policy's run on one request."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct

from proxy.policy import Fact

Verdict = Literal["keep", "rewrite", "reject", "skip", "fail"]


class Step(Struct, frozen=True):
    """One policy's run. Spans, metrics, headers and `explain` are made from a list of these alone."""

    policy: str
    """Name of the policy."""
    verdict: Verdict
    """Outcome. `skip`: not run, because of its `when` or the deadline of the chain. `fail`: a fault in the policy."""
    why: str
    """Reason as a lower-case clause without content; for `fail` the kind of fault, never the text of an exception."""
    seconds: float
    """Duration."""
    started: float
    """Start, in seconds of `time.perf_counter()`."""
    tokens_before: int | None = None
    """Tokens of the prompt before the step; None if nobody counted."""
    tokens_after: int | None = None
    """Tokens of the prompt after the step; None if nobody counted."""
    facts: Mapping[str, Fact] = MappingProxyType({})
    """Figures of the step, for machines."""
    observed: bool = False
    """True in shadow mode: the verdict is the one that the policy would have had."""
    findings: tuple[str, ...] = ()
    """Findings of the policy, each with its place and reason, without content of the prompt."""

    @property
    def compressed(self) -> bool:
        """True if the step made the prompt smaller; never true in shadow mode."""
        if self.verdict != "rewrite" or self.observed or self.tokens_before is None or self.tokens_after is None:
            return False
        return self.tokens_after < self.tokens_before

    def shown(self) -> dict[str, Any]:
        """Return the step as JSON values, its duration in milliseconds."""
        return {
            "policy": self.policy,
            "verdict": self.verdict,
            "why": self.why,
            "observed": self.observed,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "milliseconds": round(self.seconds * 1000, 3),
            "facts": dict(self.facts),
            "findings": list(self.findings),
        }
