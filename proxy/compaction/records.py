"""Objects of nearly one shape: their keys are shown once, and what all of them share is shown there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.text.json_values import Pairs, quoted

_FEWEST = 2
_DENSE = 0.7
"""Of all objects and all keys together, so many have a value."""


@dataclass(frozen=True, slots=True)
class Record:
    """Objects with nearly the same keys."""

    items: Sequence[Pairs]
    keys: tuple[str, ...]
    shared: dict[int, Any]
    """The values that all of them have, by the key's place; only short ones."""
    inner: dict[int, "Record"]
    """The members that are objects of one shape themselves, by the key's place."""


def like_records(items: Sequence[Any]) -> Record | None:
    """What a sequence of objects has in common, or None if it is none of like objects."""
    if len(items) < _FEWEST or not all(isinstance(item, Pairs) for item in items):
        return None
    members = [dict(item) for item in items]
    keys = tuple(dict.fromkeys(key for item in items for key in item.names))
    present = sum(map(len, members))
    if not keys or present < sum(map(len, items)) or present < _DENSE * len(items) * len(keys):
        return None
    shared: dict[int, Any] = {}
    inner: dict[int, Record] = {}
    for place, key in enumerate(keys):
        column = [member[key] for member in members if key in member]
        if len(column) < len(items):
            continue
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
    """One object's values in the order of the header; nothing stands where it has none."""
    members = dict(item)
    cells = []
    for place, key in enumerate(record.keys):
        if key not in members:
            cells.append("")
        elif place in record.inner:
            cells.append(row(record.inner[place], members[key], render))
        elif place not in record.shared:
            cells.append(render(members[key]))
    return "[" + ",".join(cells) + "]"
