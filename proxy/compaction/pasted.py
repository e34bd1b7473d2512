"""A user's message that does not fit: what the user asks stays word for word, the document takes its outline.

The two are told apart by form: a document is long, or stands inside a fence or tags; the user's own words are the short
paragraphs before and behind it. Pure functions of the text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy.compaction import parts
from proxy.compaction.excerpts import excerpt, line_starts
from proxy.compaction.preview import divided

_OWN = 1500
"""A part of so many characters stays whole."""
_ASIDE = 600
"""Characters of further paragraphs at an end of a document that stay with the first one."""
_LEAST = 300
"""Characters that stay at an end that has no paragraph of its own."""
_THANKS = 30
_BREAK = re.compile(r"\n[ \t]*\n")
_ASKS = re.compile(r"[?？؟]\s*$", re.MULTILINE)
_SAYS_ALL = re.compile(r"[?？؟:：]\s*\Z")
"""The end of a question, or of a lead to a document."""


class _Piece(NamedTuple):
    """A large part of a message: what stays of it word for word, and the document between."""

    head: str
    document: str
    tail: str


def own_words(text: str) -> tuple[str, ...]:
    """Return the user's own words in a message, without the documents in it; questions first."""
    said: list[str] = []
    for piece in _divided(text):
        # of what stays at the ends, the outermost paragraph is the user's, the others may be the document's
        said += [piece.strip()] if isinstance(piece, str) else [_outer(piece.head, 1), _outer(piece.tail, -1)]
    return tuple(sorted(filter(None, dict.fromkeys(said)), key=lambda words: _ASKS.search(words) is None))


def fitted(text: str, queries: Sequence[str], room: int) -> str:
    """Return the message in about `room` characters: the user's own words, and of each document its excerpt.

    `queries` are what the user says in other parts of the message.
    """
    pieces = list(_divided(text))
    queries = tuple(dict.fromkeys((*queries, *own_words(text))))
    documents = sum(len(piece.document) for piece in pieces if isinstance(piece, _Piece))
    own = sum(len(piece) if isinstance(piece, str) else len(piece.head) + len(piece.tail) for piece in pieces)
    starts, shown, at = line_starts(text), [], 0
    for piece in pieces:
        if isinstance(piece, str):
            shown.append(piece)
            continue
        at = text.index(piece.document, at)
        line = bisect_right(starts, at) if starts is not None else None
        share = max(0, room - own) * len(piece.document) // max(1, documents)
        shown += filter(None, (piece.head, excerpt(piece.document, queries, share, line), piece.tail))
    return "\n".join(shown)


def _divided(text: str) -> Iterator[str | _Piece]:
    for part, marked in divided(text):
        if len(part) <= _OWN:
            yield part
        elif marked:
            first, _, rest = part.partition("\n")
            body, _, last = rest.rpartition("\n")
            yield _Piece(first, body, last)
        else:
            head, tail = _end(part, first=True), _end(part, first=False)
            document = part[len(head) : len(part) - len(tail)]
            yield _Piece(head.rstrip(), document.strip("\n"), tail.lstrip())


def _outer(text: str, step: int) -> str:
    """Return the first or the last paragraph, with the next one where it is as short as a word of thanks."""
    paragraphs = [part for part in _BREAK.split(text.strip()) if part.strip()][::step]
    many = 2 if paragraphs and len(paragraphs[0]) < _THANKS and not _SAYS_ALL.search(paragraphs[0]) else 1
    return "\n".join(paragraphs[:many][::step])


def _end(text: str, *, first: bool) -> str:
    """Return the user's own words at one end: a short paragraph, with others as long as all of them are short."""
    breaks = [found.end() if first else found.start() for found in _BREAK.finditer(text)]
    sizes = breaks if first else [len(text) - place for place in reversed(breaks)]
    near = [size for size in sizes if size <= _ASIDE] or [size for size in sizes[:1] if size <= _OWN]
    if near:
        return text[: near[-1]] if first else text[len(text) - near[-1] :]
    line = text.partition("\n")[0] if first else text.rpartition("\n")[2]
    if "\n" in text and len(line) <= _ASIDE:
        return text[: len(line)] if first else text[len(text) - len(line) :]
    start, _, last = parts(text, *((_LEAST, 0) if first else (0, _LEAST)))
    return start if first else last
