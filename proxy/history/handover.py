"""A request to sum the conversation up, as agents send it before they delete what they had: it needs all of it."""

import re
from collections.abc import Iterable
from functools import cache
from itertools import dropwhile, takewhile

from proxy.chat import ChatRequest, Message
from proxy.history.reading import sentences, size
from proxy.text.fold import UNSPACED, folded
from proxy.text.tables import sections

_READ = 500
"""Characters of each end of a text that are read."""
_SHORT = 72
"""Letters of a message that brings no text of its own to sum up."""
_SENTENCE = 200
"""Letters of a sentence that names the conversation."""
_SPACED = re.compile(rf"[^\W{UNSPACED}]")
"""A letter of a script that sets words apart."""


def asks_for_summary(request: ChatRequest) -> bool:
    """Return whether the user now asks for a text about the conversation, and not to go on with it.

    An agent that has just called tools may call none any more. Others use a verb of `data/handover.txt`: in a short
    message without an attachment, or in a sentence that names the conversation.
    """
    newest = request.messages[-1] if request.messages else None
    if newest is None or not _is_users(newest):
        return False
    is_offered = request.tools and request.rest.get("tool_choice") != "none"
    if not is_offered and any(message.get("tool_calls") for message in _before(request)):
        return True
    return newest.derive("asks for summary", lambda: _asks(newest))


def _before(request: ChatRequest) -> Iterable[Message]:
    """Return what the assistant and tools said between the last two turns of the user, the newest first."""
    return takewhile(lambda each: not _is_users(each), dropwhile(_is_users, reversed(request.messages)))


def _is_users(message: Message) -> bool:
    return message.get("role") == "user"


def _asks(message: Message) -> bool:
    texts = [text for part in message.parts if isinstance(text := part.get("text"), str)]
    if size(message.text) <= _SHORT:
        return len(texts) == len(message.parts) and _has(message.text, "verb")
    read = (text if len(text) <= 2 * _READ else f"{text[:_READ]}\n{text[-_READ:]}" for text in texts)
    return any(
        size(sentence) <= _SENTENCE and _has(sentence, "verb") and _has(sentence, "about")
        for text in read
        for sentence in sentences(text)
    )


def _has(sentence: str, section: str) -> bool:
    text = folded(sentence)
    return any(word in text and _begins(text, word) for word in _words()[section])


def _begins(text: str, word: str) -> bool:
    """Return whether a word of a text begins so; in scripts that set no words apart, any place will do."""
    at = text.find(word)
    while at > 0 and _SPACED.match(text, at - 1):
        at = text.find(word, at + 1)
    return at >= 0


@cache
def _words() -> dict[str, tuple[str, ...]]:
    by_name = sections("handover").items()
    return {name: tuple(folded(word) for line in rows for word in line.split(", ")) for name, rows in by_name}
