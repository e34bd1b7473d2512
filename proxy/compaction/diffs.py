"""Unified diffs: headers and changed lines stay, context goes."""

import re

from proxy.compaction.limits import Limits
from proxy.compaction.lines import sieved

_HUNK = re.compile(r"^@@ -\d", re.MULTILINE)
_FILE = re.compile(r"^(?:diff --git |\+\+\+ )", re.MULTILINE)
_STAYS = ("diff ", "+", "-", "@@", "rename ", "new file", "deleted file", "Binary ")


def is_diff(text: str) -> bool:
    """Whether a text has hunks and names files."""
    return bool(_HUNK.search(text) and _FILE.search(text))


def diff(text: str, limits: Limits) -> str:
    """The diff without context; of a very long one the first and last changes."""
    lines = text.splitlines()
    changes = [place for place, line in enumerate(lines) if line.startswith(_STAYS)]
    most = 2 * limits.rows
    if len(changes) > most:
        headers = [place for place in changes if lines[place].startswith(("diff ", "@@", "+++ "))]
        changes = [*headers, *changes[: most * 3 // 4], *changes[-most // 4 :]]
    stays = set(changes)
    return sieved(lines, [place in stays for place in range(len(lines))], limits, named=False)
