"""Removal of layers without content: escapes, white space of JSON, a terminal's colours, an MCP result's envelope.

MCP clients hand on a tool's text in JSON, or as the SDK's object prints it, with every quote escaped once per layer.
"""

import re
from typing import Any

from proxy.compaction.cut_json import bare, cut_off
from proxy.text.json_values import Pairs, parsed

_PRINTED = re.compile(r"(?:meta=None )?content=\[TextContent\(type='text', text=(?=['\"])")
_BODY = {
    "'": re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL),
    '"': re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL),
}
_END = re.compile(r"(?:, \w+=None)*\)\](?: \w+=(?:None|False))*\s*")
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[xuU][0-9a-f]*$|.|$)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
_LENGTHS = {"x": 3, "u": 5, "U": 9}
_DATA = " structuredContent={'result': "
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[mK]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LAYERS = 6


def unwrapped(text: str, *, squeeze: bool = True) -> str:
    """Return a text without its layers that have no content, else the very same. JSON is squeezed if `squeeze`."""
    for _ in range(_LAYERS):
        # a terminal's output is as it was seen last, without colours
        inner = _printed(text) or _enveloped(text) or (last_written(_COLOUR.sub("", text)) if squeeze else text)
        if not inner or inner == text:
            break
        text = inner
    short = bare(text) if squeeze else text
    return short if len(short) < len(text) else text


def last_written(text: str) -> str:
    """Return a text without what a carriage return wrote over, where all its words were written again."""
    if "\r" not in text or "\n" not in text:
        return text
    return "\n".join(_last_written(line) if "\r" in line[:-1] else line for line in text.split("\n"))


def _last_written(line: str) -> str:
    end = "\r" if line.endswith("\r") else ""
    *earlier, last = line.removesuffix("\r").split("\r")
    words = set(_WORD.findall(last))
    return "\r".join([*(part for part in earlier if not words.issuperset(_WORD.findall(part))), last]) + end


def _printed(text: str) -> str | None:
    """Return the text of a printed result object, also where its end was cut off."""
    start = _PRINTED.match(text)
    if start is None:
        return None
    body = _BODY[text[start.end()]].match(text, start.end())
    if body is None:
        return _resolved(text[start.end() + 1 :])
    end, beside, data = text[body.end() :].partition(_DATA)
    if data.startswith(body[0] + "}"):
        end += " structuredContent=None" + data[len(body[0]) + 1 :]
    elif beside and not body[0].startswith(data):
        return None
    return _resolved(body[0][1:-1]) if _END.fullmatch(end) else None


def _resolved(literal: str) -> str:
    return _ESCAPE.sub(_character, literal)


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == _LENGTHS.get(code[:1]):
        value = int(code[1:], 16)
        return chr(value) if value < 0x110000 else match[0]
    if match.end() == len(match.string) and code[:1] in ("", "x", "u", "U"):
        return ""
    return _PLAIN.get(code, match[0])


def _enveloped(text: str) -> str | None:
    """Return the text of an MCP result in JSON, truncated or not, if its other members add nothing to it."""
    if '"content"' not in text[:200]:
        return None
    value, cut = parsed(text), False
    if value is None and (match := cut_off(text)) is not None:
        value, cut = match.value, True
    if not isinstance(value, Pairs):
        return None
    members = dict(value)
    inner = _texts(members.pop("content", None))
    if inner is not None and _says_the_same(members.get("structuredContent"), inner, cut=cut):
        del members["structuredContent"]
    return None if any(members.values()) else inner or None


def _texts(content: Any) -> str | None:
    """Return the text of an MCP result's content, several JSON texts as one array; None if it has other parts."""
    if not isinstance(content, list) or not content or not all(isinstance(item, Pairs) for item in content):
        return None
    items: list[dict[str, Any]] = list(map(dict, content))
    texts = [item.pop("text", None) for item in items]
    if not all(type(text) is str and item.pop("type", None) == "text" for text, item in zip(texts, items, strict=True)):
        return None
    if any(value for item in items for value in item.values()):
        return None
    if len(texts) == 1:
        return str(texts[0])
    return f"[{','.join(texts)}]" if all(parsed(text) is not None for text in texts) else None


def _says_the_same(structured: Any, text: str, *, cut: bool) -> bool:
    """Return True if the structured data repeat the text, as JSON or as the only member `result`."""
    if not isinstance(structured, Pairs):
        return False
    if structured.names == ("result",) and isinstance(structured[0][1], str):
        result = structured[0][1]
        return result == text or (cut and text.startswith(result))
    return bool(structured) and structured == parsed(text)
