"""The record of one policy's run on one request, and the response headers made from such records."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import starmap
from operator import attrgetter, mod
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct

from proxy.policy import Fact

Verdict = Literal["keep", "rewrite", "reject", "skip", "fail"]

_HEADER_LIMIT = 1024
"""Largest size of a header in bytes: reverse proxies often refuse response heads of more than 4 to 8 KiB."""

_NOT_OF_A_TOKEN = re.compile(r"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
"""Characters that no token in an HTTP header may have (RFC 9110 §5.6.2)."""
_NOT_PRINTABLE = re.compile("[^ -~]")


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


def server_timing(steps: Sequence[Step]) -> str:
    """Return a `Server-Timing` value (W3C) such as `window_history;dur=0.31;desc="dropped 10 of 47 turns"`.

    It has at most 1024 ASCII characters: a step that does not fit loses its description, or is left out with all
    after it. Empty for no steps.
    """
    formats = [*starmap(_format, map(attrgetter("policy", "verdict", "why", "observed"), steps))]
    durations = [1000 * step.seconds for step in steps]
    if len(value := ", ".join(formats) % (*durations,)) <= _HEADER_LIMIT:
        return value
    entries: list[str] = []
    room = _HEADER_LIMIT
    for entry in map(mod, formats, durations):
        entry = entry if len(entry) <= room else entry.partition(";desc=")[0]
        if len(entry) > room:
            break
        entries.append(entry)
        room -= len(entry) + len(", ")
    return ", ".join(entries)


def findings_header(steps: Iterable[Step]) -> str:
    """Return the value of `x-penstock-findings`, JSON in ASCII: `[{"policy": ..., "finding": ...}]`; empty for none.

    It has at most 1024 characters. Findings that do not fit are left out; `explain` shows all.
    """
    entries: list[str] = []
    room = _HEADER_LIMIT - len("[]")
    having = filter(attrgetter("findings"), steps)
    for policy, finding in ((step.policy, finding) for step in having for finding in step.findings):
        entry = json.dumps({"policy": policy, "finding": finding})
        room -= len(entry) + len(", ")
        if room < 0:
            break
        entries.append(entry)
    return f"[{', '.join(entries)}]" if entries else ""


def counts_header(*counts: int | None) -> bytes:
    """Return counts as a header has them, `4100;2000;8192`; `-` for an unknown one."""
    return ";".join("-" if count is None else str(count) for count in counts).encode()


@lru_cache(1024)
def _format(policy: str, verdict: Verdict, why: str, observed: bool) -> str:
    """Return the entry of a step, with a format in place of its duration in milliseconds."""
    text = why if verdict in ("keep", "rewrite") else f"{verdict}: {why}"
    text = _NOT_PRINTABLE.sub("", f"observed: {text}" if observed else text)
    name, text = _NOT_OF_A_TOKEN.sub("_", policy) or "_", text.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name.replace("%", "%%")};dur=%.2f;desc="{text.replace("%", "%%")}"'
