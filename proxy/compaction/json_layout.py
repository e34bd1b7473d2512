"""JSON values line by line: small ones on a line, like records as rows below their keys, long texts as their lines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proxy.compaction.pieces import WIDE, TextLine, pieces_of
from proxy.text.json_values import Number, Pairs, quoted, rendered

_FEWEST = 3
_DENSE = 0.5
"""Of all objects and all keys together, so many have a value."""
_ROW = 160
"""A value of so many characters stands on one line."""
_DEEPEST = 40
_QUOTES = '"""'

Inner = Callable[[str], Sequence[TextLine]]
"""The lines of a text that stands in the JSON: it may be a page, a log, or JSON again."""


@dataclass(frozen=True, slots=True)
class Table:
    """Objects with nearly the same keys."""

    keys: tuple[str, ...]
    shared: dict[int, Any]
    """The values that all of them have, by the key's place; only short ones."""
    inner: dict[int, "Table"]
    """The members that are objects of one shape themselves, or lists of such, by the key's place."""
    is_in_lists: bool = False

    @property
    def header(self) -> str:
        """The keys of a row's values; a value that all rows share stands here and not in the rows."""
        names = [self._name(place, key) for place, key in enumerate(self.keys) if place not in self.shared]
        common = [f"{quoted(self.keys[place])}:{rendered(value)}" for place, value in self.shared.items()]
        return "(" + ",".join(names) + ("; " + ",".join(common) if common else "") + ")"

    def _name(self, place: int, key: str) -> str:
        within = self.inner.get(place)
        if within is None:
            return quoted(key)
        return quoted(key) + (f"[{within.header}]" if within.is_in_lists else within.header)

    def cells(self, item: Pairs) -> tuple[str, ...]:
        """Return an object's values in the order of the header; nothing stands where it has none."""
        members = dict(item)
        return tuple(
            self._cell(place, members[key]) if key in members else ""
            for place, key in enumerate(self.keys)
            if place not in self.shared
        )

    def row(self, item: Pairs) -> str:
        return f"[{','.join(self.cells(item))}]"

    def _cell(self, place: int, value: Any) -> str:
        within = self.inner.get(place)
        if within is None or value is None:
            return rendered(value)
        if isinstance(value, Pairs):
            return within.row(value)
        return "[" + ",".join(map(within.row, value)) + "]"


def table_of(items: Sequence[Any], depth: int = 0) -> Table | None:
    """Return the table of a sequence of objects; None if they are not alike."""
    if len(items) < _FEWEST or depth > _DEEPEST or not all(isinstance(item, Pairs) for item in items):
        return None
    members = [dict(item) for item in items]
    keys = tuple(dict.fromkeys(key for item in items for key in item.names))
    present = sum(map(len, members))
    if not keys or present < sum(map(len, items)) or present < _DENSE * len(items) * len(keys):
        return None
    shared: dict[int, Any] = {}
    inner: dict[int, Table] = {}
    for place, key in enumerate(keys):
        column = [member[key] for member in members if key in member]
        within = _table_within(column, depth)
        if within is not None:
            inner[place] = within
        elif len(column) == len(items) and not isinstance(column[0], (list, Pairs)) and _all_alike(column):
            shared[place] = column[0]
    if len(shared) == len(keys):  # else nothing would stand in the rows
        del shared[0]
    return Table(keys, shared, inner)


def _table_within(column: Sequence[Any], depth: int) -> Table | None:
    values = [value for value in column if value is not None]
    if values and all(isinstance(value, list) for value in values):
        table = table_of([item for value in values for item in value], depth + 1)
        return None if table is None else replace(table, is_in_lists=True)
    return table_of(values, depth + 1)


def _all_alike(column: Sequence[Any]) -> bool:
    first = column[0]
    return all(type(value) is type(first) and value == first for value in column)


