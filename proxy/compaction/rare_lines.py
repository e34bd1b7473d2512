"""Lines that stand out among their like: a rare state in a column, a report of a fault. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from proxy.compaction.pieces import TextLine, sampled
from proxy.text.tables import lines as table_lines

Kind = tuple[int, str]
"""The indent and the first word of lines that are compared."""

MANY_ROWS = 20
"""Of so many rows one is rare."""
_STATES = 12
"""A column with at most so many different values holds states rather than counts or names."""
_ALIKE = 3
"""So many rows with the same rare value stay; of reports of a fault so many of the first, and of the last."""
_START = 300
_SAMPLED_ROWS = 100
_COLUMNS = 8
_CELL = re.compile(r'"(?:[^"\\]|\\.){0,200}"|[^\t;|,<>]+')
_FIRST_WORD = re.compile(r"[^\W\d_]\w*")
_DIGITS = re.compile(r"[0-9][0-9a-fA-F.:,-]*")


def kind_of(line: TextLine) -> Kind:
    """Return the kind of a line."""
    word = _FIRST_WORD.search(line.text[:_START])
    return line.depth, word[0] if word else ""


def rare_lines(lines: Sequence[TextLine], kinds: Sequence[Kind]) -> list[int]:
    """Return the places of the lines that stand out, the rarest first, and then in their order."""
    rarity: dict[int, int] = {}

    def note(rows: Sequence[int], count: int) -> None:
        for row in rows:
            rarity[row] = min(count, rarity.get(row, count))

    texts = [line.text[:_START] for line in lines]
    for column in _columns(lines, texts, kinds):
        for rows in _rare(column):
            note(rows[:_ALIKE], len(rows))
    shapes: dict[str, list[int]] = {}
    lower = "\n".join(texts).lower()
    words = [word for word in table_lines("faults") if word in lower]  # three times as fast as a pattern
    for row, text in enumerate(texts) if words else ():
        if any(map(text.lower().__contains__, words)):
            shapes.setdefault(_DIGITS.sub("0", " ".join(text.split()[:2]))[:40], []).append(row)
    for rows in shapes.values():
        note(rows if len(rows) <= 2 * _ALIKE else [*rows[:_ALIKE], *rows[-_ALIKE:]], len(rows))
    return sorted(rarity, key=lambda row: (rarity[row], row))


def _rare(column: Mapping[int, str]) -> Iterator[list[int]]:
    """Yield the rows of each value of a column that is rare among few different ones."""
    values = Counter(column.values())
    if 1 < len(values) <= min(_STATES, len(column) // 5):
        for rare in (value for value, count in values.items() if count * MANY_ROWS <= len(column)):
            yield [row for row, value in column.items() if value == rare]


def _columns(lines: Sequence[TextLine], texts: Sequence[str], kinds: Sequence[Kind]) -> Iterator[Mapping[int, str]]:
    """Yield columns whose values may be states: of cells, and of words, also behind one first word."""
    levels: dict[int, list[int]] = {}
    named: dict[Kind, list[int]] = {}
    for row, (line, kind) in enumerate(zip(lines, kinds, strict=True)):
        levels.setdefault(line.depth, []).append(row)
        named.setdefault(kind, []).append(row)
    for rows in levels.values():
        if len(rows) >= MANY_ROWS:
            yield from _states(rows, lambda row: lines[row].cells or _CELL.findall(texts[row]), even=True)
            yield from _states(
                rows, lambda row: [_DIGITS.sub("0", cell) for cell in _CELL.findall(texts[row])], even=True
            )
            yield from _states(rows, lambda row: texts[row].split(None, _COLUMNS))
            yield from _states(rows, lambda row: _DIGITS.sub("0", texts[row]).split(None, _COLUMNS))
    for (depth, _), rows in named.items():
        if MANY_ROWS <= len(rows) < len(levels[depth]):
            yield from _states(rows, lambda row: texts[row].split(None, _COLUMNS))


def _states(
    rows: Sequence[int], cells: Callable[[int], Sequence[str]], *, even: bool = False
) -> Iterator[Mapping[int, str]]:
    """Yield the columns with few different values in a sample of the rows; if `even`, of rows of the usual length."""
    few = sampled(rows, _SAMPLED_ROWS)
    sample = [cells(row) for row in few]
    usual, count = Counter(map(len, sample)).most_common(1)[0]
    if even and (usual < 2 or count < len(sample) // 2):
        return
    width = usual if even else _COLUMNS
    kinds = [len({row[place] for row in sample if len(row) > place}) for place in range(width)]
    columns: dict[int, dict[int, str]] = {place: {} for place, count in enumerate(kinds) if 0 < count <= _STATES}
    if not columns:
        return
    for row, row_cells in zip(rows, sample if few is rows else map(cells, rows), strict=True):
        for place, column in columns.items() if not even or len(row_cells) == usual else ():
            if len(row_cells) > place:
                column[row] = row_cells[place].strip()
    yield from columns.values()
