"""Judge a text from outside by four measures that are cheap, and the same for the same text. Pure."""

import re
from calendar import monthrange
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from statistics import fmean
from typing import Any, NamedTuple

from proxy.chat import Message
from proxy.compaction.cut_json import cut_off
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.html import is_html, visible
from proxy.text import counted
from proxy.text.bm25 import terms
from proxy.text.glossary import english
from proxy.text.json_values import Pairs, parsed
from proxy.text.language import language
from proxy.text.tables import patterns

MEASURES = ("relevance", "freshness", "accuracy", "completeness")
"""The measures, in the order in which faults are named."""
LARGEST = 2_000_000
"""Characters of a text that are looked at."""
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in patterns("pages").items()}
"""Phrases in which texts speak of themselves (`data/pages.txt`)."""


class Finding(NamedTuple):
    """A score of one measure, from 0 to 1, and in words the fault."""

    score: float
    fault: str = ""


_GOOD = Finding(1.0)

Verdict = Mapping[str, Finding]
"""The findings by measure; a measure that can tell nothing has none."""


def judge(text: str, asked: str = "", required: tuple[str, ...] = ()) -> dict[str, Finding]:
    """Measure a text, all but its freshness, which depends on when it came. Some 0.3 ms a KB.

    `asked` is the question that it answers, empty for none; `required` are the members that its tool promises.
    """
    raw = text[:LARGEST]
    text = unwrapped(raw)
    value = parsed(text)
    found = {
        "relevance": relevance(text, asked),
        "accuracy": accuracy(text, data=value is not None),
        "completeness": completeness(raw, text, value, required),
    }
    return {measure: each for measure, each in found.items() if each is not None}


def overall(verdict: Verdict) -> float:
    """Return the mean of the scores that there are; 1 where there is none."""
    return fmean([each.score for each in verdict.values()] or [1.0])


def fault(verdict: Verdict, least: Mapping[str, float], least_overall: float) -> str:
    """Return the measures below their thresholds, in words; empty for good content."""
    below = [(name, verdict[name]) for name in MEASURES if name in verdict and verdict[name].score < least[name]]
    if below:
        return "; ".join(f"{each.fault} ({name} {each.score:.2f})" for name, each in below)
    whole = overall(verdict)
    return f"its overall quality is {whole:.2f}" if whole < least_overall else ""


HOUR = 3600.0
_ZONES = 14 * HOUR
"""A time without a zone may be off by so much."""
_YEARS = (2000, 2200)
_DATED = 50_000
_MOMENTS = 50


def stated(text: str) -> float | None:
    """Return the newest moment at which a text may have been made by its own words; None where it says none."""
    return max((moment + (0.0 if exact else _ZONES) for moment, exact in _moments("stated", text)), default=None)


def present(message: Message) -> float | None:
    """Return the moment that a message says it is now; None where it says none."""
    return max((moment for moment, _ in _moments("present", message.text)), default=None)


def freshness(moment: float, now: float | None, fresh: float) -> Finding | None:
    """Return 1 up to an age of `fresh` seconds, then `fresh` / age; None where nobody knows what time it is.

    `moment` is that at which the text says it was made.
    """
    if now is None:
        return None
    age = now - moment
    hours = age / HOUR
    words = (
        f"{hours / 24:.0f} days"
        if hours >= 48
        else f"{hours:.0f} hours"
        if hours >= 2
        else counted(round(age / 60), "minute")
    )
    return _GOOD if age <= fresh else Finding(fresh / age, f"it says that it was made {words} before")


def _moments(pattern: str, text: str) -> list[tuple[float, bool]]:
    """Return the moments that a text names in such a phrase, each with True if its zone is known."""
    matches = islice(_PATTERNS[pattern].finditer(text[:_DATED]), _MOMENTS)
    moments = (_moment([part or "" for part in match.groups()]) for match in matches)
    return [moment for moment in moments if moment is not None]


