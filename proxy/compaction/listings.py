"""Listings: file names, search hits, directory entries, one to a line."""

import re

from proxy.compaction.limits import Limits
from proxy.compaction.lines import ends, share, sieved
from proxy.compaction.signals import is_signal

_FEWEST = 10
_ENTRY = re.compile(
    r"(?:[\w./~@+-]+:\d+[:-]|[-dlbcps][rwxsStT-]{9}[.+@]?\s|[\w.~@+/\\-]*[/\\][\w.@+-]*$|[\w@+-]+\.\w{1,6}$"
    r"|[│├└|` ]*──)"
)


def is_listing(text: str) -> bool:
    """Whether most lines are a path, a hit in a file, or an entry of a directory."""
    lines = text.splitlines()
    return len(lines) >= _FEWEST and share(lines, _ENTRY) >= 0.7


def listing(text: str, limits: Limits) -> str:
    """The first and last entries, those that report an error, each cut to what names it."""
    lines = text.splitlines()
    kept = [stays or is_signal(line) for stays, line in zip(ends(len(lines), limits.rows), lines, strict=True)]
    return sieved(lines, kept, limits)
