"""JSON texts whose end was cut off: many agents hand on only so many characters of a result."""

import re
from dataclasses import dataclass
from typing import Any

from proxy.text.json_values import Pairs, parsed, squeezed

_START = re.compile(r'\s*(?:\{\s*"|\[\s*["{\[0-9-])')
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("|\\?\Z)|[{}\[\]]', re.DOTALL)
_HALF = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z")
_LITERAL = re.compile(r"[A-Za-z0-9.+-]{1,40}\Z")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_HALF_A_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?)?)?")
_WORDS = ("true", "false", "null")
_DEEPEST = 200
_CLOSING = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class CutOff:
    """A JSON text whose end was cut off."""

    value: Pairs | list[Any]
    """A string that was cut off ends early; a key without a value is left out."""
    whole: int
    """So many characters stand before the string that was cut off; all, if none was."""
    rest: str


def cut_off(text: str) -> CutOff | None:
    """Return the value of a truncated JSON object or array; None for any other text."""
    if not _START.match(text):
        return None
    found = _unclosed(text)
    if found is None:
        return None
    closing, last = found
    within = last[0][0] == '"' and last[1] != '"'
    begun = _HALF.sub(r"\1", text) + '"' if within else _without_half_a_literal(text.rstrip())
    if last[0][0] == '"':
        before = begun[: last.start()].rstrip()  # a key at the end has no value
        is_key = closing[-1] == "}" and begun.endswith('"') and before[-1:] in ("{", ",")
        begun = before if is_key or begun.endswith(":") else begun
    # what cut the text off may have said so on a line of its own, now the end of a string
    value = parsed(begun.removesuffix(",") + "".join(reversed(closing)), strict=False)
    if value is None:
        return None
    return CutOff(value, last.start() if within else len(text), _rest(text, begun, last.start()))


def _unclosed(text: str) -> tuple[list[str], re.Match[str]] | None:
    """Return the brackets that close a truncated text, and its last token; None if it is not truncated JSON."""
    closing: list[str] = []
    last: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        sign = token[0][0]
        if sign in "{[":
            closing.append(_CLOSING[sign])
        elif sign != '"' and closing.pop() != sign:
            return None
        if not 0 < len(closing) <= _DEEPEST:
            return None
        last = token
    return None if last is None else (closing, last)


def _rest(text: str, begun: str, last: int) -> str:
    """Return the end of a text that `begun` lacks; both are the same up to the `last` token."""
    same = len(begun)
    while not text.startswith(begun[last:same], last):
        same -= 1  # what was added at the end is at most a word
    return text[same:].strip(", \t\r\n")


def _without_half_a_literal(text: str) -> str:
    """Complete a literal such as `tr`; remove a number that was cut off behind its point."""
    found = _LITERAL.search(text, max(0, len(text) - 40))
    if found is None or _NUMBER.fullmatch(found[0]):
        return text
    if _HALF_A_NUMBER.fullmatch(found[0]):
        return text[: found.start()].rstrip()
    return text[: found.start()] + next((word for word in _WORDS if word.startswith(found[0])), found[0])


def json_value(text: str) -> Pairs | list[Any] | None:
    """Return the value of a JSON object or array, truncated or not; None for any other text."""
    found = json_and_rest(text)
    return None if found is None else found[0]


def json_and_rest(text: str) -> tuple[Pairs | list[Any], str | None] | None:
    """Return the value of a JSON object or array, and if it is truncated the end that the value leaves out."""
    value = parsed(text)
    if value is not None:
        return value, None
    found = cut_off(text)
    return None if found is None else (found.value, found.rest)


def bare(text: str) -> str:
    """Return a JSON text, truncated or not, without the white space between its values; any other as it is."""
    if parsed(text) is not None:
        return squeezed(text)
    found = cut_off(text)
    return text if found is None else squeezed(text[: found.whole]) + text[found.whole :]
