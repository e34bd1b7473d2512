"""JSON texts: white space removed without touching a value, and values read with their spelling kept."""

import json
import re
from typing import Any

_STRING_OR_SPACE = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\n\r]+')


class Number(str):
    """A number as it is spelled."""

    __slots__ = ()


class Pairs(tuple[tuple[str, Any], ...]):
    """The members of an object in order, repeated keys included."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key for key, _ in self)


_READERS = {
    strict: json.JSONDecoder(
        object_pairs_hook=Pairs, parse_float=Number, parse_int=Number, parse_constant=Number, strict=strict
    )
    for strict in (True, False)
}


def parsed(text: str, *, strict: bool = True) -> Pairs | list[Any] | None:
    """The object or array that a text is, or None; if not `strict`, also with line breaks in its strings."""
    if not looks_like_json(text):
        return None
    try:
        value = _READERS[strict].decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (Pairs, list)) else None


def looks_like_json(text: str) -> bool:
    """Whether a text may be a JSON object or array, by its ends."""
    bare = text.strip()
    return bare[:1] + bare[-1:] in ("{}", "[]")


def minified(text: str) -> str:
    """A JSON text without the white space between its values; any other text as it is.

    Every string and number keeps its spelling.
    """
    return text if parsed(text) is None else squeezed(text)


def squeezed(text: str) -> str:
    """Whole tokens of JSON without the white space between them."""
    return _STRING_OR_SPACE.sub(lambda found: found[1] or "", text)


def quoted(value: Any) -> str:
    """A string, or another value that is no list and no object, as JSON, with other scripts left readable."""
    return json.dumps(value, ensure_ascii=False)


def rendered(value: Any) -> str:
    """A value as JSON without white space; numbers keep their spelling."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{quoted(key)}:{rendered(member)}" for key, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(rendered, value)) + "]"
    return quoted(value)
