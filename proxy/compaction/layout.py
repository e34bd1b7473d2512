"""The lines of a text, in a layout that says the same in less: nothing is lost in it but what a terminal wrote over.

Like records of JSON are rows below their keys, lines that repeat are counted, an encoded blob is named.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proxy.compaction import html
from proxy.compaction.cut_json import json_and_rest
from proxy.compaction.envelopes import last_written
from proxy.compaction.pieces import WIDE, TextLine, depth_of, gap, pieces_of
from proxy.text.json_values import Number, Pairs, documents, quoted, rendered

_FEWEST = 3
_DENSE = 0.5
"""Of all objects and all keys together, so many have a value."""
_ROW = 160
"""A value of so many characters stands on one line."""
_DEEPEST = 40
_QUOTES = '"""'
_QUOTE_RUN = re.compile(r'"{3,}')

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
    """Yield a long string's lines between lines of more quotes than stand in it together."""
    lines = inner(text) if len(text) > WIDE else ()
    if len(lines) < 2 or all(line.glue != "\n" for line in lines[1:]):
        yield from _line(start + quoted(text), depth)
        return
    quotes = max([_QUOTES, *(f'{run}"' for run in _QUOTE_RUN.findall(text))], key=len)
    yield TextLine(start + quotes, depth)
    for line in lines:
        yield line if line.is_blank else line._replace(depth=depth + 1 + min(line.depth, _DEEPEST))
    yield TextLine(" " * depth + quotes, depth)


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


_FEW = 80
_BLANK = 3
_NUMBER = re.compile(r"[ \t]*(\d{1,9})(?:\t|→|[:|] ?)")
"""The number of a line of a file, in front of it: the line is indented as what follows."""
_NUMBERED = 20
"""Lines whose numbers are looked at."""
_BLOB = re.compile(r"[A-Za-z0-9+/_-]{2000,}={0,2}")
_BLOB_LENGTH = 2000
_BEGUN = 24
"""Characters of a blob that stay: they tell what it is."""
_ELEMENT = re.compile(r"<(/?)([A-Za-z][\w.-]{0,40})(?=[\s>/])")
_FEWEST_ELEMENTS = 5
_WORTH = 0.9
"""JSON between other lines stays where its layout takes more than this share of it."""


def joined(lines: Sequence[TextLine]) -> str:
    """Return the text that lines are."""
    return "".join(line.glue + line.text for line in lines).removeprefix(lines[0].glue if lines else "")


def lay_out(text: str, *, tables: bool = True, pages: bool = True) -> Sequence[TextLine]:
    """Return the lines of a text: like JSON records below their keys if `tables`, HTML as it is seen if `pages`."""
    found = json_and_rest(text)
    if found is not None:
        with suppress(RecursionError):
            return _of_json(*found, tables=tables, pages=pages)
    if pages and html.is_html(text):
        return [TextLine(line, depth_of(line)) for line in html.page(text).splitlines()]
    lines = _elements(text) if text.lstrip()[:1] == "<" else []
    if tables and not lines:
        with suppress(RecursionError):
            lines = [*_counted(_mixed_lines(text))]
    return lines or [*_counted(_text_lines(text))]


def _of_json(value: Any, rest: str | None, *, tables: bool, pages: bool) -> Sequence[TextLine]:
    lines = [*_counted(json_lines(value, partial(lay_out, tables=tables, pages=pages), tables=tables))]
    return lines if rest is None else [*lines, TextLine(gap("the text is cut off here", rest), 0)]


def _mixed_lines(text: str) -> Iterator[TextLine]:
    """Yield the lines of a text, with a layout for the JSON that fills lines of it."""
    place = 0
    for start, end, values in _runs(text):
        lines = [*table_lines(values)] or [
            line for value in values for line in json_lines(value, partial(lay_out, pages=False))
        ]
        if len(joined(lines)) <= _WORTH * (end - start):
            if start > place:
                yield from _text_lines(text[place : start - 1])
            yield from lines
            place = end + 1
    if place <= len(text):
        yield from _text_lines(text[place:])


def _runs(text: str) -> Iterator[tuple[int, int, list[Pairs | list[Any]]]]:
    """Yield each JSON document between other lines, and objects on neighbouring lines together: start, end, values."""
    run: list[Pairs | list[Any]] = []
    since = until = -1
    for start, end, value in documents(text):
        if run and not (start == until + 1 and isinstance(value, Pairs) and isinstance(run[0], Pairs)):
            yield since, until, run
            run = []
        since = since if run else start
        run.append(value)
        until = end
    if run:
        yield since, until, run


def without_blobs(text: str) -> str:
    """Return a text in which long runs of encoded data, such as a picture in base64, are named."""
    return _BLOB.sub(_named, text) if len(text) > _BLOB_LENGTH else text


def _named(match: re.Match[str]) -> str:
    blob = match[0]
    is_encoded = all(any(map(test, blob)) for test in (str.isdigit, str.isupper, str.islower))
    return f"{blob[:_BEGUN]}{gap(f'{len(blob) - _BEGUN} more of an encoded blob')}" if is_encoded else blob


def _text_lines(text: str) -> Iterator[TextLine]:
    lines = last_written(text).split("\n")
    numbers = [number and int(number[1]) for number in map(_NUMBER.match, lines[:_NUMBERED])]
    is_numbered = numbers[0] is not None and numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    for line in lines:
        number = _NUMBER.match(line) if is_numbered else None
        depth = depth_of(line[number.end() :] if number else line)
        if len(line) <= WIDE:
            yield TextLine(line, depth)
        else:
            yield from pieces_of(line, depth)


def _counted(lines: Iterable[TextLine]) -> Iterator[TextLine]:
    """Yield the lines; of repeated ones the first, and a count."""
    run: list[TextLine] = []
    for line in lines:
        if run and line.text != run[0].text:
            yield from _once(run)
            run = []
        run.append(line)
    yield from _once(run)


def _once(run: list[TextLine]) -> Sequence[TextLine]:
    if len(run) < 3:
        return run
    first, again, *rest = run
    if first.is_blank:
        return run if len(run) <= _BLANK else [first]
    if (len(rest) + 1) * len(first.text) <= _FEW:
        return run
    return [first, TextLine(gap(f"the same {len(rest) + 1} more times"), first.depth, again.glue)]


def _elements(text: str) -> list[TextLine]:
    """Return the most common elements of XML on long lines, each on a line of its own; empty for any other text."""
    if max(map(len, text.split("\n"))) <= WIDE:
        return []
    opened: Counter[str] = Counter()
    closed: Counter[str] = Counter()
    since: dict[str, int] = {}
    covered: Counter[str] = Counter()
    for tag in _ELEMENT.finditer(text):
        name = tag[2]
        if tag[1]:
            closed[name] += 1
            covered[name] += tag.start() - since.get(name, tag.start())
        else:
            opened[name] += 1
            since[name] = tag.start()
    like = [name for name, count in opened.items() if count >= _FEWEST_ELEMENTS and closed[name] in (0, count)]
    if not like:
        return []
    name = re.escape(max(like, key=lambda one: (covered[one], opened[one])))
    parts = re.split(rf"(?=<{name}[\s>/])|(?<=</{name}>)", text)
    return [
        TextLine(part.strip(), int(part.startswith("<") and bool(re.match(rf"<{name}[\s>/]", part))))
        for part in parts
        if part.strip()
    ]
