"""The values in a sentence, each with its kind: money, times, dates, durations, sizes, versions, counts. Pure."""

import re
from collections.abc import Callable
from math import inf, nan
from typing import NamedTuple

from policies.check_facts.quantities import Amount, Date, differ, value
from proxy.text.fold import folded, stem
from proxy.text.tables import either, patterns, sections
from proxy.text.vocabulary import MONTHS, NUMBERS, WEEKDAYS, forms, units


class Measure(NamedTuple):
    """A value as a sentence tells it."""

    kind: str
    number: float = 0.0
    """Seconds, months, bytes, minutes of the day, or how many of the kind; of a version of three parts no number."""
    bound: str = ""
    """`least`, `most`, `over`, `under` or `about`."""
    per: str = ""
    """For what: `minute`, `user`."""
    nouns: tuple[str, ...] = ()
    """The stems of what is counted, where no unit is told."""
    text: str = ""
    """A date, a version or a code as it is written; of a time of day, `am or pm` where it is not said which."""


_ABOUT = 0.1
"""The part by which a number may be off that is told with `about`."""
_ROUNDED = 0.05
"""The same for large numbers and for sizes, whose units are thousands to some and 1024 to others."""
_LARGE = 100_000.0
_DAY = 24 * 60
_FACTS = sections("facts/units")
_UNITS = units(_FACTS["units"])
MONEY = frozenset(["dollar", "euro", "pound", "peso"])
"""Kinds of values that are prices."""
_PERIODS = forms(_FACTS["periods"])
SAID = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in patterns(
        "facts/values",
        MONTHS=either(MONTHS.keys() - {"may", "march"}),
        NUMERAL=either(NUMBERS.keys() - {"one", "uno"}),
        PERIOD=either(_FACTS["period"][0].split()),
    ).items()
}
"""How values are said, and what stands beside them (`data/facts/values.txt`)."""
_ISO = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_CODE = re.compile(r"\b(?=[\w-]{0,80}[A-Za-z])(?=[\w-]{0,80}\d)[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?\b")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+|\bhttps?://[^\s,;]+[^\s,;.]", re.IGNORECASE)


def measures(text: str) -> tuple[tuple[Measure, ...], str]:
    """The values of a text, in no order, and the text without them."""
    text = SAID["glued"].sub(" ", SAID["half an hour"].sub("30 minutes", text))
    found: list[Measure] = []
    for pattern, read in _READERS:
        rest, at = [], 0
        for each in pattern.finditer(text):
            if each.start() < at:
                continue
            made, end = read(each)
            if made:
                found += made
                rest += [text[at : each.start()], " "]
                at = end
        text = "".join([*rest, text[at:]])
    return tuple(found), text


def _dated(found: re.Match[str]) -> tuple[list[Measure], int]:
    return ([Measure("date", text=found[0])] if isinstance(value(found[0]), Date) else []), found.end()


def _in_month(found: re.Match[str]) -> tuple[list[Measure], int]:
    return [Measure("date", text=found[0])], found.end()


def _in_year(found: re.Match[str]) -> tuple[list[Measure], int]:
    return [Measure("year", float(found["year"]))], found.end()


def _on_weekday(found: re.Match[str]) -> tuple[list[Measure], int]:
    plain = folded(found[0])
    number = WEEKDAYS.get(plain, WEEKDAYS.get(plain.removesuffix("s"), 0.0))
    return [Measure("weekday", number)], found.end()


def _at_clock(found: re.Match[str]) -> tuple[list[Measure], int]:
    if found["named"]:
        return [Measure("clock", 0.0 if folded(found["named"]) in ("midnight", "medianoche") else 720.0)], found.end()
    hour, minute = int(found["hour"] or found["h"]), int(found["minute"] or found["m"] or 0)
    if hour > 24 or minute > 59:
        return [], found.end()
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].lower() == "p" else 0)
    return [_clock(hour, minute, is_known=bool(found["half"]))], found.end()


def _at_hour(found: re.Match[str]) -> tuple[list[Measure], int]:
    hour = int(found["hour"])
    return ([_clock(hour, 0)] if hour <= 24 else []), found.end()


