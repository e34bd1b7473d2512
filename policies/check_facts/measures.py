"""The values in a sentence, each with its kind: money, times, dates, durations, sizes, versions, counts. Pure."""

import re
from collections.abc import Callable
from math import inf, nan
from typing import NamedTuple

from policies.check_facts.quantities import Amount, Date, differ, value
from proxy.text.fold import folded, stem
from proxy.text.tables import sections
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
_NUMERAL = "|".join(sorted((word for word in NUMBERS if word not in ("one", "uno")), key=len, reverse=True))
_N = rf"(?:\d+(?:[.,]\d+)*(?:\s?(?:k|thousand|million|billion|mil|millones)\b)?|(?:{_NUMERAL})\b)"
_MONTH = "|".join(sorted((each for each in MONTHS if each not in ("may", "march")), key=len, reverse=True))
_MONTH = rf"(?:(?-i:May|March)|{_MONTH})"
_FACTS = sections("facts/units")
_UNITS = units(_FACTS["units"])
MONEY = frozenset(["dollar", "euro", "pound", "peso"])
"""Kinds of values that are prices."""
_PERIODS = forms(_FACTS["periods"])
_PERIOD = "|".join(_FACTS["period"][0].split())
_STOP = (
    r"(?:per|an?|and|or|to|from|in|on|at|of|for|with|within|until|if|is|are|was|were|has|have|every|each|by|but|the|as"
    r"|after|before|when|por|al|y|o|de|del|en|para|con|si|es|son|el|la|los|las|cada|que|hasta|desde)\b"
)
_BOUND = (
    r"(?:(?P<least>at least|no (?:less|fewer) than|a minimum of|al menos|como mínimo|un mínimo de)"
    r"|(?P<most>up to|at most|no more than|a maximum of|within|hasta|como máximo|un máximo de|en menos de|dentro de)"
    r"|(?P<over>more than|over|above|más de)|(?P<under>less than|fewer than|under|below|menos de)"
    r"|(?P<about>about|around|roughly|approximately|nearly|almost|unos|unas|casi|aproximadamente))\s"
)
_ISO = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_DATE = re.compile(
    rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s|de\s)?{_MONTH}|{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?)"
    r"(?:(?:,\s?|\s)(?:del?\s|of\s)?\d{4})?\b",
    re.IGNORECASE,
)
_IN_MONTH = re.compile(rf"\b{_MONTH}(?:\s(?:de\s|of\s)?\d{{4}})?\b", re.IGNORECASE)
_IN_YEAR = re.compile(r"\b(?:in|en|since|desde|of|de|until|hasta)\s(?P<year>(?:1[5-9]|20)\d\d)\b", re.IGNORECASE)
_WEEKDAY = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?)\b",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"\b(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s?(?P<half>[ap])\.?\s?m\b\.?|\b(?P<h>\d{1,2}):(?P<m>\d\d)\b"
    r"|\b(?P<named>noon|midnight|mediodía|medianoche)\b",
    re.IGNORECASE,
)
_ENDS = r"(?=\s*(?:$|[.,;!]|o['’]clock|h\b|on\b|in\b|until\b|to\b|and\b|de\b|hasta\b|los\b|y\b))"
_AT = re.compile(rf"\b(?:at|until|till|las?)\s(?P<hour>\d{{1,2}}){_ENDS}", re.IGNORECASE)
_NUMBER = re.compile(
    rf"(?:\b{_BOUND})?(?<![\w.,:])(?P<sign>[$€£]\s?)?(?P<n>{_N})(?![\w:]|[.,]\d)"
    rf"(?:\s?(?P<unit>%|°C?|€|\$|£)|(?P<nouns>(?:\s(?!{_STOP})[^\W\d_]+\b){{1,2}}))?",
    re.IGNORECASE,
)
_GLUED = re.compile(r"(?<=\d)(?=(?:[kmgt]i?b|km|kg|min|h|s|m|eur|usd)\b)", re.IGNORECASE)
"""Between a number and its unit: `25MB`."""
_PER = re.compile(
    rf"\s?/\s?(?P<slash>[a-z]+)|\s(?:per|por|cada|each|every)\s(?P<each>[^\W\d_]+)|\s(?:an?|al|a\sla)\s(?P<one>{_PERIOD})\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"\b(?=[\w-]{0,80}[A-Za-z])(?=[\w-]{0,80}\d)[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?\b")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+|\bhttps?://[^\s,;]+[^\s,;.]", re.IGNORECASE)
_HALF_AN_HOUR = re.compile(r"\b(?:half an hour|media hora)\b", re.IGNORECASE)


def measures(text: str) -> tuple[tuple[Measure, ...], str]:
    """The values of a text, in no order, and the text without them."""
    text = _GLUED.sub(" ", _HALF_AN_HOUR.sub("30 minutes", text))
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
    per = _PER.match(found.string, end)
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
    (_DATE, _dated),
    (_IN_MONTH, _in_month),
    (_IN_YEAR, _in_year),
    (_WEEKDAY, _on_weekday),
    (_CLOCK, _at_clock),
    (_AT, _at_hour),
    (_NUMBER, _counted),
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
