"""A request to sum the conversation up, as agents send it before they delete what they had: it needs all of it."""

from collections.abc import Sequence
from functools import cache

from proxy.chat import ChatRequest
from proxy.history.cuts import Marks
from proxy.history.reading import sentences
from proxy.text.tables import sections

_READ = 4000
"""Characters of each end of the message that are read."""
_OPENING = 200
"""Characters of a system prompt that say what the request is for."""

WHOLE = Marks(high=1.0, low=0.90, critical=1.0, summary=0.12, warn=1.0, again=1.0)
"""Such a request is cut only where it does not fit at all."""


def asks_for_summary(request: ChatRequest) -> bool:
    """Return whether the newest message asks for a summary of the conversation (`data/handover.txt`).

    Some agents say so in the first sentence of a system prompt of its own, and offer no tools then: "You summarize
    conversations."
    """
    newest = request.messages[-1] if request.messages else None
    if newest is None or newest.get("role") != "user":
        return False
    first = request.messages[0]
    if newest.derive("asks for summary", lambda: _asks(newest.text)):
        return True
    return (
        first.is_system
        and not request.tools
        and first.derive("is for summaries", lambda: _is_for_summaries(first.text))
    )


def _is_for_summaries(prompt: str) -> bool:
    opening = prompt[:_OPENING]
    return _asks(opening) and _has(next(sentences(opening), "").casefold(), _words()[0])


def _asks(text: str) -> bool:
    text = (text if len(text) <= 2 * _READ else text[:_READ] + text[-_READ:]).casefold()
    return all(_has(text, words) for words in _words())


def _has(text: str, words: Sequence[str]) -> bool:
    return any(word in text and _begins(text, word) for word in words)


def _begins(text: str, word: str) -> bool:
    """Return whether a word of a text begins so; in scripts that set no words apart, any place will do."""
    at = text.find(word)
    while at >= 0:
        before = text[at - 1 : at]
        if before >= "\u2e80" or not (before.isalnum() or before == "_"):
            return True
        at = text.find(word, at + 1)
    return False


@cache
def _words() -> Sequence[Sequence[str]]:
    return [[word for line in lines for word in line.split(", ")] for lines in sections("handover").values()]
