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
