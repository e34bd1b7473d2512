"""Edits of JSON as bytes: what is not edited keeps the bytes that a client sent, white space included."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import orjson

from proxy.chat import encode

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])

_KEY = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*')
_BREAK = re.compile(rb"\s*,?")
_GAP = re.compile(rb"[\s,]*")
"""White space and commas between the items of a list."""


def fields(raw: bytes) -> dict[str, bytes]:
    """Return the members of an object, each as its bytes."""
    return {key: bytes(value) for key, value in _fields.decode(raw).items()}


def items(raw: bytes) -> list[bytes]:
    """Return the items of a list, each as its bytes."""
    return [bytes(item) for item in _items.decode(raw)]


def joined(parts: Sequence[bytes]) -> bytes:
    """Return a list of these items."""
    return b"[" + b",".join(parts) + b"]"


class _Member(NamedTuple):
    begin: int
    start: int
    end: int


def with_members(raw: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """Return an object with some members set, or removed where the change is None."""
    if not changes:
        return raw
    members, end = _members(raw)
    changes = {name: value for name, value in changes.items() if value is not None or name in members}
    if not changes.keys() <= members.keys() or None in changes.values():
        parts = [
            raw[each.begin : each.start] + (changes.get(name) or raw[each.start : each.end])
            for name, each in members.items()
            if changes.get(name, b"") is not None
        ]
        parts += [encode(name) + b":" + value for name, value in changes.items() if value and name not in members]
        return b"{" + b",".join(parts) + raw[end:]
    made, position = list[bytes](), 0
    for name, each in members.items():
        if (value := changes.get(name)) is not None:
            made += (raw[position : each.start], value)
            position = each.end
    return b"".join((*made, raw[position:]))


def _members(raw: bytes) -> tuple[dict[str, _Member], int]:
    """Return where each member of an object stands, and where the last one ends.

    Raises `ValueError` for one that names a member twice.
    """
    members, position, end = dict[str, _Member](), raw.index(b"{") + 1, raw.index(b"{") + 1
    for name, value in _fields.decode(raw).items():
        key = _KEY.match(raw, position)
        if key is None or orjson.loads(key[1]) != name or not raw.startswith(bytes(value), key.end()):
            raise ValueError("an object names a member twice")
        end = key.end() + len(memoryview(value))
        members[name] = _Member(position, key.end(), end)
        position = _BREAK.match(raw, end).end()  # type: ignore[union-attr]
    return members, end


def with_items(raw: bytes, before: Sequence[bytes], after: Sequence[bytes]) -> bytes:
    """Return a list with other items. `before` are those that it has."""
    if len(before) != len(after):
        return joined(after)
    pieces, position, end = list[bytes](), 0, raw.index(b"[") + 1
    for old, new in zip(before, after, strict=True):
        at = _GAP.match(raw, end).end()  # type: ignore[union-attr]
        if not raw.startswith(old, at):  # a search would read each item first
            raise ValueError("the list has other items")
        pieces += (raw[position:at], new)
        position = end = at + len(old)
    return b"".join((*pieces, raw[position:]))


def spliced(raw: bytes, before: Any, after: Any) -> bytes:
    """Return the JSON of `after` as that of `before` with the least of it changed; `raw` is that of `before`."""
    if before is after or before == after:
        return raw
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        known = fields(raw)
        changes: dict[str, bytes | None] = dict.fromkeys(before.keys() - after.keys())
        for name, value in after.items():
            if name not in before:
                changes[name] = encode(value)
            elif value != before[name]:
                changes[name] = spliced(known[name], before[name], value)
        return with_members(raw, changes)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        old = items(raw)
        return with_items(raw, old, [spliced(*each) for each in zip(old, before, after, strict=True)])
    return encode(after)
