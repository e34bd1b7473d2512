"""Wrappings that carry nothing: white space of JSON, and an MCP result's envelope around one text.

MCP clients hand on a tool's text inside a JSON envelope, or as the printed form of the SDK's result object, or one in
the other, with every quote and line break escaped once per layer. The text is what the tool said.
"""

import re
from typing import Any

from proxy.forms.json_values import Pairs, minified, parsed

_PRINTED = re.compile(r"(?:meta=None )?content=\[TextContent\(type='text', text=(?=['\"])")
_BODY = {
    "'": re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL),
    '"': re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL),
}
_END = re.compile(r"(?:, \w+=None)*\)\](?: \w+=(?:None|False))*\s*")
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[xuU][0-9a-f]*$|.|$)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_LENGTHS = {"x": 3, "u": 5, "U": 9}
_LAYERS = 6


def unwrapped(text: str) -> str:
    """A text without the layers around it that carry nothing; the very same object if there are none."""
    for _ in range(_LAYERS):
        inner = _printed(text)
        if inner is None:
            inner = _enveloped(text)
        if inner is None:
            break
        text = inner
    bare = minified(text)
    return bare if len(bare) < len(text) else text


def _printed(text: str) -> str | None:
    """The text of a printed result object, also where its end was cut off."""
    start = _PRINTED.match(text)
    if start is None:
        return None
    quote = text[start.end()]
    body = _BODY[quote].match(text, start.end())
    if body is None:
        return _resolved(text[start.end() + 1 :]) or None
    return _resolved(body[0][1:-1]) or None if _END.fullmatch(text, body.end()) else None


def _resolved(literal: str) -> str:
    """What a printed string says. Half an escape at a place where the text was cut off says nothing."""
    return _ESCAPE.sub(_character, literal)


def _character(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) == _LENGTHS.get(code[:1]):
        value = int(code[1:], 16)
        return chr(value) if value < 0x110000 else found[0]
    if found.end() == len(found.string) and code[:1] in ("", "x", "u", "U"):
        return ""
    return _PLAIN.get(code, found[0])


def _enveloped(text: str) -> str | None:
    """The text of an MCP result in JSON whose other members say nothing."""
    value = parsed(text) if '"content"' in text[:200] else None
    if not isinstance(value, Pairs):
        return None
    members = dict(value)
    content = members.pop("content", None)
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], Pairs):
        return None
    item: dict[str, Any] = dict(content[0])
    inner = item.pop("text", None)
    if item.pop("type", None) != "text" or any((*members.values(), *item.values())):
        return None
    return inner if type(inner) is str and inner else None
