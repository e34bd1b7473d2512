"""JSON texts, parsed and minified without changing the spelling of any value."""

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"(?P<key>\s*+:)?|\Z)', re.DOTALL)
_SHORTEST = 12
"""Characters of the shortest string that may be a sentence."""
_FIRST_LINES = 1000
_BEGINNING = re.compile(r"^[{\[]", re.MULTILINE)
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^" \t\n\r]+|"')
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def json_object(data: bytes | str) -> dict[str, Any]:
    """Return the JSON object that a text is; an empty one for anything else."""
    try:
        return mapping(orjson.loads(data))
    except ValueError:
        return {}


def mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def json_objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; none of any other value."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


class Number(str):
    """The spelling of a number."""

    __slots__ = ()


class Pairs(tuple[tuple[str, Any], ...]):
    """The members of an object in order, including repeated keys."""

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
    """Return the object or array in a JSON text, or None. With `strict=False`, its strings may contain line breaks."""
    bare = text.strip()
    if bare[:1] + bare[-1:] not in ("{}", "[]"):
        return None
    try:
        value = _READERS[strict].decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (Pairs, list)) else None


def is_json(text: str) -> bool:
    """Return whether a text is an object or an array in JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return False
    return True


def documents(text: str) -> Iterator[tuple[int, int, Pairs | list[Any]]]:
    """Yield start, end and value of each JSON document that fills whole lines of a text, in linear time."""
    place = wasted = 0
    while wasted <= len(text) and (start := _BEGINNING.search(text, place)):
        place = _line_end(text, start.end())
        try:
            value, end = _document(text, start.start())
        except json.JSONDecodeError as error:
            wasted += error.pos
            continue
        except RecursionError:
            return
        last = _line_end(text, end)
        if text[end:last].strip():
            wasted += end - start.start()
        else:
            place = last
            yield start.start(), last, value


def _document(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON document that begins at a place, and its end. Raise `JSONDecodeError`, with a place behind that.

    An error counts the lines up to its place, so the first lines are tried by themselves: most texts fail in them.
    """
    first = text[start : _line_end(text, min(start + _FIRST_LINES, len(text)))]
    try:
        value, size = _READERS[True].raw_decode(first)
    except json.JSONDecodeError as error:
        if error.pos < len(first.rstrip()):
            raise
        value, size = _READERS[True].raw_decode(text[start:])
    return value, start + size


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def strings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the strings that are values, not keys: start and end of the content in the text, and the decoded value."""
    for match in _STRING.finditer(text):
        if len(match[1]) >= _SHORTEST and match["key"] is None:
            yield match.start(1), match.end(1), orjson.loads(f'"{match[1]}"')


def minified(text: str) -> str:
    """Return a JSON text without white space between its tokens, and any other text unchanged."""
    return text if parsed(text) is None else squeezed(text)


def squeezed(text: str) -> str:
    """Return JSON tokens without the white space between them."""
    return "".join(_TOKENS.findall(text))


def quoted(value: Any) -> str:
    """Return a scalar as JSON without escaping other scripts."""
    return _ENCODER.encode(value)


def rendered(value: Any) -> str:
    """Return a value from `parsed` as JSON without white space; numbers keep their spelling."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{quoted(key)}:{rendered(member)}" for key, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(rendered, value)) + "]"
    return quoted(value)
