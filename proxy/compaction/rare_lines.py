"""Lines that say what few of their like say: a rare state in a column, a message unlike the others, a fault."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from proxy.compaction.pieces import TextLine
from proxy.text.tables import either
from proxy.text.tables import lines as table_lines

_MANY = 20
"""Of so many rows one is rare."""
_STATES = 12
"""A column with at most so many different values holds states rather than counts or names."""
_ALIKE = 3
"""So many rows with the same rare value stay; of reports of a fault so many of the first, and of the last."""
_START = 300
"""Characters of a line that are looked at."""
_SAMPLE = 100
"""Rows of a long table that are looked at first."""
_COLUMNS = 8
"""Words of a log that are looked at."""
CELL = re.compile(r'"(?:[^"\\]|\\.){0,200}"|[^\t;|,<>]+')
_PAIR = re.compile(r"\"?([^\d\W][\w .-]{0,40}?)\"?\s*[:=]\s*(\S.{0,60})$|<([\w.:-]{1,40})[^<>]{0,100}>([^<>]{1,60})</")
_DIGITS = re.compile(r"[0-9][0-9a-fA-F.:,-]*")


def rare_lines(lines: Sequence[TextLine]) -> list[int]:
    """Return the places of the lines that stand out, the rarest first, and then in their order."""
    rarity: dict[int, int] = {}

    def note(rows: Sequence[int], count: int) -> None:
        for row in rows:
            rarity[row] = min(count, rarity.get(row, count))

    texts = [line.text[:_START] for line in lines]
    for column in _columns(lines, texts):
        for rows in _rare(column):
            note(rows[:_ALIKE], len(rows))
    shapes: dict[str, list[int]] = {}
    for row, text in enumerate(texts) if reports_fault("\n".join(texts)) else ():
        if reports_fault(text):
            shapes.setdefault(_DIGITS.sub("0", " ".join(text.split()[:2]))[:40], []).append(row)
    for rows in shapes.values():
        note(rows if len(rows) <= 2 * _ALIKE else [*rows[:_ALIKE], *rows[-_ALIKE:]], len(rows))
    return sorted(rarity, key=lambda row: (rarity[row], row))


def _rare(column: Mapping[int, str]) -> Iterator[list[int]]:
    """Yield the rows of each value of a column that is rare among few different ones."""
    values: dict[str, list[int]] = {}
    for row, value in column.items():
        values.setdefault(value, []).append(row)
    if 1 < len(values) <= min(_STATES, len(column) // 5):
        yield from (rows for rows in values.values() if len(rows) * _MANY <= len(column))


def _columns(lines: Sequence[TextLine], texts: Sequence[str]) -> Iterator[Mapping[int, str]]:
    """Yield columns whose values may be states: of cells, of words, and of keys."""
    levels: dict[int, list[int]] = {}
    keyed: dict[tuple[int, str], dict[int, str]] = {}
    for row, (line, text) in enumerate(zip(lines, texts, strict=True)):
        levels.setdefault(line.depth, []).append(row)
        pair = _PAIR.match(text.lstrip()) if ":" in text or "=" in text or "<" in text else None
        if pair is not None:
            keyed.setdefault((line.depth, pair[1] or pair[3]), {})[row] = pair[2] or pair[4]
    for rows in levels.values():
        if len(rows) >= _MANY:
            yield from _states(rows, lambda row: lines[row].cells or CELL.findall(texts[row]), even=True)
            yield from _states(rows, lambda row: texts[row].split(None, _COLUMNS))
            yield from _states(rows, lambda row: _DIGITS.sub("0", texts[row]).split(None, _COLUMNS))
    yield from (column for column in keyed.values() if len(column) >= _MANY)


def _states(
    rows: Sequence[int], cells: Callable[[int], Sequence[str]], *, even: bool = False
) -> Iterator[Mapping[int, str]]:
    """Yield the columns with few different values in a sample of the rows; if `even`, of rows of the usual length."""
    step = max(1, len(rows) // _SAMPLE)
    sample = [cells(row) for row in rows[::step]]
    usual, count = Counter(map(len, sample)).most_common(1)[0]
    if even and (usual < 2 or count < len(sample) // 2):
        return
    width = usual if even else _COLUMNS
    few = [0 < len({row[place] for row in sample if len(row) > place}) <= _STATES for place in range(width)]
    columns: dict[int, dict[int, str]] = {place: {} for place in range(width) if few[place]}
    if not columns:
        return
    for row, row_cells in zip(rows, sample if step == 1 else map(cells, rows), strict=True):
        for place, column in columns.items() if not even or len(row_cells) == usual else ():
            if len(row_cells) > place:
                column[row] = row_cells[place].strip()
    yield from columns.values()


def reports_fault(text: str) -> bool:
    """Return True for a line with a word by which programs report an error or a warning."""
    return _faults().search(text.lower()) is not None  # seven times as fast as a pattern that ignores case


@cache
def _faults() -> re.Pattern[str]:
    return re.compile(either(map(re.escape, table_lines("faults"))))
