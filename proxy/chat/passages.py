"""Pieces of messages that can be brought back one by one: each is a slice of its text, word for word."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

WHOLE = 1200
"""Characters up to which a text is one passage."""
_PIECE = 600
"""Characters up to which the paragraphs of a longer text are joined."""
_HEADING = 100
"""Characters up to which a paragraph does not stand alone: it may be the heading of the next one."""
_LONGEST = 2400
"""Characters up to which a paragraph stays whole."""
_READ = 400_000
"""Characters of a text that are divided; what is behind them is one passage for each `_LONGEST`."""

_PARAGRAPH = re.compile(r"\n[ \t]*\n|\n(?=#{1,6} )")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？])\s*|\n")


@dataclass(frozen=True, slots=True)
class Passage:
    """A slice of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        return text[self.start : self.end]


def passages(text: str) -> tuple[Passage, ...]:
    """Divide a text into passages: short paragraphs are joined, long ones cut; a short text is one passage.

    Cuts fall between sentences, or where there are none within `_LONGEST`, anywhere. White space around is left out.
    """
    if len(text) <= WHOLE:
        return tuple(_trimmed(text, [(0, len(text))]))
    return tuple(_trimmed(text, _joined(_paragraphs(text))))


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for gap in _PARAGRAPH.finditer(text, 0, _READ):
        yield from _parts(text, start, gap.start())
        start = gap.end()
    yield from _parts(text, start, len(text))


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a paragraph, or where it is too long, sentences joined to about `_PIECE` characters."""
    if end - start <= _LONGEST:
        yield start, end
        return
    ends = [gap.end() for gap in _SENTENCE.finditer(text, start, min(end, _READ))]
    while end - start > 2 * _PIECE:
        place = bisect_left(ends, start + _PIECE)
        near = place < len(ends) and ends[place] <= start + _LONGEST
        stop = ends[place] if near else min(start + _LONGEST, end)
        yield start, stop
        start = stop
    if start < end:
        yield start, end


def _joined(parts: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    first: int | None = None
    body = last = 0  # behind a heading
    for start, end in parts:
        if first is not None and end - body > _PIECE and last > body:
            yield first, last
            first = None
        if first is None:
            first, body = start, end if end - start <= _HEADING else start
        last = end
    if first is not None:
        yield first, last


def _trimmed(text: str, slices: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> Iterator[Passage]:
    for start, end in slices:
        said = text[start:end]
        left, right = len(said) - len(said.lstrip()), len(said) - len(said.rstrip())
        if left < len(said):
            yield Passage(start + left, end - right)
