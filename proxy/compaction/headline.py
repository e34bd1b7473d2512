"""A summary of a text's content in one line."""

from typing import Any

from proxy.compaction.cut_json import json_value
from proxy.compaction.html import readable
from proxy.compaction.pieces import parts
from proxy.text.json_values import Pairs, rendered

_LONGEST_LINE = 70
_KEYS = 6


def headline(text: str) -> str:
    """Return a line of at most about 130 characters: the keys and sizes of JSON, the first words of any other text."""
    value = json_value(text)
    if value is not None:
        return _cut_line(_shape(value, 0))
    lines = [line for line in readable(text).splitlines() if line.strip()]
    first = next((line for line in lines if any(map(str.isalpha, line))), lines[0] if lines else "")
    return _cut_line(" ".join(first.split())) + (f" (first of {len(lines)} lines)" if len(lines) > 1 else "")


def _shape(value: Any, depth: int) -> str:
    if isinstance(value, Pairs):
        keys = [f'"{key}": {_shape(member, depth + 1)}' if depth == 0 else f'"{key}"' for key, member in value[:_KEYS]]
        return "{" + ", ".join([*keys, "…"] if len(value) > _KEYS else keys) + "}"
    if isinstance(value, list):
        first = _shape(value[0], depth + 1) if value and isinstance(value[0], Pairs) else ""
        return f"{len(value)} items" + (f" with {first}" if first else "")
    return rendered(value)


def _cut_line(text: str) -> str:
    first, rest, _ = parts(text, _LONGEST_LINE, 0)
    return f"{first}…" if rest else first
