"""Finding what later calls need again, with the word that says what it is: identifiers, numbers, paths, codes."""

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
_REACH = 40
_LABEL = r"(?<![\w./-])[^\W\d_](?:[^\W\d]|-)"
_BEFORE = re.compile(
    rf"({_LABEL}{{3,24}}|(?:{_LABEL}{{0,24}} )?{_LABEL}{{0,2}})[\"']?[ \t]?[:=(#]{{0,2}}[ \t]?[\"'#(]?\Z"
)
"""The word in front of a value, or its key; a short one, such as `of`, with the word in front of it."""
_PLAIN = re.compile(r"[0-9][0-9.,]*$")
_BEHIND = re.compile(r" ?([^\W\d_]{1,20}|[%€$£])(?!\w)")
_ENDS = ".:?&=#+-/@~$%"
LONGEST = 240


def identifiers(text: str) -> Iterator[tuple[str, str]]:
    """Yield the identifier-like values of a text once each, with labels: the word in front, and behind a number.

    A number without any tells nothing and is left out. A name or a path needs none.
    """
    seen: set[str] = set()
    text = _quiet(text)
    for match in _RUN.finditer(text):
        value = match.group().rstrip(_ENDS)
        if value in seen or len(value) > LONGEST or not is_identifier(value):
            continue
        seen.add(value)
        if not any(map(str.isdigit, value)) or "/" in value[:1] or "://" in value:
            yield value, ""
            continue
        before = _BEFORE.search(text, max(0, match.start() - _REACH), match.start())
        label = before[1] if before else ""
        if any(map(str.isalpha, value)):
            yield value, label
        elif _PLAIN.match(value) and (behind := _BEHIND.match(text, match.start() + len(value))) is not None:
            yield f"{value} {behind[1]}", label
        elif label:
            yield value, label


def _quiet(text: str) -> str:
    if "\x1b" in text or "<" in text:
        text = _NOISE.sub(" ", text)
    if 2 * sum(1 for _ in _NUMBERED.finditer(text)) > text.count("\n") > 2:
        text = _NUMBERED.sub("", text)
    return unescape(text) if "&" in text else text


def is_identifier(value: str) -> bool:
    """Return True if a word is a value rather than language."""
    if not _SIGN.search(value) or _LOUD.match(value):
        return False
    return not _WORDS.match(value) or bool(_CODE.search(value))
