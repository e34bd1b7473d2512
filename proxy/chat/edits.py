"""Parts of texts that earlier steps have put into a request, and what is sent in their place."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy.chat import Message
from proxy.chat.blocks import MEMORIES, is_block, spans


class Stretch(NamedTuple):
    """A part of the text of a message that an earlier step has made."""

    place: int
    """The message's place in the request."""
    start: int
    end: int
    may_leave: bool = False
    """True for a line that may go without a note, because its source stays."""


class TextChange(NamedTuple):
    """The text that is sent in place of a stretch; None if it leaves."""

    stretch: Stretch
    sent: str | None


def changed(messages: Sequence[Message], changes: Iterable[TextChange]) -> tuple[list[Message], frozenset[int]]:
    """Return the messages with these changes in them, and the places of those of which nothing is left."""
    result, gone = list(messages), set[int]()
    # from the end of each text, so that places in front hold
    for (place, start, end, _), sent in sorted(changes, key=lambda each: each.stretch, reverse=True):
        text = result[place].text
        if sent is None:
            start, end, sent = text.rfind("\n", 0, start) + 1, end + 1, ""
        text = text[:start] + sent + text[end:]
        result[place] = _with_text(result[place], text)
        if is_block(result[place], MEMORIES) and not spans(text):
            gone.add(place)
    return result, frozenset(gone)


def _with_text(message: Message, text: str) -> Message:
    """Return a block with another text, and the attachments that it has."""
    content = message.get("content")
    parts = [{"type": "text", "text": text}, *content[1:]] if isinstance(content, list) else text
    return Message({"role": "user", "content": parts})
