"""Finding what a later call or answer may need again: identifiers, numbers, paths, codes."""

import re
from collections.abc import Iterator

_RUN = re.compile(r"[A-Za-z0-9_$/~@#À-ɏ-][A-Za-z0-9_$/.:@#%+~?&=À-ɏ-]*")
_SIGN = re.compile(r"[0-9]|[A-Za-z0-9][_/@.:#=-][A-Za-z0-9]|[a-z][A-Z]|^[A-Z]{2,6}$|^/.")
_WORDS = re.compile(r"^[A-Za-z]+(?:[-/][A-Za-z]+)+$|^[A-Za-z]+[.:]?$|^[0-9]$")
_CODE = re.compile(r"^[A-Z]{2,6}$|[a-z][A-Z]")
_LOUD = re.compile(
    r"(?:A|ALL|ALWAYS|AN|AND|ANY|ARE|AS|AT|BE|BY|DO|FIRST|FOR|IF|IN|IS|IT|MUST|NO|NOT|OF|ON|ONLY|OR|THE|THEN|THIS|TO|USE"
    r"|USING|WHEN|WILL|WITH|YOU|YOUR)$"
)
_ENDS = ".:?&=#+-/@~$%"
_TURN = re.compile(r"[a-z](?=[A-Z0-9])|[0-9](?=[A-Za-z])|[A-Z](?=[0-9])")
_TURNS = 7
_ENCODED = 56
_LONGEST = 240


def identifiers(text: str) -> Iterator[str]:
    """Yield the identifiers, numbers, paths and codes of a text, once each."""
    values = (match.group().rstrip(_ENDS) for match in _RUN.finditer(text))
    yield from (value for value in dict.fromkeys(values) if len(value) <= _LONGEST and is_identifier(value))


def is_identifier(value: str) -> bool:
    """Return True if a word is a value rather than language."""
    if not _SIGN.search(value) or _LOUD.match(value):
        return False
    return not _WORDS.match(value) or bool(_CODE.search(value))


def is_encoded(line: str) -> bool:
    """Return True for a line of a key, a picture or the like: one long word in which letters and digits take turns."""
    word = line.strip() if len(line) >= _ENCODED else ""
    if len(word) < _ENCODED or word == word.lower() or any(sign in word for sign in " .:"):
        return False
    return _TURNS * len(_TURN.findall(word)) >= len(word)
