"""Read the values of a clause in a form that can be compared: dates, amounts, places, members of a group. Pure.

The patterns and words stand in `data/clashes`, in English and Spanish.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from proxy.text.fold import stem
from proxy.text.tables import either, patterns, sections
from proxy.text.vocabulary import MONTHS, SHORT_MONTHS, WEEKDAYS, forms
from proxy.text.vocabulary import NUMBERS as NUMERALS

WORDS: Mapping[str, Sequence[str]] = sections("clashes/words")
_ACCENTED = "áàâäéèêëíìîïóòôöúùûüñç’‘´`"
_PLAIN = "aaaaeeeeiiiioooouuuunc''''"
_FOLD = str.maketrans(_ACCENTED, _PLAIN)


def listed(name: str) -> list[str]:
    """Return the words of a section of `data/clashes/words.txt`."""
    return " ".join(WORDS[name]).split()


def fold(text: str) -> str:
    """Return a text of the same length in lower case and without accents."""
    low = text.lower()
    return (low if len(low) == len(text) else text).translate(_FOLD)


class Value(NamedTuple):
    """One value of a slot: a later one of the same kind, part and unit takes its place."""

    kind: str
    """`date`, `time`, `count`, `money`, `email`, `place`, or a section of `data/clashes/groups.txt`."""
    part: str
    """`end` for a return or check-out, `from` and `to` of a journey, `weak` for a group without its word beside it."""
    unit: str
    """The counted thing; empty where none is named."""
    value: str
    """Equal for equal values."""
    start: int
    end: int

    @property
    def slot(self) -> tuple[str, str]:
        """Its kind and unit."""
        return (self.kind, self.unit)


AMOUNTS = frozenset({"count", "money"})
TYPED = AMOUNTS | {"date", "time", "place", "email"}
"""Kinds that are no groups of words."""

_NUMBERS = {**NUMERALS, "un": 1, "una": 1, "couple": 2, "dozen": 12}
_UNCERTAIN = frozenset({"un", "una", "uno", "once", "one"})
"""Numbers that are mostly something else: they count only in front of a unit."""
_MONTHS = {**MONTHS, **SHORT_MONTHS}
_UNITS = forms(WORDS["units"])
BOOKED = frozenset(_UNITS.values())
"""Units of things that people order and book."""
_PATTERNS = {
    name: re.compile(pattern)
    for name, pattern in patterns(
        "clashes/values",
        MONTH=either(_MONTHS),
        DAY=either(WEEKDAYS),
        NUMBER=rf"\d{{1,3}}(?: \d{{3}}){{1,4}}\b|\d[\d.,]{{0,14}}\d|\d|{either(_NUMBERS)}",
        NUMERAL=either(_NUMBERS),
        SURE_NUMERAL=either(_NUMBERS.keys() - _UNCERTAIN),
    ).items()
}
_NOT_UNITS = frozenset(listed("no units"))
_GROUPED = re.compile(r"([1-9]\d{0,2}(?:(?:,\d{3})+|(?:\.\d{3})+|(?: \d{3})+))([.,]\d+)?")
_NO_GROUPS = str.maketrans("", "", " ,.")
_YEAR = re.compile(r"(?:19|20)\d\d")
_THOUSANDS = {"k": 1e3, "thousand": 1e3, "mil": 1e3, "million": 1e6, "millones": 1e6}


def read_values(folded: str, raw: str) -> tuple[Value, ...]:
    """Return the values of a clause, given folded and as it is written. A text is read by one kind only."""
    values, text = list[Value](), folded
    for read in (_emails, _money, _times, _dates, _counts):
        for value in [*read(text)]:
            values.append(value)
            text = f"{text[: value.start]}{'~' * (value.end - value.start)}{text[value.end :]}"
    return (*values, *_members(folded), *_places(raw))


def unit_terms(value: Value) -> frozenset[str]:
    """Return the stems of the words that name the unit of a value."""
    return _OF_UNIT.get(value.unit) or frozenset({value.unit, stem(value.unit)})


_OF_UNIT = {
    unit: frozenset(stem(word) for word, named in _UNITS.items() if named == unit) | {unit} for unit in BOOKED
} | {"year": frozenset({"year", "old", "ano", "edad"}), "people": frozenset({"peopl", "person"})}


def number(word: str) -> str | None:
    """Return a number in digits or words as digits; None for anything else."""
    if word in _NUMBERS:
        return str(_NUMBERS[word])
    grouped = _GROUPED.fullmatch(word)
    digits = grouped[1].translate(_NO_GROUPS) + (grouped[2] or "") if grouped else word
    try:
        return f"{float(digits.replace(',', '.')):g}"
    except ValueError:
        return None


def _emails(text: str) -> Iterator[Value]:
    for match in _PATTERNS["email"].finditer(text):
        yield Value("email", "", "", match[0], *match.span())


def _money(text: str) -> Iterator[Value]:
    for match in _PATTERNS["money"].finditer(text):
        amount = number(match["a"] or match["b"] or match["c"])
        if amount is None:
            continue
        scaled = float(amount) * _THOUSANDS.get(match["k"] or match["k2"] or match["k3"] or "", 1)
        start = match.start("c") if match["c"] else match.start()
        yield Value("money", _part(text, start), "", f"{scaled:g}", start, match.end())


def _times(text: str) -> Iterator[Value]:
    for match in _PATTERNS["time"].finditer(text):
        minutes = _minutes(match)
        if minutes is not None:
            yield Value("time", _part(text, match.start()), "", minutes, *match.span())


def _minutes(match: re.Match[str]) -> str | None:
    """Return the minutes from twelve o'clock: often nothing says if it is before or after noon."""
    if match["w4"]:
        return "0"
    named = next(filter(None, (match[f"h{form}"] for form in (1, 2, 3, 5, 6, 7, 8))))
    hour = number(named.partition(":")[0])
    if hour is None or "." in hour or int(hour) > 24:
        return None
    minutes = int(match["n2"] or match["n3"] or match["n5"] or match["n7"] or 0)
    shift = {"half past": 30, "quarter past": 15, "quarter to": -15}.get(match["half"] or "", 0)
    shift += {"media": 30, "cuarto": 15}.get(match["f5"] or "", 0) - (15 if match["g5"] else 0)
    return str((int(hour) * 60 + minutes + shift) % 720)


