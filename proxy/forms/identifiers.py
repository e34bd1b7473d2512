"""Finding what later calls need again: identifiers, numbers, paths, dates, addresses, codes."""

import re
from collections.abc import Iterator
from html import unescape

_RUN = re.compile(r"[A-Za-z0-9_$/~@#À-ɏ-][A-Za-z0-9_$/.:@#%+~?&=À-ɏ-]*")
_SIGN = re.compile(r"[0-9]|[A-Za-z0-9][_/@.:#=-][A-Za-z0-9]|[a-z][A-Z]|^[A-Z]{2,6}$|^/.")
_WORDS = re.compile(r"^[A-Za-z]+(?:[-/][A-Za-z]+)+$|^[A-Za-z]+[.:]?$|^[0-9]$")
_CODE = re.compile(r"^[A-Z]{2,6}$|[a-z][A-Z]")
_LOUD = re.compile(
    r"(?:A|ALL|ALWAYS|AN|AND|ANY|ARE|AS|AT|BE|BY|DO|FIRST|FOR|IF|IN|IS|IT|MUST|NO|NOT|OF|ON|ONLY|OR|THE|THEN|THIS|TO|USE"
    r"|USING|WHEN|WILL|WITH|YOU|YOUR)$"
)
_NOISE = re.compile(r"\x1b\[[0-9;]{0,12}m|</?[A-Za-z][A-Za-z0-9]{0,12}")
_NUMBERED = re.compile(r"^[ ]{0,8}[0-9]{1,6}[:|\t]", re.MULTILINE)
_ENDS = ".:?&=#+-/@~$%"
LONGEST = 240
"""Characters of the longest word that is a value."""


def identifiers(text: str) -> Iterator[str]:
    """The identifier-like values of a text in order, each once, as they stand there."""
    seen: set[str] = set()
    for found in _RUN.finditer(_quiet(text)):
        value = found.group().rstrip(_ENDS)
        if value not in seen and len(value) <= LONGEST and is_identifier(value):
            seen.add(value)
            yield value


def _quiet(text: str) -> str:
    """A text without what only looks like values: colours, tags, and numbers of lines."""
    if "\x1b" in text or "<" in text:
        text = _NOISE.sub(" ", text)
    if 2 * sum(1 for _ in _NUMBERED.finditer(text)) > text.count("\n") > 2:
        text = _NUMBERED.sub("", text)
    return unescape(text) if "&" in text else text


def is_identifier(value: str) -> bool:
    """Whether a word is a value that is used again as it is, rather than language."""
    if not _SIGN.search(value) or _LOUD.match(value):
        return False
    return not _WORDS.match(value) or bool(_CODE.search(value))


def gathered(text: str, room: int, *, known: str = "") -> str:
    """The identifiers of a text that are not in `known`, separated by blanks, within so many characters."""
    kept: list[str] = []
    for value in identifiers(text):
        if value in known:
            continue
        room -= len(value) + 1
        if room < 0:
            break
        kept.append(value)
    return " ".join(kept)
