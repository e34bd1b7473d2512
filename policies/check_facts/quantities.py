"""Amounts and dates as values: `1.4 million` is `1,400,000`, and `May 3` is `3 de mayo`. Pure."""

import re
from functools import lru_cache
from typing import NamedTuple

from proxy.text.fold import folded
from proxy.text.tables import sections
from proxy.text.vocabulary import MONTHS, NUMBERS, UNITS, forms

_LONGEST = 60
_TOLD = sections("facts/amounts")
_AMOUNT = re.compile("".join(_TOLD["amount"]))
_DATES = tuple(map(re.compile, _TOLD["dates"]))
_MAGNITUDES = {word: float(times) for word, times in forms(_TOLD["magnitudes"]).items()}
_SIGNS = {"$": "dollar", "€": "euro", "£": "pound", "%": "percent"}
_ROUNDED = 0.05
_EXACT_BELOW = 100_000


class Date(NamedTuple):
    """A date, as far as it is said."""

    month: int
    day: int | None
    year: int | None


class Amount(NamedTuple):
    """A number and what it counts."""

    readings: tuple[float, ...]
    """What it may be: `68.000` is 68 to some and 68,000 to others. Empty for what is no number but has parts."""
    unit: str
    """Empty where none is said."""
    is_about: bool
    parts: tuple[str, ...]
    """Of a version: `3`, `12`."""


@lru_cache(maxsize=8192)
def value(text: str) -> Date | Amount | None:
    """The date or amount that a text is as a whole; None where it is anything else."""
    plain = " ".join(folded(text).replace("million", " million").split())
    if len(plain) > _LONGEST:
        return None
    return _date(plain) or _amount(plain)


def differ(one: Date | Amount, other: Date | Amount) -> bool:
    """Whether two values cannot be of the same thing. When in doubt they can."""
    if isinstance(one, Date) or isinstance(other, Date):
        return isinstance(one, Date) and isinstance(other, Date) and _dates_differ(one, other)
    if not one.readings or not other.readings:
        return any(left != right for left, right in zip(one.parts, other.parts, strict=False))
    near = any(_near(left, right, one.is_about or other.is_about) for left in one.readings for right in other.readings)
    if one.unit and other.unit and one.unit != other.unit:
        return near  # else one may be the other, converted
    return not near


def _dates_differ(one: Date, other: Date) -> bool:
    return any(left is not None and right is not None and left != right for left, right in zip(one, other, strict=True))


def _near(one: float, other: float, is_about: bool) -> bool:
    """Large numbers are rounded when they are told; small ones are not."""
    allowed = _ROUNDED * max(one, other) if is_about or max(one, other) >= _EXACT_BELOW else 1e-9 * max(one, other)
    return abs(one - other) <= allowed


def _date(text: str) -> Date | None:
    for pattern in _DATES:
        found = pattern.fullmatch(text)
        part = found.groupdict() if found else {}
        month = part.get("m") or ""
        number = int(month) if month.isdecimal() else int(MONTHS.get(month, 0))
        if number:
            return Date(number, int(part["d"]) if part.get("d") else None, int(part["y"]) if part.get("y") else None)
    return None


def _amount(text: str) -> Amount | None:
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    times = _times(found["times"])
    readings = [each * (times or 1) for each in _readings(found["n"])]
    counted = _unit(found["sign"], found["unit"])
    if times is None or counted is None or (not readings and not found["n"][0].isdigit()):
        return None
    unit, each = counted
    return Amount(tuple(n * each for n in readings), unit, found["about"] is not None, tuple(found["n"].split(".")))


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
