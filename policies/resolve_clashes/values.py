"""Dates, times, amounts and counts in a clause, in English and Spanish, in a form that can be compared. Pure."""

import re
from typing import NamedTuple

from policies.resolve_clashes.terms import WORDS, listed
from proxy.text.fold import stem
from proxy.text.tables import either, patterns
from proxy.text.vocabulary import MONTHS, SHORT_MONTHS, WEEKDAYS, forms
from proxy.text.vocabulary import NUMBERS as WORDS_OF_NUMBERS


class Value(NamedTuple):
    """Something that is one thing at a time: a later one of the same kind, part and unit takes its place."""

    kind: str
    """`date`, `time`, `count`, `money`, `percent`, `place`, or a group of `categories`."""
    part: str
    """What of it: `end` for a return or check-out, `from` and `to` of a journey; empty otherwise."""
    unit: str
    """Of what there are so many; empty where it is not said."""
    value: str
    """The same for equal values."""
    start: int
    """Where it stands in the text it was found in."""
    end: int

    @property
    def slot(self) -> tuple[str, str]:
        return (self.kind, self.unit)


NUMBERS = frozenset({"count", "money", "percent"})
"""Kinds of values that are amounts."""

_NUMBERS = {**WORDS_OF_NUMBERS, "un": 1, "una": 1, "couple": 2, "dozen": 12}
_UNCERTAIN = frozenset({"un", "una", "uno", "once", "one"})
"""Numbers that are mostly something else: they count only in front of a unit that is counted."""
_MONTHS = {**MONTHS, **SHORT_MONTHS}
_UNITS = forms(WORDS["units"])
SLOT_UNITS = frozenset(_UNITS.values())
"""Units of what people order, book and stay."""
_SAID = {
    name: re.compile(pattern)
    for name, pattern in patterns(
        "clashes/values",
        MONTH=either(_MONTHS),
        DAY=either(WEEKDAYS),
        NUMBER=rf"\d{{1,3}}(?: \d{{3}}){{1,4}}\b|\d[\d.,]{{0,14}}\d|\d|{either(_NUMBERS)}",
        NUMERAL=either(_NUMBERS),
        SURE_NUMERAL=either(_NUMBERS.keys() - _UNCERTAIN),
        PERIOD=either(word for word, unit in _UNITS.items() if unit in ("day", "week", "month", "year")),
    ).items()
}
"""How values are said, by their kind (`data/clashes/values.txt`)."""
_EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]+\.[\w.-]*\w")
_NOT_UNITS = frozenset(listed("no units"))
_GROUPED = re.compile(r"([1-9]\d{0,2}(?:(?:,\d{3})+|(?:\.\d{3})+|(?: \d{3})+))([.,]\d+)?")
_NO_GROUPS = str.maketrans("", "", " ,.")
_YEAR = re.compile(r"(?:19|20)\d\d")


def values(clause: str) -> tuple[Value, ...]:
    """The values in a folded clause, in the order of the kinds; what one kind has read no other reads again."""
    found, text = list[Value](), clause
    for cue, read in _READERS:
        for value in read(text) if cue.search(text) else ():
            found.append(value)
            text = f"{text[: value.start]}{'~' * (value.end - value.start)}{text[value.end :]}"
    return tuple(found)


def rates(clause: str) -> tuple[Value, ...]:
    """Return what a folded clause says of how often: `2/1 week` is twice a week, `1/2 year` every other year."""
    found = []
    for each in _SAID["rate"].finditer(clause):
        times = "2" if each["t"] else number(each["n"] or "") or "1"
        every = "2" if each["e"] in ("other", "second") else number(each["e"] or "") or "1"
        said = f"{times}/{every} {_UNITS[each['u']]}"
        found.append(Value("rate", "", "", said, each.start(), each.end()))
    return tuple(found)


def number(word: str) -> str | None:
    """A number in digits or in words, as digits; None for what is none."""
    if word in _NUMBERS:
        return str(_NUMBERS[word])
    grouped = _GROUPED.fullmatch(word)
    digits = grouped[1].translate(_NO_GROUPS) + (grouped[2] or "").replace(",", ".") if grouped else word
    digits = digits.replace(",", ".")
    try:
        return f"{float(digits):g}"
    except ValueError:
        return None


def _emails(text: str) -> list[Value]:
    return [Value("email", "", "", each[0], each.start(), each.end()) for each in _EMAIL.finditer(text)]


def _money(text: str) -> list[Value]:
    found = []
    for match in _SAID["money"].finditer(text):
        amount = number(match["a"] or match["b"] or match["c"])
        if amount is None:
            continue
        times = {"k": 1e3, "thousand": 1e3, "mil": 1e3, "million": 1e6, "millones": 1e6}
        scaled = float(amount) * times.get(match["k"] or match["k2"] or match["k3"] or "", 1)
        start = match.start("c") if match["c"] else match.start()
        found.append(Value("money", _part(text, start), "", f"{scaled:g}", start, match.end()))
    return found


