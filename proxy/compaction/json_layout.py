"""JSON values in few characters: like records share one header, long arrays keep ends and outliers, prose is cut."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.compaction.identifiers import gathered, is_identifier, listed
from proxy.compaction.shortening import Tightness, gap, is_signal, odd
from proxy.text.json_values import Number, Pairs, parsed, quoted

_FEWEST_RECORDS = 2
_DENSE = 0.7
"""Of all objects and all keys together, so many have a value."""


@dataclass(frozen=True, slots=True)
class AlikeObjects:
    """Objects with nearly the same keys."""

    items: Sequence[Pairs]
    keys: tuple[str, ...]
    shared: dict[int, Any]
    """The values that all of them have, by the key's place; only short ones."""
    inner: dict[int, "AlikeObjects"]
    """The members that are objects of one shape themselves, by the key's place."""


def like_records(items: Sequence[Any]) -> AlikeObjects | None:
    """What a sequence of objects has in common, or None if it is none of like objects."""
    if len(items) < _FEWEST_RECORDS or not all(isinstance(item, Pairs) for item in items):
        return None
    members = [dict(item) for item in items]
    keys = tuple(dict.fromkeys(key for item in items for key in item.names))
    present = sum(map(len, members))
    if not keys or present < sum(map(len, items)) or present < _DENSE * len(items) * len(keys):
        return None
    shared: dict[int, Any] = {}
    inner: dict[int, AlikeObjects] = {}
    for place, key in enumerate(keys):
        column = [member[key] for member in members if key in member]
        if len(column) < len(items):
            continue
        within = like_records(column)
        if within is not None:
            inner[place] = within
        elif len(items) > _FEWEST_RECORDS and not isinstance(column[0], (list, Pairs)) and _all_alike(column):
            shared[place] = column[0]
    return AlikeObjects(items, keys, shared, inner)


def _all_alike(column: list[Any]) -> bool:
    first = column[0]
    return all(type(value) is type(first) and value == first for value in column)


def _columns(record: AlikeObjects) -> Iterator[list[str | None]]:
    """The plain values of each key, in the order of the rows."""
    members = [dict(item) for item in record.items]
    for place, key in enumerate(record.keys):
        if place in record.inner:
            yield from _columns(record.inner[place])
        elif place not in record.shared:
            column = [each.get(key) for each in members]
            if not any(isinstance(value, (list, Pairs)) for value in column):
                yield column


_STATES = 3
"""So many rows with an odd value of one key stay."""
_PART = 10
"""And in all this part of the rows that stay."""
_DEEPEST = 40


