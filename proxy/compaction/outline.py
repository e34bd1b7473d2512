"""What a text holds: its outline, and in one line."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from proxy.compaction.cut_json import json_value
from proxy.compaction.html import readable
from proxy.compaction.shortening import Tightness, is_signal, parts, prose, sieved
from proxy.text.json_values import Pairs, rendered

_LIMITS = Tightness(text=160, items=0, numbers=0, rows=0, head=1500, identifiers=3000)
_FEWEST = 8
"""A text of fewer lines has no structure to speak of."""
_SHARE = 10
"""An outline takes about this part of a text, within the bounds below."""
_LEAST, _MOST = 1500, 8000
_NOTE = 16
"""Characters of the note that stands where lines were dropped."""
_ERRORS = 3
"""So many lines that report an error are wanted of each end of a text."""
_TITLE = 70
_HEADING = re.compile(
    r"\s{0,3}(?:#{1,6}\s+\S|§+\s?\d|(?:\d{1,3}\.){1,5}\d{0,3}\)?\s+[^\W\d_]|=\s|(?:chapter|section|article|part|appendix|annex|"
    r"cap[ií]tulo|secci[oó]n|art[ií]culo|anexo)\s+\w)",
    re.IGNORECASE,
)


def outline(text: str, room: int | None = None) -> str:
    """The outline of a text; of one without lines its beginning, its end and its identifiers.

    Without a `room` in characters it takes a share of the text; with one, it has no identifiers.
    """
    lines = text.splitlines()
    limits = _LIMITS if room is None else replace(_LIMITS, head=room // 2, identifiers=0)
    if len(lines) < _FEWEST:
        return prose(text, limits)
    room = min(max(_LEAST, len(text) // _SHARE), _MOST) if room is None else room
    kept = [False] * len(lines)
    for level in _levels(lines):
        fresh = [place for place in level if not kept[place]]
        costs = sum(_cost(lines[place]) for place in fresh)
        # where not all have room, as many of all parts of the text
        room = max(0, room)
        many = len(fresh) if costs <= room else len(fresh) * room // costs
        for place in (fresh[at * len(fresh) // many] for at in range(many)):
            kept[place] = True
            room -= _cost(lines[place])
    return sieved(lines, kept, limits)


def _cost(line: str) -> int:
    return min(len(line), 5 * _LIMITS.text) + _NOTE  # a long line is cut, but its identifiers stay


def _levels(lines: Sequence[str]) -> Iterator[list[int]]:
    """Places of lines, those first that tell most: the ends, headings, what follows a heading, errors, paragraphs."""
    full = [place for place, line in enumerate(lines) if line.strip()]
    yield [*full[:3], *full[-2:]]
    headings = [place for place in full if _is_heading(lines, place)]
    yield headings
    follows = dict(pairwise(full))
    yield [follows[place] for place in headings if place in follows]
    errors = [place for place in full if is_signal(lines[place])]
    yield [*errors[:_ERRORS], *errors[-_ERRORS:]]
    yield [place for place in full if place == 0 or not lines[place - 1].strip()]


def _is_heading(lines: Sequence[str], place: int) -> bool:
    """Whether a line is marked as one, or stands alone and is as short as a title."""
    line = lines[place][:300].strip()
    if len(line) > _TITLE or line[-1] in ".,;!?":
        return line.startswith("#")
    around = (*lines[max(0, place - 1) : place], *lines[place + 1 : place + 2])
    return _HEADING.match(line) is not None or line.isupper() or not any(one.strip() for one in around)


_LONGEST_LINE = 70
_KEYS = 6


def headline(text: str) -> str:
    """A line of at most about 130 characters: the keys and sizes of JSON, the first words of any other text."""
    value = json_value(text)
    if value is not None:
        return _cut_line(_shape(value, 0))
    lines = [line for line in readable(text).splitlines() if line.strip()]
    first = next((line for line in lines if any(map(str.isalpha, line))), lines[0] if lines else "")
    return _cut_line(" ".join(first.split())) + (f" (first of {len(lines)} lines)" if len(lines) > 1 else "")


def _shape(value: Any, depth: int) -> str:
    if isinstance(value, Pairs):
        keys = [f'"{key}": {_shape(member, depth + 1)}' if depth == 0 else f'"{key}"' for key, member in value[:_KEYS]]
        return "{" + ", ".join([*keys, "…"] if len(value) > _KEYS else keys) + "}"
    if isinstance(value, list):
        first = _shape(value[0], depth + 1) if value and isinstance(value[0], Pairs) else ""
        return f"{len(value)} items" + (f" with {first}" if first else "")
    return rendered(value)


def _cut_line(text: str) -> str:
    first, rest, _ = parts(text, _LONGEST_LINE, 0)
    return f"{first}…" if rest else first
