"""A request to sum the conversation up, as agents send it before they delete what they had: it needs all of it."""

import re
from collections.abc import Sequence
from functools import cache

from proxy.chat import ChatRequest
from proxy.history.cuts import Marks
from proxy.text.tables import sections

_READ = 4000
"""What is read of each end of the message, in characters."""

WHOLE = Marks(high=1.0, low=0.90, critical=1.0, summary=0.12, warn=1.0, again=1.0)
"""Such a request is cut only where it does not fit at all."""


def asks_for_summary(request: ChatRequest) -> bool:
    """Return whether the newest message asks for a summary of the conversation (`data/handover.txt`)."""
    newest = request.messages[-1] if request.messages else None
    if newest is None or newest.get("role") != "user":
        return False
    text = newest.text
    text = (text if len(text) <= 2 * _READ else text[:_READ] + text[-_READ:]).casefold()
    # the words alone are a tenth of the work of the pattern, and most texts have none
    return all(any(map(text.__contains__, words)) and pattern.search(text) for words, pattern in _patterns())


@cache
def _patterns() -> tuple[tuple[Sequence[str], re.Pattern[str]], ...]:
    words = [[word for line in lines for word in line.split(", ")] for lines in sections("handover").values()]
    # where words are set apart by spaces, at a word's beginning
    beginning = r"(?:(?<!\w)|(?<=[\u2e80-\uffff]))"
    return tuple((each, re.compile(f"{beginning}(?:{'|'.join(map(re.escape, each))})")) for each in words)
