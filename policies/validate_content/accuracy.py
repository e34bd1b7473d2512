"""How much of a text can be right: its characters, its dates and numbers, and whether it is the page at all.

Only what is wrong in itself is seen here: a date that the calendar has not got, not a date that is another one's.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import date

from policies.validate_content.content import GOOD, Finding
from proxy.compaction.html import is_html, visible
from proxy.text.language import language
from proxy.text.vocabulary import MONTHS, SHORT_MONTHS, WEEKDAYS

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
"""So much damage may be what the text is about."""
_WEIGHT = 10
"""One damaged word in a hundred makes 0.9."""

_SHAPED = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[.,;:!?)\"'”’]*")
_SCANNED = re.compile(r"[A-Za-z]*[a-z][01358|!~^§¬][a-z]\S*")
_PROSE = 0.6
"""The share of plain words in what can be a scanned page: code, logs and data have fewer."""
_PAGE = 30
"""Words of a text that can be one."""

_ERROR_TITLE = re.compile(
    r"<(?:title|h1)[^>]{0,200}>\s*(?:(?:error\s*)?(?:4\d\d|5\d\d)\b|access denied|page not found|just a moment|"
    r"attention required|forbidden|bad gateway|service unavailable|gateway time-?out|internal server error)",
    re.IGNORECASE,
)
_ERROR_WORDS = re.compile(
    r"(?:verify (?:that )?you are (?:a )?human|enable javascript (?:and cookies )?to (?:continue|run this app)|"
    r"checking your browser before|unusual traffic from your|complete the captcha|access to this page has been denied)",
    re.IGNORECASE,
)
_ERROR_PAGE = 3000
"""Characters that the visible text of an error page has at most."""

_MONTHS = {**MONTHS, **SHORT_MONTHS}
_SHORT_DAYS = {day[:3]: number for day, number in WEEKDAYS.items() if day.endswith("day")}
_WEEKDAYS = {**WEEKDAYS, **_SHORT_DAYS, "miércoles": 2, "sábado": 5}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY_OF_WEEK = "|".join(sorted(_WEEKDAYS, key=len, reverse=True))
_ISO = re.compile(
    r"(?<![\w.-])(1[89]\d\d|2[01]\d\d)-(0[1-9]|1[0-2])-([0-3]\d)(?![\w-]|\.\d)(?=$|[^\d])|(?<![\w.-])"
    r"(1[89]\d\d|2[01]\d\d)-(0[1-9]|1[0-2])-([0-3]\d)(?=T\d\d:)"
)
_NAMED = re.compile(
    rf"\b({_DAY_OF_WEEK})\.?,?\s+(?:(?P<m1>{_MONTH})\.?\s+(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y1>\d{{4}})|"
    rf"(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:de\s+)?(?P<m2>{_MONTH})\.?,?\s+(?:de\s+)?(?P<y2>\d{{4}})|"
    r"(?P<y3>\d{4})-(?P<m3>\d{2})-(?P<d3>\d{2}))\b",
    re.IGNORECASE,
)
_SUM = re.compile(
    r"(?<![\w.,)*/+^×-])(?<![*/+^×x-] )(\d{1,9}(?:\.\d{1,4})?) ?([+*×x-]) ?(\d{1,9}(?:\.\d{1,4})?) ?= ?"
    r"(\d{1,18}(?:\.\d{1,6})?)(?![\w%(]|[.,]\d| ?[=*/+^-])"
)
_BROKEN = re.compile(r'[:\[,]\s*(?:NaN|-?Infinity|"(?:NaN|-?Infinity|undefined|\[object Object\])")\s*[,\]}]')
_NUMBER = re.compile(r"[:\[,]\s*-?\d")


def accuracy(text: str, *, data: bool) -> Finding:
    """The worst of the four; `data` says that the text is JSON."""
    text = text[:_READ]
    return min(_error_page(text), _damage(text), _scan(text, data=data), _statements(text, data=data))


def _error_page(text: str) -> Finding:
    # what a site sends instead of a page; a tool's own error is an honest answer
    head = text[:20_000]
    if "<" in head[:200] and _ERROR_TITLE.search(head) and len(visible(head)) < _ERROR_PAGE:
        return Finding(0.0, "it is an error page of a web server")
    if len(text) < _ERROR_PAGE or (is_html(head) and len(visible(head)) < _ERROR_PAGE):
        shown = _ERROR_WORDS.search(text)
        if shown is not None and len(text) < 10 * _ERROR_PAGE:
            return Finding(0.0, "it is a page that keeps robots out")
    return GOOD


def _damage(text: str) -> Finding:
    if text.isascii() and text.isprintable():
        return GOOD
    damaged = sum(1 for _ in _DAMAGED.finditer(text))
    if damaged < _FEW:
        return GOOD
    words = sum(1 for _ in _WORD.finditer(text))
    return Finding(max(0.0, 1 - _WEIGHT * damaged / max(words, 1)), "characters of it are damaged")


def _scan(text: str, *, data: bool) -> Finding:
    """Letters that a scanner read as digits and signs."""
    if data or "```" in text or "://" in text:
        return GOOD
    words = text[:20_000].split()
    if len(words) < _PAGE:
        return GOOD
    plain = sum(1 for word in words if _SHAPED.fullmatch(word))
    noisy = sum(1 for word in words if _SCANNED.fullmatch(word))
    if noisy < _FEW or plain < _PROSE * (len(words) - noisy) or language(text) is None:
        return GOOD
    return Finding(max(0.0, 1 - 2 * noisy / len(words)), "words of it look misread")


def _statements(text: str, *, data: bool) -> Finding:
    right = 0
    wrong: list[str] = []
    for what, holds in (*_dates(text), *_weekdays(text), *_sums(text)):
        right += holds
        wrong += [] if holds else [what]
    if data and (broken := sum(1 for _ in _BROKEN.finditer(text))):
        right += sum(1 for _ in _NUMBER.finditer(text))
        wrong += ["it has numbers that are none"] * broken
    if not wrong:
        return GOOD
    return Finding(right / (right + len(wrong)), wrong[0])


def _dates(text: str) -> Iterator[tuple[str, bool]]:
    for found in _ISO.finditer(text):
        year, month, day = (int(part) for part in found.groups() if part is not None)
        yield "it has a date that does not exist", 1 <= day <= monthrange(year, month)[1]


def _weekdays(text: str) -> Iterator[tuple[str, bool]]:
    for found in _NAMED.finditer(text):
        parts = found.groupdict()
        month = parts["m1"] or parts["m2"] or parts["m3"]
        day, year = (parts[f"{kind}1"] or parts[f"{kind}2"] or parts[f"{kind}3"] for kind in "dy")
        number = int(month) if month.isdigit() else _MONTHS[month.lower()]
        try:
            holds = date(int(year), number, int(day)).weekday() == _WEEKDAYS[found[1].lower()]
        except ValueError:
            holds = False
        yield "it has a day of the week that does not fit its date", holds


def _sums(text: str) -> Iterator[tuple[str, bool]]:
    for found in _SUM.finditer(text):
        left, sign, right, result = float(found[1]), found[2], float(found[3]), found[4]
        made = left + right if sign == "+" else left - right if sign == "-" else left * right
        places = len(result.partition(".")[2])
        yield "it has a sum that does not add up", abs(made - float(result)) <= 0.51 * 10**-places