def _clock(hour: int, minute: int, *, is_known: bool = False) -> Measure:
    return Measure("clock", float(hour * 60 + minute) % _DAY, text="" if is_known or hour > 12 else "am or pm")


def _counted(found: re.Match[str]) -> tuple[list[Measure], int]:
    nouns = (found["nouns"] or "").split()
    unit = folded(found["sign"] or found["unit"] or (nouns[0] if nouns else "")).strip()
    known = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")) or _UNITS.get(unit.removesuffix("es"))
    read = value(found["n"])
    if not isinstance(read, Amount):
        return [], found.end()
    if known and nouns:  # of what stands behind a sign or unit nothing is a part of the value
        is_sign = bool(found["sign"])
        end = found.start("nouns") + (0 if is_sign else 1 + len(nouns[0]))
    else:
        end = found.end()
    per = SAID["per"].match(found.string, end)
    counted = tuple(stem(folded(noun)) for noun in nouns) if not known else ()
    kind, times = known or ("number", 1.0)
    number = read.readings[0] * times if read.readings else nan
    bound = next((each for each in ("least", "most", "over", "under", "about") if found[each]), "")
    made = Measure(kind, number, bound, _period(per), counted, found["n"] if kind == "number" else "")
    return [made], per.end() if per else end


def _period(found: re.Match[str] | None) -> str:
    if found is None:
        return ""
    plain = folded(found["slash"] or found["each"] or found["one"])
    return _PERIODS.get(plain) or plain.removesuffix("s")


def _coded(found: re.Match[str]) -> tuple[list[Measure], int]:
    return [Measure("code", text=folded(found[0]))], found.end()


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], tuple[list[Measure], int]]], ...] = (
    (_ADDRESS, _coded),
    (_ISO, _dated),
    (SAID["date"], _dated),
    (SAID["month"], _in_month),
    (SAID["year"], _in_year),
    (SAID["weekday"], _on_weekday),
    (SAID["clock"], _at_clock),
    (SAID["hour"], _at_hour),
    (SAID["number"], _counted),
    (_CODE, _coded),
)


def are_comparable(said: Measure, known: Measure) -> bool:
    """Whether two values are of one kind, per the same, and what is said of no narrower things than what is known."""
    same_per = said.per == known.per or not said.per or not known.per
    same_nouns = not known.nouns or known.nouns[-len(said.nouns) :] == said.nouns or not said.nouns
    is_free = 0.0 in (said.number, known.number) and {said.kind, known.kind} <= MONEY
    return (said.kind == known.kind or is_free) and same_per and same_nouns


def agree(said: Measure, known: Measure) -> bool:
    """Whether what is said of a value holds where another one is known. Both are comparable."""
    if said.kind == "date":
        return not differ(_date(said.text), _date(known.text))
    if said.kind == "code":
        return said.text == known.text
    if said.kind == "clock":
        day = _DAY / 2 if said.text or known.text else _DAY
        return said.number % day == known.number % day
    return _within(said, known) or (said.bound == known.bound == "" and _is_part(said.text, known.text))


def _date(text: str) -> Date:
    read = value(text)
    return read if isinstance(read, Date) else Date(int(MONTHS[folded(text)]), None, None)


def _within(said: Measure, known: Measure) -> bool:
    near = _is_near(said, known)
    if near or said.bound == known.bound or (said.bound, known.bound) == ("most", ""):
        return near
    low, high = _bounds(said)
    least, most = _bounds(known)
    return low <= most and least <= high and not (said.bound == "" and known.bound == "about")


def _bounds(of: Measure) -> tuple[float, float]:
    low = 0.0 if of.bound in ("most", "under") else of.number
    return low, inf if of.bound in ("least", "over") else of.number


def _is_near(one: Measure, other: Measure) -> bool:
    is_rough = one.kind == "size" or max(one.number, other.number) >= _LARGE
    part = _ABOUT if "about" in (one.bound, other.bound) else _ROUNDED if is_rough and one.kind != "time" else 1e-9
    return abs(one.number - other.number) <= part * max(one.number, other.number)


def _is_part(one: str, other: str) -> bool:
    """Whether one version begins with the other: 3.2.1 is a 3.2."""
    first, second = one.split("."), other.split(".")
    return "." in one + other and all(a == b for a, b in zip(first, second, strict=False))