def _moment(parts: list[str]) -> tuple[float, bool] | None:
    day, clock, seconds, zone = parts[:4] if parts[0] else parts[4:]
    if not clock:
        clock, seconds = "23:59", "59"  # any time of that day
    offset = "+00:00" if not zone or zone.isalpha() else zone
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}:{seconds or '00'}{offset}")
    except ValueError:
        return None
    return (moment.timestamp(), bool(zone)) if _YEARS[0] <= moment.year <= _YEARS[1] else None


_READ_FOR_WORDS = 20_000
_FEWEST = 40
"""Different terms of a text that is long enough to judge; an id or a number need not repeat the question."""
_ASKED = 4
"""Different terms of a question that says enough."""
_QUERY = 4000


def relevance(text: str, query: str) -> Finding | None:
    """Return 1 - 0.3^n, where n counts the different terms of the question that stand in the text: 0, 0.7, 0.91, 0.97.

    So one term is enough for 0.7: a text that answers a question may share only one, but hardly any shares none. None
    for a short text or question, or one that is in another language than the text.
    """
    query = query[:_QUERY]
    asked = _telling(f"{query} {english(query) or ''}")
    if len(asked) < _ASKED:
        return None
    present_terms = _telling(text[:_READ_FOR_WORDS])
    if len(present_terms) < _FEWEST:
        return None
    hits = len(asked & present_terms)
    if not hits:
        # both may be about the same in different languages, or the text sets no spaces
        theirs = language(text)
        if theirs is None or language(query) not in (None, theirs):
            return None
    return Finding(round(1 - 0.3**hits, 6), "" if hits else "it shares no words with what asked for it")


def _telling(text: str) -> set[str]:
    return {term for term in terms(text) if len(term) > 2}


_CUT_OFF = 0.4
"""The score of a text that ends in the middle without a word of it."""
_EMPTY = 0.6
"""The score of nothing: often the answer, such as of a search that finds none."""
_SAYS_SO = 0.8
"""The score of a text that says itself that there is more: the model knows it as well."""

_PRINTED = ("meta=None content=[", "content=[TextContent(")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_NOTHING = frozenset({"", "[]", "{}", "null", "none", '""', "()", "n/a", "undefined"})
_JSON = 1_000_000
"""Characters of JSON that are gone through for its end."""


def completeness(raw: str, text: str, value: Pairs | list[Any] | None, required: tuple[str, ...]) -> Finding:
    """Return the worst of three scores. `raw` is the text in its envelope, `value` its JSON."""
    if text.strip().lower() in _NOTHING:
        return Finding(_EMPTY, "it is empty")
    if (ends := _end(raw, text, value)) is not None:
        says_so = _PATTERNS["more"].search(raw[-400:]) is not None
        return Finding(_SAYS_SO if says_so else _CUT_OFF, ends)
    if _PATTERNS["more"].search(text[-400:]) is not None:
        return Finding(_SAYS_SO, "it says that there is more")
    missing = _missing(value, required)
    if missing:
        return Finding(1 - len(missing) / len(required), f"{len(missing)} of the {len(required)} members are missing")
    return _GOOD


def _end(raw: str, text: str, value: Pairs | list[Any] | None) -> str | None:
    """Return the fault of a text that ends in the middle of something."""
    if raw.startswith(_PRINTED) and not raw.rstrip().endswith((")", "]", "}", "None", "True", "False")):
        return "the result is cut off"
    if value is not None:
        return None
    # an envelope that ends in the middle is there no more once it was taken off
    if any(each[:1] in "{[" and cut_off(each) is not None for each in {raw[:_JSON], text[:_JSON]} if each):
        return "its JSON is cut off"
    if text.lstrip()[:9].lower().startswith(("<!doctype", "<html")) and "</html" not in text[-2000:].lower():
        return "the page is cut off"
    if sum(1 for _ in _FENCE.finditer(text)) % 2:
        return "a block of code is not closed"
    return None


