"""Logs: one line of each kind stays, with all errors and warnings, the beginning and the end."""

import re

from proxy.compaction.limits import Limits
from proxy.compaction.lines import ends, share, sieved
from proxy.compaction.signals import is_signal

_FEWEST = 8
_LINE = re.compile(
    r"\s*\[?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d|\d{10}\b"
    r"|(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE|NOTICE)\b)"
)
_VARIES = re.compile(r"[0-9][0-9a-fA-F.:,-]*")
_SIGNALS = 3
"""So many lines of each kind of error stay."""


def is_log(text: str) -> bool:
    """Whether most lines begin with a time or a level."""
    lines = text.splitlines()
    return len(lines) >= _FEWEST and share(lines, _LINE) >= 0.5


def log(text: str, limits: Limits) -> str:
    """The log with repetition collapsed."""
    lines = text.splitlines()
    kept = ends(len(lines), max(8, limits.rows // 10))
    seen: dict[str, int] = {}
    room = limits.rows
    for place, line in enumerate(lines):
        kind = _VARIES.sub("0", line[:200])
        seen[kind] = seen.get(kind, 0) + 1
        if room > 0 and not kept[place] and seen[kind] <= (_SIGNALS if is_signal(line) else 1):
            kept[place] = True
            room -= 1
    return sieved(lines, kept, limits)
