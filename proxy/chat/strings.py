"""Every string of a request: values and keys, in known fields and unknown ones, and in JSON within a string. Pure."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from operator import is_
from typing import Any

import orjson

from proxy.chat import JsonObject, encode
from proxy.text.json_values import is_json
from proxy.text.tables import lines

Change = Callable[[str], str]
"""A pure function of a text. It is given some texts in several forms."""

_PAYLOAD = re.compile(r"(data:[^,]{0,256};base64,).*", re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/]{256,}+={0,2}")
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*+"|\\.|-?\d[\d.eE+-]*+', re.DOTALL)
"""A string, an escape outside of one, or a number."""
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPED = dict(zip("bfnrt", "\b\f\n\r\t", strict=True))
_SHORT = 8
"""Characters below which a number holds nothing."""
_DEEPEST = 4
"""The deepest nesting of JSON in strings of JSON."""

_FIELDS = {wire: " ".join(lines(f"{wire}_fields")).split() for wire in ("chat", "messages", "responses")}
_NAMES = {wire: frozenset(name.rstrip("*") for name in names) for wire, names in _FIELDS.items()}
_FREE = {wire: frozenset(name[:-1] for name in names if name.endswith("*")) for wire, names in _FIELDS.items()}


def with_strings(item: JsonObject, change: Change) -> JsonObject:
    """Return a message, an item or a tool with every string changed; the same object where none is."""
    new = changed(item, change)
    return item if new is item else item.changed_copy(new)


def changed(value: Any, change: Change) -> Any:
    """Return a JSON value with every string changed, keys included; the same object where none is.

    A number whose digits are changed becomes a string.
    """
    if isinstance(value, str):
        new = changed_text(value, change)
        return value if new == value else new
    if isinstance(value, list):
        items = [changed(item, change) for item in value]
        return value if all(map(is_, items, value)) else items
    if isinstance(value, Mapping):
        pairs = {changed_text(key, change): changed(item, change) for key, item in value.items()}
        same = len(pairs) == len(value) and all(value.get(key, pairs) is item for key, item in pairs.items())
        return value if same else pairs
    if isinstance(value, int | float) and not isinstance(value, bool) and len(digits := str(value)) >= _SHORT:
        return value if (new := change(digits)) == digits else new
    return value


def changed_text(text: str, change: Change, depth: int = 0) -> str:
    """Return a text changed, with the strings and numbers of JSON in it changed one by one.

    Base64 is opaque. JSON stays JSON, and where nothing changes every byte stays.
    """
    if payload := _PAYLOAD.fullmatch(text):
        return change(payload[1]) + text[payload.end(1) :]
    if _BASE64.fullmatch(text):
        return text
    whole = is_json(text)
    if not whole:
        text = change(text)
    if depth == _DEEPEST or not (whole or "\\" in text) or not _holds(text, change):
        return text
    return _LITERAL.sub(partial(_changed_literal, change=change, depth=depth, whole=whole), text)


def unknown_field(item: Mapping[str, Any], wire: str) -> str | None:
    """Return the place of a field with text whose name no known request of a wire has; None where there is none."""
    return next(_unknown(item, "", _NAMES[wire], _FREE[wire]), None)


def names_twice(raw: bytes) -> bool:
    """Return whether an object in JSON has a name twice: nobody who parses it sees the first value."""
    if raw == orjson.dumps(orjson.loads(raw)):
        return False
    repeated = False

    def members(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated = repeated or len({name for name, _ in pairs}) < len(pairs)

    json.loads(raw, object_pairs_hook=members)
    return repeated


def _unknown(value: Any, place: str, names: Set[str], free: Set[str]) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, f"{place}[{index}]", names, free)
    for key, item in value.items() if isinstance(value, Mapping) else ():
        where = f"{place}.{key[:40]}".removeprefix(".")
        if key in names:
            yield from () if key in free else _unknown(item, where, names, free)
        elif _has_text(item):
            yield where


def _has_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)  # its keys are text
    return any(map(_has_text, value)) if isinstance(value, list) else isinstance(value, str) and bool(value)


def _holds(text: str, change: Change) -> bool:
    """Return whether anything in a JSON text would change, with its escapes resolved, also those within escapes."""
    for _ in range(_DEEPEST):
        if change(text) != text:
            return True
        if "\\" not in text:
            return False
        text = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2]), text)
    return True


def _changed_literal(match: "re.Match[str]", *, change: Change, depth: int, whole: bool) -> str:
    literal = match[0]
    if literal[0] == '"':
        if not whole and "\\" not in literal:
            return literal
        try:
            text = orjson.loads(literal)
        except (orjson.JSONDecodeError, UnicodeEncodeError):
            return literal  # of a text that is no JSON; it was changed as a text
        new = changed_text(text, change, depth + 1)
        return literal if new == text else encode(new).decode(errors="surrogatepass")
    if whole and literal[0] != "\\" and len(literal) >= _SHORT and (new := change(literal)) != literal:
        return encode(new).decode(errors="surrogatepass")
    return literal
