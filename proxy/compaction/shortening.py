"""How much of a text stays, and how it says that something is missing: strings, prose, lines."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from proxy.compaction.envelopes import unescaped
from proxy.compaction.identifiers import LONGEST, gathered
from proxy.text import counted


@dataclass(frozen=True, slots=True)
class Tightness:
    """One step of tightness."""

    text: int
    """Characters of a string that stays whole; a longer one is cut to about this."""
    items: int
    """Elements kept of a long array of short strings."""
    numbers: int
    """Elements kept of a long array of numbers."""
    rows: int
    """Records kept of a list of like ones, or lines of a listing."""
    head: int
    """Characters kept of the beginning of a text."""
    identifiers: int
    """Characters of identifiers kept from the part of a text that is dropped."""


STEPS = (
    Tightness(text=100, items=80, numbers=40, rows=200, head=240, identifiers=1200),
    Tightness(text=60, items=50, numbers=24, rows=120, head=120, identifiers=800),
    Tightness(text=40, items=24, numbers=10, rows=60, head=60, identifiers=500),
)
"""From loose to tight: the first whose form is short enough is taken."""

TIGHT = tuple(Tightness(text=40, items=rows, numbers=4, rows=rows, head=60, identifiers=0) for rows in (40, 24, 12, 6))
"""Tighter still, for the outline of a text that does not fit the window."""


def gap(count: int, what: str, known: str = "") -> str:
    """The note that stands where something was dropped: `[… 12 lines]`, or `[… 12 rows; sku: A-1 A-2]`."""
    said = f"{count} {what}" if what == "more" else counted(count, what)
    return f"[… {said}; {known}]" if known else f"[… {said}]"


_SIGNAL = re.compile(
    r"error|fail|fatal|warn|exception|traceback|critical|panic|denied|refused|timeout|timed out|invalid|not found"
)


def is_signal(text: str) -> bool:
    """Whether a line or a record reports an error or a warning."""
    return _SIGNAL.search(text.lower()) is not None  # seven times as fast as a pattern that ignores case


_MANY = 20
"""Of so many alike one is the odd one out."""
_FEW = 5
"""A value that is at most so many different ones is a state rather than a count or a name."""


def odd(columns: Iterable[Sequence[Hashable]], most: int) -> set[int]:
    """The rows in which a value, such as a status, is not what it is in nearly all: the first `most` of each column."""
    found: set[int] = set()
    for column in columns:
        counts = Counter(column) if len(column) >= _MANY else {}
        if 1 < len(counts) <= _FEW:
            rows = (row for row, value in enumerate(column) if counts[value] * _MANY <= len(column))
            found.update(islice(rows, most))
    return found


_BLANK = re.compile(r"\s")
_OPAQUE = 60
"""Characters of a word that is longer than any value."""
_GOES_ON = "({[;,\\"
"""The end of a line of code that names an error but reports none."""
_TAIL = 4
"""The tail gets this part of the head's room."""


def prose(text: str, limits: Tightness) -> str:
    """Head, errors, identifiers and tail of a text; the text itself if that is all of it.

    A short last line stays whole: programs say there how they ended.
    """
    last = len(text) - text.rstrip().rfind("\n") - 1
    tail_size = max(limits.head // _TAIL, last if last <= limits.text else 0)
    head, middle, tail = parts(text, limits.head, tail_size)
    if not middle:
        return text
    errors = _errors(text[head.rfind("\n") + 1 :], f"{head}\n{tail}", limits.identifiers // 2)
    if errors and errors[-1].endswith(tail.strip()):
        tail = ""
    shown = "\n".join((head, *errors, tail))
    known = gathered(unescaped(middle), limits.identifiers, known=shown)
    return "\n".join(part for part in (f"{head}…", *errors, known, f"…{tail}" if tail else "") if part)


def _errors(text: str, shown: str, room: int) -> list[str]:
    """The lines that report an error and are not shown, as far as there is room: first the ones at the ends."""
    lines = dict.fromkeys(line.strip() for line in text.splitlines() if len(line) <= LONGEST and is_signal(line))
    found = [line for line in lines if line not in shown and line[-1] not in _GOES_ON]
    kept: set[str] = set()
    for pair in zip(found, reversed(found), strict=True):
        for line in pair:
            if line not in kept and len(line) <= room:
                kept.add(line)
                room -= len(line)
    return [line for line in found if line in kept]


def cut(text: str, room: int, identifiers: int | None = None) -> str:
    """The beginning of a string that stands inside something else, ended by an ellipsis, and its identifiers.

    They take at most so many characters, or four times the `room`.

    One word, such as an address, stays whole. Of a longer one, such as an encoded picture, hardly anything tells.
    """
    is_word = not _BLANK.search(text)
    if len(text) <= room or (len(text) <= LONGEST and is_word):
        return text
    room = min(room, _OPAQUE) if is_word and text.isascii() else room
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
    for way in (step, -step):
        for place in range(near, near + 40 * way, way):
            if not 0 < place < len(text):
                break
            if text[place - 1 if step > 0 else place].isspace():
                return place
    return near


WIDEST = 1000
"""Characters of a line; a longer one becomes several, so that any place of minified JSON has a line number."""

_NOTE = 20
_SAMPLE = 200
_WIDTH = 300


def sieved(lines: Sequence[str], kept: Sequence[bool], limits: Tightness, *, named: bool = True) -> str:
    """The lines that are kept, long ones cut.

    What is dropped leaves a note with its count, and where `named` its identifiers.
    """
    shown: list[str] = []
    dropped: list[str] = []
    run: list[str] = []
    for line, stays in zip([*lines, ""], [*kept, True], strict=True):
        if not stays:
            run.append(line)
            continue
        if sum(map(len, run)) <= _NOTE:
            shown += run
        else:
            shown.append(gap(len(run), "line"))
            dropped += run
        run = []
        is_short = len(line) <= (4 if is_signal(line) else 2) * limits.text
        shown.append(line if is_short else cut(line, limits.text, None if limits.identifiers else 0))
    text = "\n".join(shown[:-1])
    if not named:
        return text
    known = gathered("\n".join(dropped), limits.identifiers // 2, known=text)
    return f"{text}\n[… {known}]" if known else text


def ends(count: int, most: int) -> list[bool]:
    """The first and last of so many lines, three quarters of the room for the first."""
    if count <= most:
        return [True] * count
    return [place < most * 3 // 4 or place >= count - most // 4 for place in range(count)]


def share(lines: Sequence[str], pattern: re.Pattern[str]) -> float:
    """The part of the first lines that have something in them which a pattern matches."""
    some = [line for line in lines[:_SAMPLE] if line.strip()]
    return sum(pattern.match(line[:_WIDTH]) is not None for line in some) / len(some) if some else 0.0
