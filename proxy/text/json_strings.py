"""The strings in a JSON text, where they stand in it. Pure."""

import re
from collections.abc import Iterator

import orjson

_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"(?P<key>\s*+:)?|\Z)', re.DOTALL)
_SHORTEST = 12
"""Characters of a string that may be a sentence."""


def is_json(text: str) -> bool:
    """Whether a text is an object or a list in JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return False
    return True


def strings(text: str) -> Iterator[tuple[int, int, str]]:
    """The strings that are values and no keys: where their insides stand in the text, and what they say."""
    for found in _STRING.finditer(text):
        if len(found[1]) >= _SHORTEST and found["key"] is None:
            yield found.start(1), found.end(1), orjson.loads(f'"{found[1]}"')