def _dates(text: str) -> Iterator[Value]:
    for match in _PATTERNS["date"].finditer(text):
        yield Value("date", _part(text, match.start()), "", _day(match), *match.span())


def _day(match: re.Match[str]) -> str:
    """Return a date as far as it is given: `m3d14`, `d14`, `w2`, or the word."""
    if match["iso"]:
        _, month, day = match["iso"].split("-")
        return f"m{int(month)}d{int(day)}"
    day = match["d1"] or match["d2"] or match["d3"] or match["d4"]
    if day:
        named = _MONTHS.get(match["m1"] or match["m2"] or "")
        return f"m{named}d{int(day)}" if named else f"d{int(day)}"
    if match["wd"]:
        return f"w{WEEKDAYS[match['wd']]}"
    return {"hoy": "today", "manana": "tomorrow", "pasado manana": "day after tomorrow"}.get(match["rel"], match["rel"])


def _counts(text: str) -> Iterator[Value]:
    for match in _PATTERNS["count"].finditer(text):
        count = number(match["n"])
        unit = "percent" if match["pc"] else match["u0"] or _unit([match["a"], match["b"], match["c"]])
        if not unit and _PATTERNS["of people"].search(text[: match.start()]):
            unit = "people"
        is_uncertain = match["n"] in _UNCERTAIN and unit not in BOOKED
        if count is None or is_uncertain or (not unit and _YEAR.fullmatch(count)):
            continue
        yield Value("count", "", unit, count, match.start(), match.end("n"))


def _unit(following: list[str | None]) -> str:
    """Return the counted thing: the first word that is a unit, else the last one in front of a function word."""
    last = ""
    for word in following:
        if word is None or word in _NOT_UNITS:
            break
        if word in _UNITS:
            return _UNITS[word]
        last = stem(word)
    return last


def _part(text: str, start: int) -> str:
    return "end" if _PATTERNS["end"].search(text[max(0, start - 40) : start]) else ""


# --- groups ---

_WORD = re.compile(r"[a-z0-9]+")
_ANSWER = 6
"""Words of a clause that may be an answer and no more."""


class _Group(NamedTuple):
    """Words of which one holds at a time."""

    kind: str
    pattern: re.Pattern[str]
    members: Mapping[str, str]
    """The member that each name stands for."""
    beside: re.Pattern[str] | None
    """Words of which one must stand beside a name, which else means something else."""


def _group(kind: str, lines: Sequence[str]) -> _Group:
    members, *more = lines
    names = {name.strip(): member.split(",")[0].strip() for member in members.split("|") for name in member.split(",")}
    named = either(name.replace("-", "[- ]") for name in names)
    beside = re.compile(rf"(?<![a-z0-9])(?:{more[0].removeprefix('~ ')})") if more else None
    plain = {name.replace("\\", "").replace("-", " "): member for name, member in names.items()}
    return _Group(kind, re.compile(rf"(?<![\w+#])(?:{named})(?![\w+#])"), plain, beside)


_GROUPS = tuple(_group(kind, lines) for kind, lines in sections("clashes/groups").items())
_BY_WORD: dict[str, set[int]] = defaultdict(set)
"""The places of the groups with a name that begins with a word."""
for _at, _each in enumerate(_GROUPS):
    for _name in _each.members:
        _BY_WORD[_WORD.findall(_name)[0]].add(_at)


def _members(clause: str) -> Iterator[Value]:
    """Yield the members of groups that a clause names."""
    words = _WORD.findall(clause)
    is_short = len(words) <= _ANSWER
    for group in [_GROUPS[at] for at in sorted({at for word in words for at in _BY_WORD.get(word, ())})]:
        for match in group.pattern.finditer(clause):
            within = group.beside and group.beside.search(match[0], 1)
            rest = clause[: match.start()] + "~" + clause[match.end() :]
            is_weak = group.beside is not None and within is None and group.beside.search(rest) is None
            if is_weak and not is_short:
                break
            # of `budget hotels` the hotels are the subject
            end = match.start() + within.start() if within else match.end()
            member = group.members[match[0].replace("-", " ")]
            yield Value(group.kind, "weak" if is_weak else "", "", member, match.start(), end)


# --- places ---

_PLACE = re.compile(
    r"\b(?P<p>from|to|in|around|near|for|of|about|desde|hacia|en|a)\s+(?P<x>(?:[A-ZÁÉÍÓÚÑ][\w'’-]*\.?)"
    r"(?:\s+(?:[A-ZÁÉÍÓÚÑ][\w'’-]*|de|del|la)(?=\s|[,.;!?]|$))*)"
)
_NO_PLACE = re.compile("".join(WORDS["no places"]))
_DIRECTIONS = {"from": "from", "desde": "from", "to": "to", "hacia": "to", "a": "to"}


def _places(text: str) -> Iterator[Value]:
    """Yield the capitalised names behind a preposition of place."""
    for match in _PLACE.finditer(text):
        name = fold(match["x"]).strip(" .,'-")
        if name and not _NO_PLACE.search(name) and not any(group.pattern.fullmatch(name) for group in _GROUPS):
            yield Value("place", _DIRECTIONS.get(match["p"], "in"), "", name, *match.span("x"))
