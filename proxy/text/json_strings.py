"""Strings in a JSON text, with their positions. Pure."""

import re
from collections.abc import Iterator

import orjson

_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"(?P<key>\s*+:)?|\Z)', re.DOTALL)
_SHORTEST = 12
"""Characters of the shortest string that may be a sentence."""


def is_json(text: str) -> bool:
    """Return whether a text is an object or an array in JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return False
    return True


def strings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the strings that are values, not keys: start and end of the content in the text, and the decoded value."""
    for match in _STRING.finditer(text):
        if len(match[1]) >= _SHORTEST and match["key"] is None:
            yield match.start(1), match.end(1), orjson.loads(f'"{match[1]}"')
