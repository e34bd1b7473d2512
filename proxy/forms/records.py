"""Objects of one shape: their keys are shown once, and what all of them share is shown there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.forms.json_values import Pairs, quoted

_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Record:
    """Objects with the same keys in the same order."""

    items: Sequence[Pairs]
    keys: tuple[str, ...]
    shared: dict[int, Any]
    """The values that all of them have, by the key's place; only short ones."""
    inner: dict[int, "Record"]
    """The members that are objects of one shape themselves, by the key's place."""


def like_records(items: Sequence[Any]) -> Record | None:
    """What a sequence of objects has in common, or None if it is none of like objects."""
    if len(items) < _FEWEST or not isinstance(items[0], Pairs) or not items[0]:
        return None
    keys = items[0].names
    if not all(isinstance(item, Pairs) and item.names == keys for item in items):
        return None
    shared: dict[int, Any] = {}
    inner: dict[int, Record] = {}
    for place in range(len(keys)):
        column = [item[place][1] for item in items]
        within = like_records(column)
        if within is not None:
            inner[place] = within
        elif len(items) > _FEWEST and not isinstance(column[0], (list, Pairs)) and _all_alike(column):
            shared[place] = column[0]
    return Record(items, keys, shared, inner)


def _all_alike(column: list[Any]) -> bool:
    first = column[0]
    return all(type(value) is type(first) and value == first for value in column)


def header(record: Record, render: Callable[[Any], str]) -> str:
    """The keys of a row's values; a value that all rows share stands here and not in the rows."""
    names = []
    for place, key in enumerate(record.keys):
        if place in record.inner:
            names.append(quoted(key) + header(record.inner[place], render))
        elif place not in record.shared:
            names.append(quoted(key))
    common = [f"{quoted(record.keys[place])}:{render(value)}" for place, value in record.shared.items()]
    return "(" + ",".join(names) + ("; all " + ",".join(common) if common else "") + ")"


def row(record: Record, item: Pairs, render: Callable[[Any], str]) -> str:
    """One object's values in the order of the header."""
    cells = []
    for place, (_, value) in enumerate(item):
        if place in record.inner:
            cells.append(row(record.inner[place], value, render))
        elif place not in record.shared:
            cells.append(render(value))
    return "[" + ",".join(cells) + "]"
