"""Read amounts, dates, days and times of day as values: `1.4 million` is `1,400,000`, `May 3` is `3 de mayo`. Pure."""

import re
from functools import lru_cache
from typing import NamedTuple

from proxy.text.fold import folded
from proxy.text.tables import sections
from proxy.text.vocabulary import MONTHS, NUMBERS, UNITS, WEEKDAYS, forms

_LONGEST = 60
_TABLE = sections("facts/amounts")
_AMOUNT = re.compile("".join(_TABLE["amount"]))
_DATES = tuple(map(re.compile, _TABLE["dates"]))
_CLOCK = re.compile(r"(?P<h>\d{1,2})(?::(?P<m>\d\d))?(?:\s?[ap]\.?m\.?)|(?P<hour>\d{1,2}):(?P<minute>\d\d)")
_MAGNITUDES = {word: float(times) for word, times in forms(_TABLE["magnitudes"]).items()}
_SIGNS = {"$": "dollar", "€": "euro", "£": "pound", "%": "percent"}
_ROUNDED = 0.05
_EXACT_BELOW = 100_000
_HALF_A_DAY = 720


class Date(NamedTuple):
    """A date, as far as it is given."""

    month: int
    day: int | None
    year: int | None


class Amount(NamedTuple):
    """A number and the thing that it counts."""

    readings: tuple[float, ...]
    """All that it may be: `68.000` is 68 to some and 68,000 to others. Empty for a version of several parts."""
    unit: str
    """Empty where none is named; `weekday` and `clock` for these."""
    is_about: bool = False
    parts: tuple[str, ...] = ()
    """Of a version: `3`, `12`."""


@lru_cache(maxsize=8192)
def value(text: str) -> Date | Amount | None:
    """Return the value that a text is as a whole; None where it is anything else."""
    plain = " ".join(folded(text).replace("million", " million").split())
    return None if len(plain) > _LONGEST else _date(plain) or _time(plain) or _amount(plain)


def differ(one: Date | Amount, other: Date | Amount) -> bool:
    """Return whether two values cannot be of the same thing. A doubtful pair can."""
    if isinstance(one, Date) or isinstance(other, Date):
        parts = zip(one, other, strict=True) if isinstance(one, Date) and isinstance(other, Date) else ()
        return any(a is not None and b is not None and a != b for a, b in parts)
    if not one.readings or not other.readings:
        return any(a != b for a, b in zip(one.parts, other.parts, strict=False))
    near = any(_near(a, b, one.is_about or other.is_about) for a in one.readings for b in other.readings)
    if one.unit != other.unit and not {one.unit, other.unit}.isdisjoint(("weekday", "clock")):
        return False
    if one.unit and other.unit and one.unit != other.unit:
        return near  # else one may be the other, converted
    return not near


def _near(one: float, other: float, is_about: bool) -> bool:
    """Return whether two numbers are the same: large ones are rounded, small ones are not."""
    allowed = _ROUNDED * max(one, other) if is_about or max(one, other) >= _EXACT_BELOW else 1e-9 * max(one, other)
    return abs(one - other) <= allowed


def _date(text: str) -> Date | None:
    for pattern in _DATES:
        match = pattern.fullmatch(text)
        part = match.groupdict() if match else {}
        month = part.get("m") or ""
        number = int(month) if month.isdecimal() else int(MONTHS.get(month, 0))
        if number:
            return Date(number, int(part["d"]) if part.get("d") else None, int(part["y"]) if part.get("y") else None)
    return None


def _time(text: str) -> Amount | None:
    day = WEEKDAYS.get(text, WEEKDAYS.get(text.removesuffix("s")))
    if day is not None:
        return Amount((float(day),), "weekday")
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        return None
    minutes = 60 * int(clock["h"] or clock["hour"]) + int(clock["m"] or clock["minute"] or 0)
    return Amount((float(minutes % _HALF_A_DAY),), "clock")


def _amount(text: str) -> Amount | None:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    times = _times(match["times"])
    readings = [each * (times or 1) for each in _readings(match["n"])]
    counted = _unit(match["sign"], match["unit"])
    if times is None or counted is None or (not readings and not match["n"][0].isdigit()):
        return None
    unit, each = counted
    return Amount(tuple(n * each for n in readings), unit, match["about"] is not None, tuple(match["n"].split(".")))


def _times(word: str | None) -> float | None:
    if word is None:
        return 1.0
    return 1e9 if word == "mil millones" else _MAGNITUDES.get(word)


def _unit(sign: str | None, word: str | None) -> tuple[str, float] | None:
    if sign is not None:
        return _SIGNS[sign.strip()], 1.0
    if word is None:
        return "", 1.0
    if word in _MAGNITUDES:
        return "", _MAGNITUDES[word]
    return (_SIGNS[word], 1.0) if word in _SIGNS else UNITS.get(word)


def _readings(number: str) -> list[float]:
    if not number[0].isdigit():
        return [float(NUMBERS[number])] if number in NUMBERS else []
    as_group = re.fullmatch(r"\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3})+", number)
    found = [float(re.sub(r"[.,]", "", number))] if as_group else []
    if len(re.findall(r"[.,]", number)) <= 1:
        found.append(float(number.replace(",", ".")))
    return found
