"""Documents that arrive as a string literal: a result printed with its quotes and its `\\n`."""

import re

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_DEEPEST = 3
_FEWEST = 4


def unescaped(text: str) -> str:
    """A text with the escapes of a string literal resolved, if its line breaks are written as escapes."""
    for _ in range(_DEEPEST):
        marks = text.count("\\n") + text.count('\\"')
        if marks < _FEWEST or marks * 2 < text.count("\n"):
            break
        text = _ESCAPE.sub(_resolved, text)
    return text


def _resolved(found: re.Match[str]) -> str:
    if found[1]:
        letter = chr(int(found[1], 16))
        return letter if letter.isprintable() else " "
    return _PLAIN.get(found[2], found[0])
