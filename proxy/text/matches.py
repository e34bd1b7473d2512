"""Patterns over long texts, without holding up other threads."""

import re
from collections.abc import Iterator

_WINDOW = 2**15
_LONGEST = 2**15
"""Characters of the longest match that is found whole."""


def find_matches(pattern: "re.Pattern[str]", text: str) -> Iterator["re.Match[str]"]:
    """Yield the matches in a text, window by window.

    While a pattern looks for its next match no other thread runs, the event loop's neither: so it gets a window at a
    time, and with it as much of the next one as a match may need.
    """
    end = 0
    for start in range(0, len(text), _WINDOW):
        for found in pattern.finditer(text, max(start, end), start + _WINDOW + _LONGEST):
            if found.start() >= start + _WINDOW:
                break
            yield found
            end = found.end()