class JsonLayout:
    """Renders one JSON text within limits."""

    def __init__(self, limits: Tightness, inner: Callable[[str, Tightness], str]) -> None:
        self.limits = limits
        self.inner = inner
        """Shortens a long string that stands in the JSON: it may be a page, a log or a program."""

    def render(self, value: Any, depth: int = 0) -> str:
        """A value, shortened."""
        if isinstance(value, Number):
            return str(value)
        if isinstance(value, str):
            return self.string(value, depth)
        if isinstance(value, Pairs):
            return self._object(value, depth)
        if isinstance(value, list):
            return self._array(value, depth)
        return "null" if value is None else "true" if value else "false"

    def string(self, value: str, depth: int) -> str:
        """A string: whole if it is short, its own form if it is long, its value if it holds JSON."""
        if len(value) <= self.limits.text:
            return quoted(value)
        held = parsed(value) if depth < _DEEPEST else None
        if held is not None:
            return self.render(held, depth + 1)
        return quoted(self.inner(value, self.limits))

    def _object(self, value: Pairs, depth: int) -> str:
        if depth > _DEEPEST:
            return gap(len(value), "member")
        records = like_records([member for _, member in value])
        if records is not None:
            rows = [f"{quoted(key)}:{self._row(records, member, depth)}" for key, member in value]
            return "{" + self._header(records, depth) + " " + ",\n".join(self._some(rows, records)) + "}"
        return "{" + ",".join(f"{quoted(key)}:{self.render(member, depth + 1)}" for key, member in value) + "}"

    def _array(self, value: list[Any], depth: int) -> str:
        if depth > _DEEPEST:
            return gap(len(value), "item")
        records = like_records(value)
        if records is not None:
            rows = [self._row(records, item, depth) for item in value]
            return "[" + self._header(records, depth) + "\n" + ",\n".join(self._some(rows, records)) + "]"
        if all(isinstance(item, Number) for item in value):
            return "[" + ",".join(map(str, _numbers(value, self.limits.numbers))) + "]"
        if all(_is_point(item) for item in value):
            return "[" + ",".join(self._points(value)) + "]"
        if all(isinstance(item, str) for item in value):
            return "[" + ",".join(self._strings(value, depth)) + "]"
        return "[" + ",".join(self._some([self.render(item, depth + 1) for item in value], value)) + "]"

    def _header(self, record: AlikeObjects, depth: int) -> str:
        """The keys of a row's values; a value that all rows share stands here and not in the rows."""
        names = []
        for place, key in enumerate(record.keys):
            if place in record.inner:
                names.append(quoted(key) + self._header(record.inner[place], depth))
            elif place not in record.shared:
                names.append(quoted(key))
        common = [
            f"{quoted(record.keys[place])}:{self.render(value, depth + 1)}" for place, value in record.shared.items()
        ]
        return "(" + ",".join(names) + ("; all " + ",".join(common) if common else "") + ")"

    def _row(self, record: AlikeObjects, item: Pairs, depth: int) -> str:
        """One object's values in the order of the header; nothing stands where it has none."""
        members = dict(item)
        cells = []
        for place, key in enumerate(record.keys):
            if key not in members:
                cells.append("")
            elif place in record.inner:
                cells.append(self._row(record.inner[place], members[key], depth))
            elif place not in record.shared:
                cells.append(self.render(members[key], depth + 1))
        return "[" + ",".join(cells) + "]"

    def _some(self, rows: list[str], items: AlikeObjects | Sequence[Any]) -> list[str]:
        """The first and last rows, of those between such as report an error or are in another state than nearly all
        the others; of the others what names them."""
        most = self.limits.rows
        if len(rows) <= most:
            return rows
        first, last = most * 3 // 4, len(rows) - most // 4
        errors = [place for place in range(first, last) if is_signal(rows[place])][:most]
        states = odd(_columns(items), _STATES) if isinstance(items, AlikeObjects) else ()
        chosen = {*errors, *[place for place in sorted(states) if first <= place < last][: max(1, most // _PART)]}
        between = [rows[place] for place in sorted(chosen)]
        # an identifier stands in front, as a rule; a comma never stands in one
        named = "\n".join(",".join(text.split(",", 2)[:2]) for text in rows[first:last])
        known = self._names(items, first, last) or gathered(named, 2 * self.limits.identifiers)
        return [*rows[:first], *between, gap(last - first - len(between), "more", known), *rows[last:]]

    def _names(self, items: AlikeObjects | Sequence[Any], first: int, last: int) -> str:
        """The first two columns of records that hold identifiers: each key, and the values behind it."""
        if not isinstance(items, AlikeObjects):
            return ""
        columns = [
            key for place, key in enumerate(items.keys) if place not in items.shared and place not in items.inner
        ]
        room, found = 2 * self.limits.identifiers, []
        for place, key in enumerate(columns[:2]):
            values = (str(value) for item in items.items[first:last] for name, value in item if name == key)
            kept = listed((value for value in values if not (place and value.isdigit())), room)
            room -= len(kept)
            found += [f"{key}: {kept}"] if kept else []
        return "; ".join(found)

    def _points(self, value: list[Any]) -> list[str]:
        """The ends of a long series of points: pairs of coordinates, rows of a matrix."""
        first, last = self.limits.numbers * 3 // 4, len(value) - self.limits.numbers // 4
        shown = ["[" + ",".join(map(str, _numbers(item, self.limits.numbers))) + "]" for item in value]
        return shown if first >= last else [*shown[:first], gap(last - first, "more"), *shown[last:]]

    def _strings(self, value: list[str], depth: int) -> list[str]:
        most = self.limits.items
        if len(value) <= most:
            return [self.string(item, depth + 1) for item in value]
        first, last = most * 3 // 4, len(value) - most // 4
        often = Counter(value[first:last])
        between = [item for item in often if is_identifier(item) and any(map(str.isdigit, item))][: 2 * most]
        kept = [self.string(item, depth + 1) for item in (*value[:first], *between)]
        dropped = last - first - len(between)
        return [*kept, gap(dropped, "more"), *(self.string(item, depth + 1) for item in value[last:])]


def _is_point(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(number, Number) for number in item)


def _numbers(value: list[Number], most: int) -> list[str]:
    """The ends of a long series and what stands out between them: its extremes."""
    if len(value) <= most + 4:
        return list(value)
    first, last = most * 3 // 4, len(value) - most // 4
    between = value[first:last]
    size = [_size(number) for number in between]
    extremes = sorted({size.index(min(size)), size.index(max(size))})
    standing = [between[place] for place in extremes]
    return [*value[:first], *standing, gap(len(between) - len(standing), "more"), *value[last:]]


def _size(number: Number) -> float:
    size = float(number)
    return 0.0 if math.isnan(size) else size
