"""Whether two values of the same thing are not the same. Pure."""

import re

from policies.resolve_clashes.values import Value

_NUMBERED = re.compile(r"(?:m\d+)?d(\d+)")


def differ(old: Value, new: Value) -> bool:
    """Whether two values of a slot are not the same; two dates may still be, see `comparable`."""
    return (
        old.value != new.value and (old.part == new.part or "weak" in (old.part, new.part)) and not _one_day(old, new)
    )


def comparable(old: Value, new: Value) -> bool:
    """Whether two dates are said alike: a weekday may be the same day as a number."""
    if old.kind != "date":
        return True
    mine, theirs = _number_of(old.value), _number_of(new.value)
    return bool(mine) == bool(theirs) and (bool(mine) or (old.value[0] == "w") == (new.value[0] == "w"))


def _one_day(old: Value, new: Value) -> bool:
    """Whether one says the day, and the other the same with its month."""
    day = _number_of(old.value)
    return bool(day) and day == _number_of(new.value) and (old.value[0] == "m") != (new.value[0] == "m")


def _number_of(value: str) -> str:
    return found[1] if (found := _NUMBERED.fullmatch(value)) else ""
