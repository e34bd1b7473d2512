"""Judge a text from outside by four measures that are cheap, and the same for the same text. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from statistics import fmean
from typing import NamedTuple

from proxy.chat import Message
from proxy.compaction.cut_json import cut_off
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.html import is_html, visible
from proxy.text import counted
from proxy.text.bm25 import terms
from proxy.text.json_values import is_json
from proxy.text.language import language
from proxy.text.tables import patterns

MEASURES = ("relevance", "freshness", "accuracy", "completeness")
"""The measures, in the order in which faults are named."""
LARGEST = 1_000_000
"""Characters of a text that are looked at; the end of a longer one is not."""
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in patterns("pages").items()}
"""Phrases in which texts speak of themselves (`data/pages.txt`)."""


class Finding(NamedTuple):
    """A score of one measure, from 0 to 1, and in words the fault."""

    score: float
    fault: str = ""


_GOOD = Finding(1.0)

Verdict = Mapping[str, Finding]
"""The findings by measure; a measure that can tell nothing has none."""


def judge(text: str, asked: str = "") -> dict[str, Finding]:
    """Measure a text, all but its freshness, which depends on when it came. Some 0.3 ms a KB.

    `asked` is the question that it answers; empty for none.
    """
    raw = text[:LARGEST]
    inner = unwrapped(raw)
    verdict = {"accuracy": accuracy(inner), "completeness": _GOOD if len(text) > LARGEST else completeness(raw, inner)}
    relevant = relevance(inner, asked)
    return verdict if relevant is None else {**verdict, "relevance": relevant}


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
_DAY = 24 * HOUR
_ZONES = 14 * HOUR
"""A time without a zone may be off by so much."""
_YEARS = (2000, 2200)
_DATED = 50_000
_MOMENTS = 50


def stated(text: str) -> float | None:
    """Return the newest moment at which a text may have been made by its own words; None where it says none."""
    return _newest("stated", text, without_zone=_ZONES)


def present(message: Message) -> float | None:
    """Return the moment that a message says it is now; None where it says none."""
    return _newest("present", message.text, without_zone=0.0)


def freshness(moment: float, now: float, fresh: float) -> Finding:
    """Return 1 up to an age of `fresh` seconds, then `fresh` / age; `moment` is that at which the text was made."""
    age = now - moment
    if age <= fresh:
        return _GOOD
    unit, name = (_DAY, "day") if age >= 2 * _DAY else (HOUR, "hour") if age >= 2 * HOUR else (60.0, "minute")
    return Finding(fresh / age, f"it says that it was made {counted(round(age / unit), name)} before")


def _newest(phrase: str, text: str, *, without_zone: float) -> float | None:
    """Return the newest moment in such phrases of a text; to one without a zone some seconds are added."""
    matches = islice(_PATTERNS[phrase].finditer(text[:_DATED]), _MOMENTS)
    moments = (_moment(*match.groups(default=""), without_zone=without_zone) for match in matches)
    return max((each for each in moments if each is not None), default=None)


def _moment(day: str, clock: str, seconds: str, zone: str, *, without_zone: float) -> float | None:
    offset = "+00:00" if not zone or zone.isalpha() else zone
    try:
        # without a clock, any time of that day
        moment = datetime.fromisoformat(f"{day}T{clock or '23:59'}:{seconds or '00'}{offset}")
    except ValueError:
        return None
    if not _YEARS[0] <= moment.year <= _YEARS[1]:
        return None
    return moment.timestamp() + (0.0 if zone else without_zone)


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
    asked = _telling(query)
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
_SAYS_SO = 0.8
"""The score of a text that is cut off and says so: the model knows it as well."""
_PRINTED = ("meta=None content=[", "content=[TextContent(")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)


def completeness(raw: str, text: str) -> Finding:
    """Return 1 for a text with an end. `raw` is the text in its envelope."""
    ends = _end(raw, text)
    if ends is None:
        return _GOOD
    return Finding(_SAYS_SO if _PATTERNS["more"].search(raw[-400:]) is not None else _CUT_OFF, ends)


def _end(raw: str, text: str) -> str | None:
    """Return the fault of a text that ends in the middle of something."""
    if raw.startswith(_PRINTED) and not raw.rstrip().endswith((")", "]", "}", "None", "True", "False")):
        return "the result is cut off"
    # an envelope that ends in the middle is there no more once it was taken off
    if any(not is_json(each) and cut_off(each) is not None for each in {raw, text}):
        return "its JSON is cut off"
    if text.lstrip()[:9].lower().startswith(("<!doctype", "<html")) and "</html" not in text[-2000:].lower():
        return "the page is cut off"
    if sum(1 for _ in _FENCE.finditer(text)) % 2:
        return "a block of code is not closed"
    return None


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


def accuracy(text: str) -> Finding:
    """Return the worse of two: an error page in place of content, and damaged characters."""
    text = text[:_READ]
    return min(_error_page(text), _damage(text))


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
