"""What one policy did to one request, and how that reads in response headers."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.policy import Fact

Verdict = Literal["keep", "rewrite", "reject", "skip", "fail"]

_HEADER_LIMIT = 1024
"""Bytes of `Server-Timing`: proxies in front often refuse response heads of more than 4 to 8 KiB."""

_NOT_OF_A_TOKEN = re.compile(r"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
"""What no token in an HTTP header may have (RFC 9110 §5.6.2)."""
_NOT_PRINTABLE = re.compile("[^ -~]")


@dataclass(frozen=True, slots=True)
class Step:
    """One policy's turn. A list of these is all that spans, metrics, headers and `explain` are made from."""

    policy: str
    """The policy's name."""
    verdict: Verdict
    """`skip`: it did not run, because of its `when` or because the chain's time was up. `fail`: it had a fault."""
    why: str
    """A lower-case clause without content. For `fail` the kind of fault, never the exception's own text."""
    seconds: float
    """How long it took."""
    started: float
    """When it began, in seconds of `time.perf_counter()`."""
    tokens_before: int | None = None
    """Tokens of the prompt it was given; None where nobody counted."""
    tokens_after: int | None = None
    """Tokens of the prompt it gave back; None where nobody counted."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """What it did, for machines."""
    observed: bool = False
    """Whether it ran in shadow mode: the verdict is what it would have done."""
    findings: tuple[str, ...] = ()
    """What it found, each with its place and the reason, without content of the prompt."""

    @property
    def compressed(self) -> bool:
        """Whether it made the prompt smaller; never true in shadow mode."""
        if self.verdict != "rewrite" or self.observed or self.tokens_before is None or self.tokens_after is None:
            return False
        return self.tokens_after < self.tokens_before

    def shown(self) -> dict[str, Any]:
        """The step for machines, as JSON values; times in milliseconds."""
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


def server_timing(steps: Iterable[Step]) -> str:
    """The value of `Server-Timing` (W3C), milliseconds each: `window_history;dur=0.31;desc="dropped 10 of 47 turns"`.

    At most 1024 ASCII characters: what does not fit loses its description, then it is left out. Empty for no steps.
    """
    entries: list[str] = []
    room = _HEADER_LIMIT
    for step in steps:
        short = f"{_token(step.policy)};dur={step.seconds * 1000:.2f}"
        full = f'{short};desc="{_quotable(_described(step))}"'
        entry = full if len(full) <= room else short
        if len(entry) > room:
            break
        entries.append(entry)
        room -= len(entry) + len(", ")
    return ", ".join(entries)


def findings_header(steps: Iterable[Step]) -> str:
    """The value of `x-penstock-findings`: JSON in ASCII, `[{"policy": ..., "finding": ...}]`; empty for none.

    At most 1024 characters: what does not fit is left out, and then `explain` knows more.
    """
    entries: list[str] = []
    room = _HEADER_LIMIT - len("[]")
    for policy, finding in ((step.policy, finding) for step in steps for finding in step.findings):
        entry = json.dumps({"policy": policy, "finding": finding})
        room -= len(entry) + len(", ")
        if room < 0:
            break
        entries.append(entry)
    return f"[{', '.join(entries)}]" if entries else ""


def context_header(before: int | None, after: int | None, window: int | None) -> str:
    """Tokens before and after the chain and of the usable window, as `before;after;window`; `-` for an unknown one."""
    return ";".join("-" if tokens is None else str(tokens) for tokens in (before, after, window))


def usage_header(rounds: int, prompt: int, output: int | None) -> str:
    """What all rounds of an answer used, as `rounds;prompt tokens;answer tokens`; `-` for an unknown one."""
    return ";".join("-" if count is None else str(count) for count in (rounds, prompt, output))


def _described(step: Step) -> str:
    plain = step.why if step.verdict in ("keep", "rewrite") else f"{step.verdict}: {step.why}"
    return f"observed: {plain}" if step.observed else plain


def _token(name: str) -> str:
    return _NOT_OF_A_TOKEN.sub("_", name) or "_"


def _quotable(text: str) -> str:
    return _NOT_PRINTABLE.sub("", text).replace("\\", "\\\\").replace('"', '\\"')
