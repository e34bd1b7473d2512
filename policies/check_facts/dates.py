"""When something was, as far as a text says it: years, months, days, and the bounds between which it lies. Pure."""

import re
from typing import NamedTuple

from proxy.text.fold import folded, words
from proxy.text.vocabulary import MONTHS

_LAST = 9999
_Y = r"1[0-9]{3}|20[0-9]{2}"
_MONTH = "|".join(sorted((each for each in MONTHS if each not in ("may", "march")), key=len, reverse=True))
_MONTH = rf"(?:(?-i:May|March)|{_MONTH})"
_YEARS = re.compile(
    rf"(?P<before>\b(?:before|prior to|until|till|by|earlier than|antes de|hasta)\s(?:the\s|the\syear\s)?(?P<b>{_Y})\b)"
    rf"|(?P<after>\b(?:after|since|later than|following|después de|desde)\s(?:the\s|the\syear\s)?(?P<a>{_Y})\b)"
    rf"|(?:(?P<lasts>from|de)\s|(?:between|in|entre)\s)?\b(?P<from>{_Y})\s?(?:to|until|through|and|[-–—]|a|hasta|y)\s?(?P<to>{_Y})\b"
    rf"|\b(?P<century>[1-9]\d?)(?:st|nd|rd|th)[- ]century\b"
    rf"|\b(?P<y>{_Y})(?P<decade>['’]?s)?\b",
    re.IGNORECASE,
)
_MONTHS = re.compile(
    rf"\b(?:(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s|de\s)?)?(?P<m>{_MONTH})\b"
    r"(?:\s(?:the\s)?(?P<n>\d{1,2})(?:st|nd|rd|th)?\b(?!:))?",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_TITLE_YEAR = re.compile(r"\((?:19|20)\d\d\s+\w+\)")
"""`(2005 film)` behind a title tells which one is meant, not when."""
_LIFE = re.compile(
    r"\((?P<born>[^()–—-]*\d{4})\s?[-–—]\s?(?P<died>[^()]*\d{4})\)|\((?:[^()]*;\s)?born\b(?P<alive>[^()]*)\)"
)
_REST = r"(?P<rest>[^();]{0,60})"
_BORN = re.compile(rf"\b(?:born|nació|nacid[oa])\b{_REST}", re.IGNORECASE)
_DIED = re.compile(
    r"\b(?:died|(?:is|was) (?:dead|deceased|killed|murdered)|passed away|lost (?:his|her) life|murió|falleció)\b"
    rf"{_REST}",
    re.IGNORECASE,
)
_FURTHER = re.compile(r"\b(?:and|who|which|died|born|moved|y|que)\b")
_LIVES = re.compile(
    r"\b(?:is|are) (?:(?:still|currently) )?(?:alive|living)\b|\b(?:está|sigue) viv[oa]\b", re.IGNORECASE
)


class When(NamedTuple):
    """When something was, as far as it is said."""

    years: frozenset[tuple[int, int]] = frozenset()
    """The first and last year that it may have been: `1986` is (1986, 1986), `before 1986` is (0, 1986)."""
    months: frozenset[str] = frozenset()
    days: frozenset[tuple[str, int]] = frozenset()
    """Months with their days."""
    spans: frozenset[tuple[int, int]] = frozenset()
    """From which year to which it lasted."""


NEVER_SAID = When()


class Life(NamedTuple):
    """Birth and death, as far as they are told."""

    born: When
    died: When
    is_alive: bool | None
    """None where it is not said."""


def when(text: str) -> When:
    """The times in a text."""
    has_month = not MONTHS.keys().isdisjoint(words(text))
    if not has_month and not _DIGIT.search(text):
        return NEVER_SAID
    text = (_TITLE_YEAR.sub(" ", text) if "(" in text else text).replace(", ", " ")
    found_years = list(_YEARS.finditer(text))
    months, days = set[str](), set[tuple[str, int]]()
    for found in _MONTHS.finditer(text) if has_month else ():
        month = MONTHS[folded(found["m"])]
        months.add(month)
        day = int(found["d"] or found["n"] or 0)
        if 0 < day <= 31:
            days.add((month, day))
    years = frozenset(map(_span, found_years))
    spans = frozenset(_span(found) for found in found_years if found["from"] and found["lasts"])
    return When(years, frozenset(months), frozenset(days), spans)


def _span(found: re.Match[str]) -> tuple[int, int]:
    if found["before"]:
        return 0, int(found["b"])
    if found["after"]:
        return int(found["a"]), _LAST
    if found["from"]:
        return int(found["from"]), int(found["to"])
    if found["century"]:
        return int(found["century"]) * 100 - 100, int(found["century"]) * 100
    year = int(found["y"])
    return (year, year + (99 if year % 100 == 0 else 9)) if found["decade"] else (year, year)


def apart(one: When, other: When) -> bool:
    """Whether two times cannot be the same. What only one of them says does not count."""
    if one.years and other.years and not any(a <= d and c <= b for a, b in one.years for c, d in other.years):
        return True
    if one.spans and other.spans and not one.spans & other.spans:
        return True
    if one.days and other.days and not one.days & other.days:
        return True
    return bool(one.months and other.months) and not one.months & other.months


def life(text: str) -> Life:
    """What a text says of its subject's birth and death."""
    span = _LIFE.search(text) if "(" in text else None
    if span:
        return Life(when(span["alive"] or span["born"] or ""), when(span["died"] or ""), not span["died"])
    died = _DIED.search(text)
    lives = False if died else (_LIVES.search(text) is not None or None)
    return Life(_behind(_BORN.search(text)), _behind(died), lives)


def _behind(found: re.Match[str] | None) -> When:
    """The times in what follows a verb, up to the next thing that is told."""
    return when(_FURTHER.split(found["rest"])[0]) if found else NEVER_SAID
