"""Read dates, times of day and amounts in English and Spanish: `1.4 million` is `1,400,000`. Pure.

The patterns and words stand in `data/values.txt`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import NamedTuple

from proxy.text.fold import MONTHS, NUMBERS, WEEKDAYS, folded, forms, stem, word_set
from proxy.text.tables import either, patterns, sections

_LONGEST = 60
_TABLE = sections("values")
_UNITS = {
    form: (unit, float(times)) for form, (unit, times) in ((k, v.split()) for k, v in forms(_TABLE["units"]).items())
}
UNITS = frozenset(unit for unit, _ in _UNITS.values())
"""Units of things that people measure, order and book."""
_TIMES = {form: float(times) for form, times in forms(_TABLE["times"]).items()}
_NOT_UNITS = word_set(" ".join(_TABLE["no units"]))
_PATTERNS = patterns(
    "values",
    MONTH=either(MONTHS),
    DAY=either(WEEKDAYS),
    NUMERAL=either(NUMBERS),
    TIMES=either(_TIMES),
    ATTACHED=either(form for form in _UNITS if form.isalpha() and len(form) <= len("lbs")),
)
_DATE, _TIME, _AMOUNT = (re.compile(_PATTERNS[kind]) for kind in ("date", "time", "amount"))
_WORD = re.compile(r"[a-z']+|[%$€£]")
_NUMBER = re.compile(rf"\d+|\b(?:{either(NUMBERS)})\b")
_GROUPED = re.compile(r"(\d{1,3}(?:(?:,\d{3})+|(?:\.\d{3})+|(?: \d{3})+))([.,]\d+)?")
_SHIFTS = {"half past": 30, "y media": 30, "quarter past": 15, "y cuarto": 15, "quarter to": -15, "menos cuarto": -15}
_LAST_DAY = 31
_LAST_HOUR = 24
_HALF_A_DAY = 720
_ROUNDED = 0.05
_EXACT_BELOW = 100_000


class Value(NamedTuple):
    """A date, a time of day, an amount, or one of several names."""

    kind: str
    """`date`, `weekday`, `time`, `amount`, or the name of a group."""
    unit: str
    """The stem of the counted thing, or the name of a known unit; empty where none is named."""
    readings: tuple[float, ...]
    """All numbers that it may be: `68.000` is 68 to some and 68,000 to others."""
    parts: tuple[object, ...]
    """Month, day and year of a date, as far as given; the parts of a version; a name."""
    start: int
    end: int

    @property
    def slot(self) -> tuple[str, str]:
        """Its kind and unit."""
        return self.kind, self.unit

    def differs(self, other: "Value") -> bool:
        """Return whether the two cannot be the same. A doubtful pair can."""
        if self.kind != other.kind or (self.unit and other.unit and self.unit != other.unit):
            return False  # of units, one may be the other, converted
        if not self.readings or not other.readings:
            pairs = zip(self.parts, other.parts, strict=False)
            return any(one != two for one, two in pairs if None not in (one, two))
        return not any(_near(one, two) for one in self.readings for two in other.readings)


@lru_cache(maxsize=8192)
def value(text: str) -> Value | None:
    """Return the value that a text is as a whole; None where it is anything else, or counts unknown things."""
    plain = " ".join(folded(text).split())
    values = find_values(plain) if len(plain) <= _LONGEST else ()
    whole = (each for each in values if (each.start, each.end) == (0, len(plain)))
    return next((each for each in whole if not each.unit or each.unit in UNITS), None)


def find_values(text: str) -> Iterator[Value]:
    """Yield the values in a folded text. Each part of the text is read by one kind only: times, then dates, amounts."""
    for pattern, read in ((_TIME, _time), (_DATE, _date), (_AMOUNT, _amount)):
        for match in pattern.finditer(text):
            found = read(match)
            if found is not None:
                yield found
                text = f"{text[: found.start]}{'~' * (found.end - found.start)}{text[found.end :]}"


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= (_ROUNDED if max(one, other) >= _EXACT_BELOW else 1e-9) * max(one, other)


def _time(match: re.Match[str]) -> Value | None:
    """Return the minutes from twelve o'clock: often nothing says if it is before or after noon."""
    hour, minute, *_ = *(NUMBERS[each] if each in NUMBERS else int(each) for each in _NUMBER.findall(match[0])), 0, 0
    shift = next((minutes for words, minutes in _SHIFTS.items() if words in match[0]), 0)
    if hour > _LAST_HOUR:
        return None
    return Value("time", "", ((60 * hour + minute + shift) % _HALF_A_DAY,), (), *match.span())


def _date(match: re.Match[str]) -> Value:
    words, numbers = _WORD.findall(match[0]), [int(each) for each in re.findall(r"\d+", match[0])]
    weekday = next((WEEKDAYS.get(word, WEEKDAYS.get(word.removesuffix("s"))) for word in words), None)
    if weekday is not None:
        return Value("weekday", "", (), (weekday,), *match.span())
    month = next((MONTHS[word] for word in words if word in MONTHS), None)
    parts: tuple[int | None, ...]
    if "-" in match[0]:
        parts = (numbers[1], numbers[2], numbers[0])
    else:
        day, year = (next((n for n in numbers if (n <= _LAST_DAY) is small), None) for small in (True, False))
        parts = (month, day, year)
    return Value("date", "", (), parts, *match.span())


def _amount(match: re.Match[str]) -> Value | None:
    unit, multiple, size = _unit(match["after"] or "")
    if match["sign"]:
        (unit, multiple), size = _UNITS[match["sign"].strip()], 0
    elif match["people"] and not unit:
        unit = "people"
    number = match["n"]
    if number in _UNCERTAIN and unit not in UNITS:
        return None
    times = prod([multiple, *map(_TIMES.__getitem__, (match["times"] or "").split())])
    start = match.start("sign") if match["sign"] else match.start("n")
    readings = tuple(each * times for each in _readings(number))
    return Value("amount", unit, readings, tuple(number.split(".")), start, match.end() + size)


_UNCERTAIN = frozenset({"un", "una", "uno", "once", "one"})
"""Numbers that are mostly something else: they count only in front of a unit."""


def _unit(after: str) -> tuple[str, float, int]:
    """Return the counted thing, its multiple and the end of its word: a known unit, or what a function word follows."""
    unit, end = "", 0
    for word in _WORD.finditer(after):
        if word[0] in _UNITS:
            return *_UNITS[word[0]], word.end()
        if word[0] in _NOT_UNITS or word[0] in NUMBERS:
            break
        unit, end = stem(word[0]), word.end()
    return unit, 1.0, end


def _readings(number: str) -> Iterator[float]:
    if number in NUMBERS:
        yield NUMBERS[number]
        return
    grouped = _GROUPED.fullmatch(number)
    if grouped:
        yield float(re.sub("[., ]", "", grouped[1]) + (grouped[2] or "").replace(",", "."))
    if len(re.findall("[.,]", number)) <= 1 and " " not in number:
        yield float(number.replace(",", "."))
