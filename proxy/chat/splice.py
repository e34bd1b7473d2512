"""Edits of JSON as bytes: what is not edited keeps the bytes that a client sent, white space included."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import orjson

from proxy.chat import encode

FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
"""Read an object or a list, and leave what is in it as bytes."""

_KEY = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*')
BREAK = re.compile(rb"\s*,?")
"""White space and a comma behind a member or an item."""
GAP = re.compile(rb"[\s,]*")
"""White space and commas between the items of a list."""
_SURROGATE = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""The escapes of a surrogate pair, or of half of one."""


def fields(raw: bytes) -> dict[str, bytes]:
    """Return the members of an object, each as its bytes, `readable`."""
    return {key: bytes(value) for key, value in _read(raw)[1].items()}


def _read(raw: bytes) -> tuple[bytes, Mapping[str, msgspec.Raw]]:
    """Return an object's bytes, which are as long where they had to be made `readable`, and its members."""
    try:
        return raw, FIELDS.decode(raw)
    except msgspec.DecodeError:
        return (read := readable(raw)), FIELDS.decode(read)


def readable(raw: bytes) -> bytes:
    """Return JSON with U+FFFD for each half of a surrogate pair that stands alone; the same bytes where none does.

    JSON's grammar allows one, and JavaScript writes it where it cuts a text. No text can hold it.
    """
    if not _SURROGATE.search(raw) or b"\0" in raw:
        return raw
    plain = raw.replace(b"\\\\", b"\0\0")  # so that a backslash begins an escape
    read = _SURROGATE.sub(lambda found: found[1] or rb"\ufffd", plain)
    return raw if read == plain else read.replace(b"\0\0", b"\\\\")


def items(raw: bytes) -> list[bytes]:
    """Return the items of a list, each as its bytes."""
    return [bytes(item) for item in ITEMS.decode(raw)]


def joined(parts: Sequence[bytes]) -> bytes:
    """Return a list of these items."""
    return b"[" + b",".join(parts) + b"]"


class Member(NamedTuple):
    """The places of a member of an object: of its name, of its value, and behind that."""

    begin: int
    start: int
    end: int


def members(raw: bytes, values: Mapping[str, msgspec.Raw] | None = None) -> dict[str, Member]:
    """Return where each member of an object stands; `values` are those that were decoded already.

    Raises `ValueError` for one that names a member twice: the decoded members lie one behind the other only where
    there is no repetition.
    """
    if values is None:
        raw, values = _read(raw)
    places, position = dict[str, Member](), raw.index(b"{") + 1
    for name, value in values.items():
        key = _KEY.match(raw, position)
        if key is None or orjson.loads(key[1]) != name or not raw.startswith(memoryview(value), key.end()):
            raise ValueError("an object names a member twice")
        end = key.end() + len(memoryview(value))
        places[name] = Member(position, key.end(), end)
        position = BREAK.match(raw, end).end()  # type: ignore[union-attr]
    if raw[position:].strip(b" \t\r\n}"):
        raise ValueError("an object names a member twice")
    return places


def with_members(raw: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """Return an object with some members set, or removed where the change is None."""
    if not changes:
        return raw
    own = members(raw)
    changes = {name: value for name, value in changes.items() if value is not None or name in own}
    if not changes.keys() <= own.keys() or None in changes.values():
        parts = [
            raw[each.begin : each.start] + (changes.get(name) or raw[each.start : each.end])
            for name, each in own.items()
            if changes.get(name, b"") is not None
        ]
        parts += [encode(name) + b":" + value for name, value in changes.items() if value and name not in own]
        end = max((each.end for each in own.values()), default=raw.index(b"{") + 1)
        return b"{" + b",".join(parts) + raw[end:]
    made, position = list[bytes](), 0
    for name, each in own.items():
        if (value := changes.get(name)) is not None:
            made += (raw[position : each.start], value)
            position = each.end
    return b"".join((*made, raw[position:]))


def with_items(raw: bytes, before: Sequence[bytes], after: Sequence[bytes]) -> bytes:
    """Return a list with other items. `before` are those that it has."""
    if len(before) != len(after):
        return joined(after)
    for comma in (b",", b", "):  # most lists are written so; this takes a tenth of the time
        if b"[%b]" % comma.join(before) == raw:
            return b"[%b]" % comma.join(after)
    pieces, position, end = list[bytes](), 0, raw.index(b"[") + 1
    for old, new in zip(before, after, strict=True):
        at = GAP.match(raw, end).end()  # type: ignore[union-attr]
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
    if isinstance(before, list) and isinstance(after, list):
        old = items(raw)
        if len(before) == len(after):
            return with_items(raw, old, [spliced(*each) for each in zip(old, before, after, strict=True)])
        return joined([*_known(old, before, after)])
    return encode(after)


def _known(raws: Sequence[bytes], before: Sequence[Any], after: Sequence[Any]) -> Iterator[bytes]:
    """Yield the items of a list of another length: what was in it before, in this order, has the bytes of before."""
    place = 0
    for item in after:
        at = next((n for n in range(place, len(before)) if before[n] == item), None)
        yield encode(item) if at is None else raws[at]
        place = place if at is None else at + 1
