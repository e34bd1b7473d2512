"""Text without a structure that is known: its head, the identifiers of the middle, its tail."""

import re

from proxy.compaction.escapes import unescaped
from proxy.compaction.identifiers import LONGEST, gathered
from proxy.compaction.limits import Limits

_BLANK = re.compile(r"\s")
_TAIL = 4
"""The tail gets this part of the head's room."""


def prose(text: str, limits: Limits) -> str:
    """Head, identifiers and tail of a text; the text itself if that is all of it."""
    head, middle, tail = parts(text, limits.head, limits.head // _TAIL)
    if not middle:
        return text
    known = gathered(unescaped(middle), limits.identifiers, known=head + tail)
    return "\n".join(part for part in (f"{head}…", known, f"…{tail}" if tail else "") if part)


def cut(text: str, room: int, identifiers: int | None = None) -> str:
    """The beginning of a string that stands inside something else, ended by an ellipsis, and its identifiers.

    They take at most so many characters, or four times the `room`.

    One word, such as an address, stays whole.
    """
    if len(text) <= room or (len(text) <= LONGEST and not _BLANK.search(text)):
        return text
    head, middle, _ = parts(text, room, 0)
    known = gathered(middle, 4 * room if identifiers is None else identifiers, known=head)
    return f"{head}… {known}" if known else f"{head}…"


def parts(text: str, head: int, tail: int) -> tuple[str, str, str]:
    """A text in three parts, cut between words where there are any; the middle is empty if the text is short."""
    if len(text) <= head + tail + 40:
        return text, "", ""
    first = _boundary(text, head, -1)
    last = _boundary(text, len(text) - tail, 1) if tail else len(text)
    return text[:first].rstrip(), text[first:last], text[last:].lstrip()


def _boundary(text: str, near: int, step: int) -> int:
    """The place of white space near an index, or the index where a word is longer than any word."""
    for place in range(near, near + 40 * step, step):
        if not 0 < place < len(text):
            break
        if text[place - 1 if step > 0 else place].isspace():
            return place
    return near
