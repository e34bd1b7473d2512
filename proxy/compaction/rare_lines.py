"""Lines that stand out among their like: a rare state in a column, a report of a fault. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from proxy.compaction.pieces import TextLine, sampled
from proxy.text.tables import lines as table_lines

Kind = tuple[int, str]
"""The indent and the first word of lines that are compared."""

MANY_ROWS = 20
"""Of so many rows one is rare."""
_STATES = 12
"""A column with at most so many different values holds states rather than counts or names."""
_USUAL = 0.9
"""So does one in which so many rows have one of the usual values."""
_ALIKE = 3
"""So many rows with the same rare value stay; of reports of a fault so many of the first, and of the last."""
_START = 300
_SAMPLED_ROWS = 100
_COLUMNS = 8
_CELL = re.compile(r'"(?:[^"\\]|\\.){0,200}"|[^\t;|,<>]+')
_FIRST_WORD = re.compile(r"[^\W\d_]\w*")
_PAIR = re.compile(r"""["']?([A-Za-z_][\w.-]{0,39})["']?[ \t]?[:=][ \t]?("(?:[^"\\]|\\.){0,80}"|[^\s,;|}\])]{1,80})""")
_NUMBER = re.compile(r"(?<![\w.:/-])[0-9]{1,15}(?:\.[0-9]{1,9})?(?=[A-Za-z%]{0,3}(?![\w.:/-]))")
_TIMES = 4
"""So many times what nearly all numbers of a column are at most is large."""
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
    """Yield the rows of each value of a column that is rare among few different, or usual, ones."""
    values = Counter(column.values())
    rare = {value: list[int]() for value, count in values.items() if count * MANY_ROWS <= len(column)}
    usual = sum(count for value, count in values.items() if value not in rare)
    if rare and (len(values) <= min(_STATES, len(column) // 5) or usual >= _USUAL * len(column)):
        for row, value in column.items():
            if value in rare:
                rare[value].append(row)
        yield from islice(rare.values(), _STATES)


def _columns(lines: Sequence[TextLine], texts: Sequence[str], kinds: Sequence[Kind]) -> Iterator[Mapping[int, str]]:
    """Yield columns whose values may be states: of indents, cells, keys and words, also behind one first word."""
    yield {row: str(line.depth) for row, line in enumerate(lines)}
    levels: dict[int, list[int]] = {}
    named: dict[Kind, list[int]] = {}
    for row, (line, kind) in enumerate(zip(lines, kinds, strict=True)):
        levels.setdefault(line.depth, []).append(row)
        named.setdefault(kind, []).append(row)
    for rows in levels.values():
        if len(rows) >= MANY_ROWS:
            yield {row: kinds[row][1] for row in rows}
            yield from _pairs(rows, texts)
            yield from _states(rows, lambda row: lines[row].cells or _CELL.findall(texts[row]), even=True)
            yield from _large(rows, texts)
            yield from _states(
                rows, lambda row: [_DIGITS.sub("0", cell) for cell in _CELL.findall(texts[row])], even=True
            )
            yield from _states(rows, lambda row: texts[row].split(None, _COLUMNS))
            yield from _states(rows, lambda row: _DIGITS.sub("0", texts[row]).split(None, _COLUMNS))
    for (depth, _), rows in named.items():
        if MANY_ROWS <= len(rows) < len(levels[depth]):
            yield from _states(rows, lambda row: texts[row].split(None, _COLUMNS))


def _pairs(rows: Sequence[int], texts: Sequence[str]) -> Iterator[Mapping[int, str]]:
    """Yield a column for each key of JSON objects or `key=value` that rows have in common, and one of rare keys."""
    columns: dict[str, dict[int, str]] = {}
    few = sampled(rows, _SAMPLED_ROWS)
    for row in rows if 2 * sum(1 for row in few if _PAIR.search(texts[row])) > len(few) else ():
        for key, value in _PAIR.findall(texts[row]):
            columns.setdefault(key, {})[row] = value
    often = [column for column in columns.values() if len(column) >= MANY_ROWS]
    yield from often
    if often:
        rare = {row: key for key, column in columns.items() if len(column) * MANY_ROWS <= len(rows) for row in column}
        yield {row: rare.get(row, "") for row in rows}


def _large(rows: Sequence[int], texts: Sequence[str]) -> Iterator[Mapping[int, str]]:
    """Yield for each column of numbers whether they are much larger than nearly all of it."""
    numbers = {row: found for row in rows if (found := _NUMBER.findall(texts[row]))}
    usual = Counter(map(len, numbers.values())).most_common(1)[0][0] if numbers else 0
    for place in range(usual):
        column = {row: float(found[place]) for row, found in numbers.items() if len(found) == usual}
        most = _TIMES * sorted(column.values())[(len(column) - 1) * (MANY_ROWS - 1) // MANY_ROWS]
        yield {row: str(number > most) for row, number in column.items()}


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
    if not columns and not even:
        return
    widths: dict[int, str] = {}
    for row, row_cells in zip(rows, sample if few is rows else map(cells, rows), strict=True):
        widths[row] = str(len(row_cells)) if even else ""
        for place, column in columns.items() if not even or len(row_cells) == usual else ():
            if len(row_cells) > place:
                column[row] = row_cells[place].strip()
    yield widths
    yield from columns.values()
