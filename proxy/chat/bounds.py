"""Bounds on what a body holds, checked before anything is parsed.

Every value of a body costs memory and time once it is parsed: a megabyte of empty lists takes twenty times that. So a
large body is scanned first, in pieces, so that other threads run meanwhile.
"""

from collections.abc import Mapping
from typing import Any

from proxy.chat.errors import BadRequest

SMALL = 512 * 1024
"""Bytes up to which a body needs no scan: it cannot hold enough to delay others."""
MOST_VALUES = 500_000
"""The most values in a body; a list or an object counts as two."""
MOST_KEYS = 150_000
"""The most keys of all objects in a body."""
MOST_FIELDS = 1_000
"""The most keys of a body's top level."""
MOST_ITEM_VALUES = 100_000
"""The most values in one message, tool or field that is parsed: it is parsed in one piece."""
MOST_DEPTH = 128
"""The most levels of lists and objects in what is parsed."""

DEEP = f"it is nested more than {MOST_DEPTH} levels deep"

_PIECE = 64 * 1024


def check_size(raw: bytes, most: int, place: str = "the body") -> None:
    """Raise `BadRequest` where some JSON has more than `most` values, or too many keys."""
    # most bodies are far from the bounds even if each sign in their texts counts
    pieces = [raw[at : at + _PIECE] for at in range(0, len(raw), _PIECE)]
    values = len(raw) - sum(len(piece.translate(None, b",[{")) for piece in pieces)
    if values <= most and sum(piece.count(b":") for piece in pieces) <= MOST_KEYS:
        return
    keys = values = inside = start = 0
    while start < len(raw):
        piece = raw[start : start + _PIECE]
        if piece.endswith(b"\\") and (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece += raw[start + _PIECE : start + _PIECE + 1]
        start += len(piece)
        texts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(texts[inside::2])
        inside ^= 1 - len(texts) % 2
        keys += outside.count(b":")
        values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if keys > MOST_KEYS:
            raise _too_much(f"{place} has more than {MOST_KEYS:,} keys")
        if values > most:
            raise _too_much(f"{place} has more than {most:,} values")


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise `BadRequest` where a body has too many fields."""
    if len(fields) > MOST_FIELDS:
        raise _too_much(f"the body has more than {MOST_FIELDS:,} fields")


def check_depth(value: Any, raw: bytes, place: str) -> None:
    """Raise `BadRequest` where a parsed value is nested too deeply for what walks through it."""
    if raw.count(b"[") + raw.count(b"{") <= MOST_DEPTH:
        return
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise BadRequest(f"{place} is not valid JSON: {DEEP}", param=place, code="invalid_json")


def _too_much(message: str) -> BadRequest:
    return BadRequest(message, status=413, code="too_many_values", headers={"x-should-retry": "false"})