def json_lines(value: Any, inner: Inner, depth: int = 0, key: str = "", *, tables: bool = True) -> Iterator[TextLine]:
    """Yield the lines of a value; `key` stands in front of it."""
    start = " " * depth + key
    short = _short(value, _ROW)
    if short is not None or depth > _DEEPEST or not isinstance(value, (str, list, Pairs)) or isinstance(value, Number):
        yield from _line(start + (rendered(value) if short is None else short), depth)
        return
    if isinstance(value, str):
        yield from _string(value, inner, depth, start)
        return
    items = value if isinstance(value, list) else [member for _, member in value]
    table = table_of(items) if tables else None
    first, last = "[]" if isinstance(value, list) else "{}"
    yield from _line(start + first + (table.header if table is not None else ""), depth)
    if table is not None:
        for place, item in enumerate(items):
            name = "" if isinstance(value, list) else f"{quoted(value[place][0])}:"
            end = last if place == len(items) - 1 else ""
            cells = table.cells(item)
            yield from _line(f"{' ' * depth} {name}[{','.join(cells)}]{end}", depth + 1, cells)
        return
    if isinstance(value, Pairs):
        for name, member in value:
            yield from json_lines(member, inner, depth + 1, f"{quoted(name)}:", tables=tables)
    else:
        yield from _items(value, inner, depth + 1, tables=tables)
    yield TextLine(" " * depth + last, depth)


def table_lines(items: Sequence[Any]) -> Iterator[TextLine]:
    """Yield the header and rows of records that each stand on a line of their own; none if they are not alike."""
    table = table_of(items)
    if table is not None:
        yield from _line(table.header, 0)
        for item in items:
            cells = table.cells(item)
            yield from _line(f" [{','.join(cells)}]", 1, cells)


def _items(items: Sequence[Any], inner: Inner, depth: int, *, tables: bool) -> Iterator[TextLine]:
    """Yield the lines of a list's items; small ones, except objects, share a line."""
    run = ""
    for item in items:
        short = None if isinstance(item, Pairs) else _short(item, _ROW)
        if run and (short is None or len(run) + len(short) > _ROW):
            yield TextLine(" " * depth + run, depth)
            run = ""
        if short is None:
            yield from json_lines(item, inner, depth, tables=tables)
        else:
            run += f",{short}" if run else short
    if run:
        yield TextLine(" " * depth + run, depth)


def _string(text: str, inner: Inner, depth: int, start: str) -> Iterator[TextLine]:
    """Yield a long string's lines between lines of quotes."""
    lines = inner(text) if len(text) > WIDE and _QUOTES not in text else ()
    if len(lines) < 2 or all(line.glue != "\n" for line in lines[1:]):
        yield from _line(start + quoted(text), depth)
        return
    yield TextLine(start + _QUOTES, depth)
    for line in lines:
        yield line._replace(depth=depth + 1 + min(line.depth, _DEEPEST))
    yield TextLine(" " * depth + _QUOTES, depth)


def _line(text: str, depth: int, cells: tuple[str, ...] = ()) -> Iterator[TextLine]:
    if len(text) <= WIDE:
        yield TextLine(text, depth, cells=cells)
    else:
        yield from pieces_of(text, depth, cells)


def _short(value: Any, room: int) -> str | None:
    """Return a value as JSON if it has at most so many characters, without rendering a large one."""
    if isinstance(value, (list, Pairs)):
        ends = "[]" if isinstance(value, list) else "{}"
        shown = ends[0]
        for place in range(len(value)):
            key, item = (
                ("", value[place]) if isinstance(value, list) else (f"{quoted(value[place][0])}:", value[place][1])
            )
            text = _short(item, room - len(shown) - len(key) - 1)
            if text is None:
                return None
            shown += f"{',' if place else ''}{key}{text}"
        return shown + ends[1] if len(shown) < room else None
    if isinstance(value, str) and len(value) > room:
        return None
    text = rendered(value)
    return text if len(text) <= room else None
