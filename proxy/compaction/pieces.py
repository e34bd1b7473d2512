"""Pieces of a text that stay whole or leave: its lines, and the sentences or members of a long line. Notes on gaps."""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

WIDE = 400
"""A line of more characters is taken apart."""
_BREAK = re.compile(
    r'[.!?。！？।"}\]](?:(?<=[.!?])()[ \t]+|(?<=[。！？।])()'
    r'|(?<="),()[ \t]*(?=")|(?<=}),()[ \t]*(?=\{)|(?<=]),()[ \t]*(?=\[))'
)
"""The end of a piece, and what stands between it and the next one, from a group on. It begins with a set of signs, so
that a text without any is passed over quickly: other threads wait meanwhile."""
_BETWEEN = re.compile(r"[\s,;|、，；]")
_NOWHERE = 1 << 20
_INDENTS = " \t\r\f\v\xa0\u3000│├└─┬╰"
"""White space, and the branches that a tree is drawn with."""


class TextLine(NamedTuple):
    """A piece of a text."""

    text: str
    depth: int
    """Its indent; the nearest line above with a smaller one is its parent."""
    glue: str = "\n"
    cells: tuple[str, ...] = ()
    """Of a row of JSON its values."""

    @property
    def is_blank(self) -> bool:
        """True for nothing but white space, behind a line's number too."""
        return self.depth == _NOWHERE or not self.text


def depth_of(line: str) -> int:
    """Return how far a line is indented; an empty one stands under any."""
    return len(line) - len(line.lstrip(_INDENTS)) if line.strip() else _NOWHERE


def pieces_of(line: str, depth: int, cells: tuple[str, ...] = ()) -> Iterator[TextLine]:
    """Divide a long line into sentences, or members of JSON, word for word."""
    start, glue = 0, "\n"
    for sign in (*_BREAK.finditer(line), None):
        end = len(line) if sign is None else sign.start(sign.lastindex or 0)
        while end - start > WIDE:
            cut = _last_break(line, start, start + WIDE)
            yield TextLine(line[start:cut], depth, glue, cells)
            start, glue, cells = cut, "", ()
        if end > start or sign is None:
            yield TextLine(line[start:end], depth, glue, cells)
            glue, cells = "", ()
        if sign is not None:
            between = line[end : sign.end()]
            start, glue = sign.end(), glue + between if end == start else between


def _last_break(line: str, start: int, end: int) -> int:
    ends = [found.end() for found in _BETWEEN.finditer(line, (start + end) // 2, end)]
    return ends[-1] if ends else end


def packed(sizes: Sequence[int], most: int, count: int = sys.maxsize) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of at most `count` neighbours that together have at most the size `most`."""
    start = total = 0
    for place, size in enumerate(sizes):
        if place > start and (place - start == count or total + size > most):
            yield start, place
            start, total = place, 0
        total += size
    if sizes:
        yield start, len(sizes)


def sampled(items: Sequence[T], most: int) -> Sequence[T]:
    """Return some of many items, in steps that grow, which no period of the items has."""
    return items if len(items) <= most else [items[len(items) * at * at // most**2] for at in range(most)]


def gap(note: str, known: str = "") -> str:
    """Return what stands where something is left out: `[… 12 lines]`, or `[… 12 lines; A-1 A-2]`."""
    return f"[… {note}; {known}]" if known else f"[… {note}]"


LONGEST_LINE = 1000
"""Characters of a line; a longer one becomes several, so that any place of minified JSON has a line number."""


def parts(text: str, head: int, tail: int) -> tuple[str, str, str]:
    """Return a text in three parts, cut between words where there are any; the middle is empty if the text is short."""
    if len(text) <= head + tail + 40:
        return text, "", ""
    first = _boundary(text, head, -1)
    last = _boundary(text, len(text) - tail, 1) if tail else len(text)
    return text[:first].rstrip(), text[first:last], text[last:].lstrip()


def _boundary(text: str, near: int, step: int) -> int:
    """Return the place of white space near an index; the index itself if there is none."""
    for way in (step, -step):
        for place in range(near, near + 40 * way, way):
            if not 0 < place < len(text):
                break
            if text[place - 1 if step > 0 else place].isspace():
                return place
    return near