def _missing(value: Pairs | list[Any] | None, required: tuple[str, ...]) -> list[str]:
    if not required or not isinstance(value, Pairs):
        return []
    names = set(value.names)
    # an error is another answer
    return [] if "error" in names else [name for name in required if name not in names]


_READ = 100_000
"""Characters that are read of a text."""

_DAMAGED = re.compile(
    # UTF-8 that was read as Latin-1 or Windows-1252, what could not be read at all, and control characters
    "Ã[\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2018-\u201e\u2020-\u2022\u2026\u2030"
    "\u2039\u203a\u20ac\u2122]|Â[\u00a0-\u00bf]|â€[\u0080-\u00bf\u0153\u02dc\u2018-\u201e\u2020-\u2022\u2026\u2122\u2013\u2014]|"
    "ï»¿|ðŸ|\ufffd+|[\x00-\x08\x0e-\x1a\x1c-\x1f]+"
)
_WORD = re.compile(r"\S+")
_FEW = 3
"""So much damage may be the subject of the text."""
_WEIGHT = 10
"""One damaged word in a hundred makes 0.9."""

_ERROR_PAGE = 3000
"""Characters that the visible text of an error page has at most."""

_ISO = re.compile(
    r"(?<![\w.-])(1[89]\d\d|2[01]\d\d)-(0[1-9]|1[0-2])-([0-3]\d)(?![\w-]|\.\d)(?=$|[^\d])|(?<![\w.-])"
    r"(1[89]\d\d|2[01]\d\d)-(0[1-9]|1[0-2])-([0-3]\d)(?=T\d\d:)"
)
_BROKEN = re.compile(r'[:\[,]\s*(?:NaN|-?Infinity|"(?:NaN|-?Infinity|undefined|\[object Object\])")\s*[,\]}]')
_NUMBER = re.compile(r"[:\[,]\s*-?\d")


def accuracy(text: str, *, data: bool) -> Finding:
    """Return the worst of the three; `data` says that the text is JSON."""
    text = text[:_READ]
    return min(_error_page(text), _damage(text), _statements(text, data=data))


def _error_page(text: str) -> Finding:
    # of a web server, instead of a page; a tool's own error is an honest answer
    head = text[:20_000]
    if "<" in head[:200] and _PATTERNS["error title"].search(head) and len(visible(head)) < _ERROR_PAGE:
        return Finding(0.0, "it is an error page of a web server")
    if len(text) < _ERROR_PAGE or (is_html(head) and len(visible(head)) < _ERROR_PAGE):
        shown = _PATTERNS["robots"].search(text)
        if shown is not None and len(text) < 10 * _ERROR_PAGE:
            return Finding(0.0, "it is a page that keeps robots out")
    return _GOOD


def _damage(text: str) -> Finding:
    if text.isascii() and text.isprintable():
        return _GOOD
    damaged = sum(1 for _ in _DAMAGED.finditer(text))
    if damaged < _FEW:
        return _GOOD
    words = sum(1 for _ in _WORD.finditer(text))
    return Finding(max(0.0, 1 - _WEIGHT * damaged / max(words, 1)), "characters of it are damaged")


def _statements(text: str, *, data: bool) -> Finding:
    dates = [tuple(int(part) for part in found.groups() if part is not None) for found in _ISO.finditer(text)]
    impossible = sum(not 1 <= day <= monthrange(year, month)[1] for year, month, day in dates)
    broken = sum(1 for _ in _BROKEN.finditer(text)) if data else 0
    if not impossible and not broken:
        return _GOOD
    fault = (
        "it has a date that does not exist" if impossible else "it has NaN or an infinite number in place of a value"
    )
    numbers = sum(1 for _ in _NUMBER.finditer(text)) if broken else 0
    return Finding(1 - (impossible + broken) / (len(dates) + numbers + broken), fault)
