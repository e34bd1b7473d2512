"""Whether a JSON text contradicts itself, or the question."""

import re
from collections.abc import Iterator
from typing import Any

from policies.validate_content.content import GOOD, Finding, arguments_of, members, scalar
from proxy.text.json_values import Pairs

_KEY = re.compile(r"(?:^|[_-])(?:id|uuid|code|symbol|number|isbn|sku)$|[a-z](?:Id|ID|Uuid|Code|Symbol|Number)$")
"""Names of members that say which one a record is."""
_COUNTS = frozenset({"count", "num_results", "result_count", "returned", "numResults", "resultCount"})
_SUCCESS = frozenset({"success", "succeeded", "ok"})
"""Names of members that are true where all went well, and what `status` says then."""
_OK = re.compile(r"2\d\d$")
_NO_ERROR = frozenset({"none", "null", "no", "false", "0", "ok", "n/a", "-"})
_CHANGES = re.compile(r"version|revision|date|time|updat|seq|status|state|page|step|index|position|rank|score", re.I)
"""Members by which two records of one id may rightly differ."""


def consistency(value: Pairs | list[Any] | None, arguments: str) -> Finding:
    """1 without a contradiction, a half with one, a third with two; 0 for the record of another id than was asked."""
    if value is None:
        return GOOD
    if _other(value, arguments):
        return Finding(0.0, "it is about another id than was asked for")
    found = [what for item in members(value) for what in _clashes(item)]
    return Finding(1 / (1 + len(found)), found[0]) if found else GOOD


def _clashes(item: Pairs | list[Any]) -> Iterator[str]:
    if not isinstance(item, Pairs):
        yield from _repeats(item)
        return
    known: dict[str, Any] = {}
    for key, value in item:
        if key in known and known[key] != value:
            yield "it gives a member twice with different values"
        known[key] = value
    if _succeeds(known) and _fails(known):
        yield "it reports success and an error"
    lists = [value for value in known.values() if isinstance(value, list)]
    counts = [int(number) for key in _COUNTS if (number := scalar(known.get(key)) or "").isdigit()]
    if len(lists) == 1 and counts and counts[0] < len(lists[0]):
        yield "it has more items than it counts"


def _succeeds(known: dict[str, Any]) -> bool:
    status = scalar(known.get("status")) or ""
    return any(known.get(key) is True for key in _SUCCESS) or status.casefold() in _SUCCESS or bool(_OK.match(status))


def _fails(known: dict[str, Any]) -> bool:
    """Whether there is an error, as a text or as an object or list that says more."""
    for error in (known.get("error"), known.get("errors")):
        if error is True or (isinstance(error, (Pairs, list)) and error):
            return True
        if isinstance(error, str) and error.strip() and error.strip().casefold() not in _NO_ERROR:
            return True
    return False


def _repeats(items: list[Any]) -> Iterator[str]:
    """Records of one list with the same `id` and different values."""
    records = [dict(item) for item in items if isinstance(item, Pairs)]
    known: dict[str, dict[str, Any]] = {}
    for record in records:
        name = scalar(record.get("id"))
        if name is None:
            continue
        first = known.setdefault(name, record)
        if first.keys() == record.keys():
            differing = [key for key in record if record[key] != first[key]]
            if differing and not any(map(_CHANGES.search, differing)):
                yield "it has two records of one id with different values"


def _other(value: Pairs | list[Any], arguments: str) -> bool:
    """Whether it is a record that names another id than the call, under the same name, and nowhere the one asked."""
    if not isinstance(value, Pairs):
        return False
    record, asked = dict(value), arguments_of(arguments)
    for key, wanted in asked.items():
        given, sought = scalar(record.get(key)), scalar(wanted)
        if not _KEY.search(key) or given is None or not sought or given.casefold() == sought.casefold():
            continue
        if not _names(value, sought):
            return True
    return False


def _names(value: Pairs | list[Any], sought: str) -> bool:
    """Whether a text of the value has what was sought in it, such as a new id beside the old one."""
    sought = sought.casefold()
    for item in members(value):
        inner: list[Any] = [each for _, each in item] if isinstance(item, Pairs) else list(item)
        if any(sought in text.casefold() for each in inner if (text := scalar(each)) is not None):
            return True
    return False
