"""How much of a text can be right: its characters, its dates and numbers, and whether it is the page at all.

Only what is wrong in itself is seen here: a date that the calendar has not got, not a date that is another one's.
"""

import re
from calendar import monthrange

from policies.validate_content.content import GOOD, SAID, Finding
from proxy.compaction.html import is_html, visible

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
    # what a site sends instead of a page; a tool's own error is an honest answer
    head = text[:20_000]
    if "<" in head[:200] and SAID["error title"].search(head) and len(visible(head)) < _ERROR_PAGE:
        return Finding(0.0, "it is an error page of a web server")
    if len(text) < _ERROR_PAGE or (is_html(head) and len(visible(head)) < _ERROR_PAGE):
        shown = SAID["robots"].search(text)
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


def _statements(text: str, *, data: bool) -> Finding:
    dates = [tuple(int(part) for part in found.groups() if part is not None) for found in _ISO.finditer(text)]
    impossible = sum(not 1 <= day <= monthrange(year, month)[1] for year, month, day in dates)
    broken = sum(1 for _ in _BROKEN.finditer(text)) if data else 0
    if not impossible and not broken:
        return GOOD
    told = "it has a date that does not exist" if impossible else "it has NaN or an infinite number in place of a value"
    numbers = sum(1 for _ in _NUMBER.finditer(text)) if broken else 0
    return Finding(1 - (impossible + broken) / (len(dates) + numbers + broken), told)
