"""Pattern matching in long texts that does not block other threads."""

import re
from collections.abc import Iterator

_WINDOW = 2**15
_LONGEST = 2**15
"""Characters within which a match must end."""


def find_matches(pattern: "re.Pattern[str]", text: str) -> Iterator["re.Match[str]"]:
    """Yield the matches in a text, window by window.

    A search for the next match holds the GIL, which blocks the event loop. So it sees only one window at a time, with
    as much of the next one as a match may need.
    """
    end = 0
    for start in range(0, len(text), _WINDOW):
        for match in pattern.finditer(text, max(start, end), start + _WINDOW + _LONGEST):
            if match.start() >= start + _WINDOW:
                break
            yield match
            end = match.end()
