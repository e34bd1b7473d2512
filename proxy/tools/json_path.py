"""Parts of JSON by JMESPath, which is imported where a path is asked for.

An expression is a model's, and can double what it has in each step: what it makes is charged, its time is bounded.
"""

import json
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import jmespath
import orjson
from jmespath import functions
from jmespath.visitor import Options, TreeInterpreter

LARGEST = 4 * 2**20
"""Characters of JSON that are searched; parsing this takes some 20 ms."""
LONGEST_PATH = 500
_BUDGET = 8 * 2**20
"""Values and characters that an expression may make."""
_RENDERED = 2**20
_SHOWN_KEYS = 20
_MAKING = frozenset({"multi_select_list", "multi_select_dict", "literal", "function_expression"})
"""Kinds of expressions that make new values."""

_NOT_JSON = "The text is not JSON: use pattern, or first_line and last_line."
_TOO_MUCH = "The path makes too much of the JSON: ask for less at once."


class PathError(Exception):
    """The path cannot be followed; the message says in words what would be right."""


def at_path(text: str, path: str, seconds: float) -> str:
    """Return what stands at a path of JSON or JSON lines, in about `seconds`, an item a line. Raise `PathError`."""
    data = _parsed(text)
    try:
        value = _Bounded(perf_counter() + seconds).visit(_compiled(path), data)
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise PathError(f"The path fails: {reason}. {_shape(data)}") from None
    if value is None or value == []:
        raise PathError(f"Nothing is at this path. {_shape(data)}")
    return _rendered(value)


def _parsed(text: str) -> Any:
    if len(text) > LARGEST:
        raise PathError("The text is too long for a path: use pattern, or first_line and last_line.")
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        raise PathError(_NOT_JSON) from None


def _compiled(path: str) -> Any:
    if len(path) > LONGEST_PATH:
        raise PathError(f"The path is longer than {LONGEST_PATH} characters: use a simpler one.")
    try:
        return jmespath.compile(path).parsed
    except (ValueError, RecursionError):
        raise PathError("The path is no JMESPath: write it like items[?price > `5`].name or order.lines[0].") from None


class _Functions(functions.Functions):  # type: ignore[misc]
    @functions.signature({"types": ["string"]}, {"types": ["array-string"]})  # type: ignore[untyped-decorator]
    def _func_join(self, separator: str, items: Sequence[str]) -> str:
        if len(separator) * len(items) > _BUDGET:
            raise PathError(_TOO_MUCH)
        return separator.join(items)


class _Bounded(TreeInterpreter):  # type: ignore[misc]
    """Follows a path, for a bounded time and with bounded results."""

    def __init__(self, deadline: float) -> None:
        super().__init__(Options(custom_functions=_Functions()))
        self._deadline = deadline
        self._budget = _BUDGET

    def visit(self, node: Mapping[str, Any], *args: Any) -> Any:
        if perf_counter() > self._deadline:
            raise PathError("The path takes too long: use a simpler one.")
        value = super().visit(node, *args)
        return self._charged(value) if node["type"] in _MAKING else value

    def _charged(self, value: Any) -> Any:
        """Return a value; count what is in it as often as it is there, for shared values cost when they are used."""
        waiting = [value]
        while waiting:
            item = waiting.pop()
            self._budget -= 1 + (len(item) if isinstance(item, str) else 0)
            if self._budget < 0:
                raise PathError(_TOO_MUCH)
            if isinstance(item, dict):
                waiting += item.values()
            elif isinstance(item, list):
                waiting += item
        return value


def _rendered(value: Any) -> str:
    if isinstance(value, str):
        return value[:_RENDERED]
    pieces: list[str] = []
    room = _RENDERED
    for item in value if isinstance(value, list) else [value]:
        for piece in json.JSONEncoder(ensure_ascii=False).iterencode(item):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                return "".join(pieces)
        pieces.append("\n")
    return "".join(pieces).rstrip("\n")


def _shape(data: Any) -> str:
    """Return the kind of the JSON, for one who guessed a path."""
    if isinstance(data, dict):
        return f"The JSON is an object with {_keys(data)}."
    if not isinstance(data, list):
        return "The JSON is a single value."
    first = f"; the first is an object with {_keys(data[0])}" if data and isinstance(data[0], dict) else ""
    return f"The JSON is a list of {len(data)} items{first}."


def _keys(data: Mapping[str, Any]) -> str:
    more = ", ..." if len(data) > _SHOWN_KEYS else ""
    return "the keys " + ", ".join(key[:40] for key in list(data)[:_SHOWN_KEYS]) + more