def _percents(text: str) -> list[Value]:
    return [
        Value("percent", "", "", number(match[1]) or match[1], match.start(), match.end())
        for match in _SAID["percent"].finditer(text)
    ]


def _times(text: str) -> list[Value]:
    return [
        Value("time", _part(text, match.start()), "", minutes, match.start(), match.end())
        for match in _SAID["time"].finditer(text)
        if (minutes := _minutes(match)) is not None
    ]


def _minutes(match: re.Match[str]) -> str | None:
    """Minutes from twelve o'clock: whether it is before or after noon is often not said."""
    if match["w4"]:
        return "0"
    hour = number(
        next(
            h for h in (match["h1"], match["h2"], match["h3"], match["h5"], match["h6"], match["h7"], match["h8"]) if h
        ).partition(":")[0]
    )
    if hour is None or "." in hour or int(hour) > 24:
        return None
    minutes = int(match["n2"] or match["n3"] or match["n5"] or match["n7"] or 0)
    shift = {"half past": 30, "quarter past": 15, "quarter to": -15}.get(match["half"] or "", 0)
    shift += {"media": 30, "cuarto": 15}.get(match["f5"] or "", 0) - (15 if match["g5"] else 0)
    return str((int(hour) * 60 + minutes + shift) % 720)


def _dates(text: str) -> list[Value]:
    return [
        Value("date", _part(text, match.start()), "", _day(match), match.start(), match.end())
        for match in _SAID["date"].finditer(text)
        if not _SAID["birth"].search(text)
    ]


def _day(match: re.Match[str]) -> str:
    """`m3d14`, `d14`, `w2`, or the word: a date as far as it was said."""
    if match["iso"]:
        _, month, day = match["iso"].split("-")
        return f"m{int(month)}d{int(day)}"
    day = match["d1"] or match["d2"] or match["d3"] or match["d4"]
    if day:
        month = _MONTHS.get(match["m1"] or match["m2"] or "")
        return f"m{month}d{int(day)}" if month else f"d{int(day)}"
    if match["wd"]:
        return f"w{WEEKDAYS[match['wd']]}"
    return {"hoy": "today", "manana": "tomorrow", "pasado manana": "day after tomorrow"}.get(match["rel"], match["rel"])


def _counts(text: str) -> list[Value]:
    found = []
    for match in _SAID["count"].finditer(text):
        count, following = number(match["n"]), [match["a"], match["b"], match["c"]]
        unit = match["u0"] or _unit(following)
        if not unit and _SAID["of people"].search(text[: match.start()]):
            unit = "people"
        article = match["n"] in ("un", "una") and unit in ("day", "week", "month", "year", "hour", "room", "table")
        uncertain = match["n"] in _UNCERTAIN and unit not in _UNITS.values()
        if count is None or article or uncertain or (not unit and _YEAR.fullmatch(count)):
            continue
        unit, count = _in_bytes(unit, count)
        found.append(Value("count", "", unit, count, match.start(), match.end("n")))
    return found


def _in_bytes(unit: str, count: str) -> tuple[str, str]:
    """Sizes of data in one unit."""
    times = {"gb": 1024.0, "mb": 1.0, "kb": 1 / 1024}.get(unit)
    return (unit, count) if times is None else ("mb", f"{float(count) * times:g}")


def _unit(following: list[str | None]) -> str:
    """What is counted: the first word that is a unit, else the last of the words in front of a function word."""
    if following[0] == "of" and following[1] in ("the", "my", "our", "these", "those"):
        following = following[2:]
    last = ""
    for word in following:
        if word is None or (word in _NOT_UNITS and word != "of"):
            break
        if word in _UNITS and not (word == "of" and following.index(word)):
            return _UNITS[word] if word != "of" or "us" in following else ""
        last = stem(word)
    return last


def _part(text: str, start: int) -> str:
    return "end" if _SAID["end"].search(text[max(0, start - 40) : start]) else ""


_READERS = (
    (re.compile("@"), _emails),
    (_SAID["any money"], _money),
    (_SAID["any percent"], _percents),
    (_SAID["any time"], _times),
    (re.compile(""), _dates),
    (re.compile(""), _counts),
)
"""What stands wherever there is a value of a kind, and what reads these."""
_OF_UNIT = {
    unit: frozenset(stem(word) for word, named in _UNITS.items() if named == unit) | {unit} for unit in SLOT_UNITS
} | {"year": frozenset({"year", "old", "ano", "edad"}), "people": frozenset({"peopl", "person"})}


def unit_terms(value: Value) -> frozenset[str]:
    """The stems of the words that name the unit of a value."""
    return _OF_UNIT.get(value.unit) or frozenset({value.unit, stem(value.unit)})
