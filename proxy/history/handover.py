"""A request to sum the conversation up, as agents send it before they delete what they had: it needs all of it."""

from functools import cache

from proxy.chat import ChatRequest, Message
from proxy.history.cuts import Marks
from proxy.text.tables import lines

_READ = 200
"""Characters of each end of the message that are read."""

WHOLE = Marks(high=1.0, low=0.90, critical=1.0, summary=0.12, warn=1.0, again=1.0)
"""Such a request is cut only where it does not fit at all."""


def asks_for_summary(request: ChatRequest) -> bool:
    """Return whether the user now asks for a text about the conversation, and not to go on with it.

    An agent that called tools may call none any more. A person begins or ends with a word of `data/handover.txt`.
    """
    newest = request.messages[-1] if request.messages else None
    if newest is None or newest.get("role") != "user":
        return False
    is_offered = request.tools and request.rest.get("tool_choice") != "none"
    if not is_offered and request.form.any("called", _has_calls):
        return True
    return newest.derive("asks for summary", lambda: _asks(newest.text))


def _has_calls(message: Message) -> bool:
    return bool(message.get("tool_calls"))


def _asks(text: str) -> bool:
    text = (text if len(text) <= 2 * _READ else f"{text[:_READ]} {text[-_READ:]}").casefold()
    return any(word in text and _begins(text, word) for word in _words())


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
def _words() -> tuple[str, ...]:
    return tuple(word for line in lines("handover") for word in line.split(", "))
