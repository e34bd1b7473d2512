"""The body of a chat request: looked at shallowly when its bytes only pass through, parsed when a step reads it.

Both ways refuse what no upstream can read, with an error that names the place. Parsing keeps the client's bytes of each
message, tool and field, so that what nobody changes is sent on as it came.

Every value of a body costs memory and time once it is parsed: a megabyte of empty lists takes twenty times that. So a
large body is scanned first, in pieces, so that other threads run meanwhile.
"""

import asyncio
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
import orjson

from proxy.chat import ChatRequest, Fields, Item, Message, Tool, encode, listed
from proxy.chat.errors import BadRequest, wrong
from proxy.chat.folds import Folds
from proxy.chat.splice import FIELDS, GAP, ITEMS, Member, members, readable
from proxy.text import arrays

_INVALID = (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError)

EMPTY = re.compile(rb"\[\s*\]")
_NEXT = re.compile(rb"[ \t\r\n]*(?:,[ \t\r\n]*(?=[^] \t\r\n])|(?=\]))")
"""White space and a comma behind an item of a list that another one follows, or white space at the end of the list."""

Check = Callable[[Mapping[str, Any], str], None]
"""Raises `BadRequest` for an item that has a wrong shape, with its place."""

_SHORT = 4096
"""Bytes below which a text is parsed faster than it is compared with an earlier one."""
_OPENING = 256
"""Bytes of the first user message, or of a list of tools, by which an earlier text is looked for."""

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
_VALUES = b",[{"
"""A sign of each value, besides those in texts."""

Result = TypeVar("Result")


async def do_sized(size: int, job: Callable[[], Result]) -> Result:
    """Do a job that takes a few milliseconds for each megabyte; one of many bytes in a thread."""
    return job() if size <= SMALL else await asyncio.to_thread(job)


class ParsedList(Generic[Item]):
    """The client's list of messages or tools, in the text that it stands in, and what it was parsed to.

    The next request of a conversation begins with the same bytes. It takes the same objects, and with them all that is
    known of each, and only what is new is parsed. Where no step reads the list, only its places are known.
    """

    __slots__ = ("_ends", "_pieces", "_text", "absent", "fields", "folds", "items", "start", "values")

    def __init__(
        self,
        text: bytes,
        start: int,
        ends: Iterable[int] = (),
        items: tuple[Item, ...] = (),
        pieces: Iterable[int] = (),
        folds: Folds | None = None,
        absent: set[bytes] | None = None,
    ) -> None:
        """Take the place of the list, those behind its items, and the counts of parts and calls up to each."""
        self._text, self.start, self.items = text, start, listed(items)
        # an array is not copied: none is changed
        self._ends = ends if isinstance(ends, array) else array("q", ends)
        self._pieces = pieces if isinstance(pieces, array) else array("q", pieces)
        self.folds = Folds() if folds is None else folds
        self.absent: set[bytes] = set() if absent is None else absent
        """Bytes that the text was searched for in vain."""
        self.values = 0
        """The most values that the text holds, if it is large."""
        self.fields: Mapping[str, bytes] = {}
        """The fields of the body whose text it is, without its own items; empty where they are not known."""

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def is_parsed(self) -> bool:
        return len(self.items) == len(self._ends)

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, with what steps derive from its items: as measured.

        A parsed text is there three times: whole, as the bytes of each item, and as its strings.
        """
        beside = sum(map(len, self.fields.values()))
        return len(self._text) * (3 if self.is_parsed else 1) + 2000 * len(self.items) + beside

    @property
    def pieces(self) -> int:
        return self._pieces[-1] if self._pieces else 0

    @property
    def _end(self) -> int:
        return self._ends[-1] if self._ends else self.start + 1

    def start_of(self, text: bytes) -> "ParsedList[Item]":
        """Return what another text begins with: the same bytes, up to the first items of the list."""
        own = memoryview(self._text)
        if text is self._text or text.startswith(own[: self._end]):
            return self._first(len(self), text)
        low, high = 0, len(self) - 1  # the last item is another one
        while low < high:
            middle = (low + high + 1) // 2
            start, end = self._ends[low - 1] if low else 0, self._ends[middle - 1]
            low, high = (middle, high) if text.startswith(own[start:end], start) else (low, middle - 1)
        return self._first(low, text)

    def _first(self, count: int, text: bytes) -> "ParsedList[Item]":
        if count and not _NEXT.match(text, self._ends[count - 1]):
            count = 0
        items = self.items if count == len(self) else self.items[:count]  # all of them stay the same list
        return ParsedList(text, self.start, self._ends[:count], items, self._pieces[:count], self.folds)

    @property
    def rest(self) -> int:
        """The place of the first item behind these, or of the end of the list."""
        found = _NEXT.match(self._text, self._end)
        return self._end if found is None else found.end()

    def change_in(self, text: bytes, begun: "ParsedList[Item]") -> bytes | None:
        """Return the list of what is new in a body that begins with `begun` and ends as this one; None for another."""
        behind = memoryview(self._text)[self._end :]
        rest, end = begun.rest, len(text) - len(behind)
        if not self.fields or bytes(behind[:1]) != b"]" or rest > end or not text.endswith(behind):
            return None
        new = b"[%b]" % text[rest:end]
        try:
            ITEMS.decode(new)
        except _INVALID:
            return None
        return new

    def with_rest(self, raws: Sequence[bytes], items: Sequence[Item] = ()) -> "ParsedList[Item]":
        """Return the list with the items behind these, as their bytes and as what was parsed of them."""
        if not raws:
            return self
        more, end = [], self._end
        for raw in raws:
            end = GAP.match(self._text, end).end() + len(raw)  # type: ignore[union-attr]
            more.append(end)
        pieces = accumulate(map(_pieces, items), initial=self.pieces)
        next(pieces)
        ends, parsed, counts = self._ends + array("q", more), (*self.items, *items), self._pieces + array("q", pieces)
        made = ParsedList(self._text, self.start, ends, parsed, counts, self.folds, self.absent)
        made.values, made.fields = self.values, self.fields
        return made


class EarlierLists(Protocol):
    """The lists of a tenant's earlier requests."""

    def get(self, opening: bytes) -> ParsedList[Any] | None:
        """Return the latest one with this opening."""

    def put(self, opening: bytes, parsed: ParsedList[Any], size: int) -> None:
        """Keep one of so many bytes in place of the one before it."""


class Body:
    """A JSON object of which only the top level is known so far: a chat request, unless a wire says otherwise.

    Raises `BadRequest` where the bytes are no JSON object or name a field twice: a second `model` could be read by the
    upstream instead of the one that was checked. `Model` is a second one too: servers in Go read names in any case.
    """

    wire: ClassVar[str] = "chat"
    """The form in which its client speaks."""
    path: ClassVar[str] = "/chat/completions"
    """The path of such a body, below `/v1`."""
    conversation: ClassVar[tuple[str, ...]] = ("messages", "tools")
    """The fields that hold the conversation."""

    def __init__(self, raw: bytes, earlier: EarlierLists | None = None) -> None:
        """Take the bytes, and the `earlier` bodies: what one of them began with is not looked at again."""
        self.raw = self._read = raw
        self.earlier = earlier
        self._begun: ParsedList[Any] | None = None
        """The items of the conversation's list that an earlier body has, too: `_read` is what else is read."""
        self._absent: Set[bytes] = frozenset()
        """Bytes that do not stand in these items."""
        opening = None if earlier is None or len(raw) < _SHORT else _opening(self.wire, raw, raw.find(b'"user"'))
        known = None if earlier is None or opening is None else earlier.get(opening)
        fields = None if known is None else self._resume(known)
        values = self._check_size()
        self._fields: Mapping[str, Any] = self._decoded() if fields is None else fields
        self._opening = opening
        if opening is not None:
            self._keep(values)

    def _resume(self, known: ParsedList[Any]) -> Mapping[str, bytes] | None:
        """Read no more than what is new, where the body begins as an earlier one does.

        Return its fields, with the new items alone, where it also ends as that one does: then they are that one's.
        """
        begun = known.start_of(self.raw)
        if not begun:
            return None
        self._begun, self._absent, begun.values = begun, known.absent, known.values
        new = known.change_in(self.raw, begun)
        if new is None:
            self._read = self.raw[: begun.start + 1] + self.raw[begun.rest :]
            return None
        self._read, begun.fields = new, known.fields
        return {**known.fields, self.conversation[0]: new}

    def _decoded(self) -> Mapping[str, Any]:
        """Return the fields. Raise `BadRequest` where the bytes are no JSON object or name one twice."""
        try:
            fields = FIELDS.decode(self._read)
        except _INVALID:
            self._begun, self._read = None, readable(self.raw)
            try:
                fields = FIELDS.decode(self._read)
            except _INVALID as error:
                told = f"the body is not valid JSON: {_reason(error, self.raw)}"
                raise BadRequest(told, code="invalid_json") from None
        check_fields(fields)
        if len({*map(str.casefold, fields)}) < len(fields) or self._names_twice(fields):
            raise BadRequest("the body names a field twice", code="invalid_json")
        return fields

    @property
    def unread(self) -> int:
        """The bytes that `parse` makes values of, about: an earlier body had the others."""
        return len(self._read if self._begun and self._begun.is_parsed else self.raw)

    def _check_size(self) -> int:
        """Return the most values that a large body holds. Raise `BadRequest` where these are too many."""
        if len(self.raw) <= SMALL:
            return 0
        values = self._begun.values + _count(self._read, _VALUES) if self._begun and self._begun.values else MOST_KEYS
        return values if values < MOST_KEYS else check_size(self.raw, MOST_VALUES)

    def _keep(self, values: int) -> None:
        """Keep the places of the conversation's items for later bodies."""
        name = self.conversation[0]
        if self._begun is None:
            if self._read is not self.raw or bytes(memoryview(self._fields.get(name, b""))[:1]) != b"[":
                return
            self._begun = ParsedList(self.raw, members(self.raw, self._fields)[name].start)
        self._begun.values = values
        if not self._begun.fields:
            self._begun.fields = {key: b"" if key == name else bytes(raw) for key, raw in self._fields.items()}
        if self.earlier is not None and self._opening is not None and not self._begun.items:
            placed = self._begun.with_rest(ITEMS.decode(self._fields[name]))
            self.earlier.put(self._opening, placed, placed.size)

    def _names_twice(self, fields: Mapping[str, Any]) -> bool:
        """Return whether a field comes twice; a decoder by itself keeps the last and says nothing.

        If each comes once, the body has no more bytes than its fields, where it is compact, and the same bytes, where
        it is written as Python's `json` does by default. Any other body is walked through.
        """
        length = sum(map(len, fields)) + sum(map(len, map(memoryview, fields.values())))  # type: ignore[arg-type]
        if len(self._read) == length + 4 * len(fields) + 1:
            return False
        if len(self._read) == length + 6 * len(fields) and self._is_plain(fields):
            return False
        return self._members(fields) is None

    def _is_plain(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the body is its fields, once each, as Python's `json` writes them; nothing of it is copied."""
        end = 0
        for name, value in fields.items():
            begin = b'%b"%b": ' % (b", " if end else b"{", name.encode())
            if not self._read.startswith(begin, end) or not self._read.startswith(value, end + len(begin)):
                return False
            end += len(begin) + len(memoryview(value))
        return True

    def _members(self, fields: Mapping[str, Any]) -> dict[str, Member] | None:
        try:
            return members(self._read, fields)
        except ValueError:
            return None

    def get(self, name: str) -> Any:
        """Return the parsed value of a top-level field, or None."""
        return parse_value(self.raw_of(name), name) if name in self._fields else None

    def raw_of(self, name: str) -> bytes:
        raw, begun = self._fields[name], self._begun
        if begun and name == self.conversation[0]:
            return self.raw[begun.start : begun.rest + len(memoryview(raw)) - 1]
        return bytes(raw)

    def holds(self, sign: bytes) -> bool:
        """Return whether some bytes, which the items of the conversation have whole if at all, stand in the body."""
        if sign in (self._read if self._begun and sign in self._absent else self.raw):
            return True
        if self._begun is not None:
            self._begun.absent.add(sign)
        return False

    def raws_of(self, name: str) -> list[bytes]:
        """Return the client's own bytes of each item of a list; empty where there is none. Raises `BadRequest`."""
        if not self._has(name):
            return []
        try:
            return [bytes(raw) for raw in ITEMS.decode(self.raw_of(name))]
        except msgspec.ValidationError:
            wrong(name, "must be a list of objects")

    @cached_property
    def model(self) -> str:
        """The model that the client asks for. Raises `BadRequest` where there is none."""
        model = self.get("model")
        if not isinstance(model, str) or not model:
            raise BadRequest("model must be a string that names a model", param="model", code="invalid_type")
        return model

    @property
    def stream(self) -> bool:
        return self.get("stream") is True

    def _has(self, name: str) -> bool:
        raw: Any = self._fields.get(name)  # as a view, no large field is copied
        return raw is not None and bytes(memoryview(raw)[:5]) != b"null"

    def rest(self) -> Fields:
        raw = {name: bytes(raw) for name, raw in self._fields.items() if name not in self.conversation}
        return Fields.unread(raw, parse_value)

    @property
    def is_compaction(self) -> bool:
        return False

    def check_messages(self) -> None:
        """Raise `BadRequest` unless there is a list of messages; their shapes are left to the upstream."""
        raw = memoryview(self._fields.get("messages", b"null"))
        if bytes(raw[:1]) != b"[":
            wrong("messages", "must be a list of messages")
        if EMPTY.match(raw) and not self._begun:
            raise BadRequest("messages is empty: at least one is needed", param="messages", code="empty_array")

    def encoded(self, changes: Mapping[str, Any]) -> bytes:
        """Return the body with some top-level fields set, all others as the client sent them."""
        fields = {key: self.raw_of(key) for key in self._fields}
        if self._read is not self.raw and not self._begun and (own := self._members(self._fields)):
            fields = {key: self.raw[each.start : each.end] for key, each in own.items()}
        fields |= {key: encode(value) for key, value in changes.items()}
        return b"{" + b",".join(encode(key) + b":" + value for key, value in fields.items()) + b"}"

    def parse(self, most: int | None = None) -> ChatRequest:
        """Return the request, with the shapes of messages and tools checked. Raises `BadRequest`.

        `most` bounds messages, tools, and the parts and calls of all messages: each takes time that nobody else has.
        """
        model = self.model
        self.check_messages()
        messages = self.parse_conversation(Message, _check_message, most)
        tools: tuple[Tool, ...] = ()
        if self._has("tools"):
            tools = parse_list("tools", self.raw_of("tools"), Tool, _check_callable, most, self.earlier).items
        rest = self._rest(("model", "messages", "tools") if tools else ("model", "messages"))
        return ChatRequest(model, messages.items, tools, rest, tuple(self._fields), folds=messages.folds.begin())

    def parse_conversation(self, kind: type[Item], check: Check, most: int | None) -> ParsedList[Item]:
        """Return the conversation's list, which is a field of the body. Raises `BadRequest`."""
        name, begun = self.conversation[0], self._begun
        if begun is None or self.earlier is None or self._opening is None:
            return parse_list(name, self.raw_of(name), kind, check, most)
        rest = bytes(self._fields[name])
        if not begun.is_parsed:
            values, rest = begun.values, self.raw_of(name)
            fields, begun = begun.fields, ParsedList(self.raw, begun.start, absent=begun.absent)
            begun.values, begun.fields = values, fields
        items = _with_parsed(begun, name, rest, kind, check, most)
        self.earlier.put(self._opening, items, items.size)
        return items

    def _rest(self, others: Collection[str], read: Callable[[bytes, str], Any] | None = None) -> Fields:
        """Return all fields but the others, for a request; `read` makes a value of a field's bytes."""
        rest = {key: bytes(raw) for key, raw in self._fields.items() if key not in others}
        for key, raw in rest.items():  # a field that nobody reads is sent on as it is
            _check_utf8(raw, key)
        return Fields.unread(rest, read or parse_value)


def parse_list(
    name: str,
    raw: bytes,
    kind: type[Item],
    check: Check,
    most: int | None = None,
    earlier: EarlierLists | None = None,
    least: int = _SHORT,
) -> ParsedList[Item]:
    """Return a list of objects, each checked with its place. Raises `BadRequest`.

    `most` bounds the items and their parts. What an `earlier` list of `least` bytes began with is not parsed again.
    """
    opening = None if earlier is None or len(raw) < least else _opening(f"{kind.__name__} {name}", raw)
    known = None if earlier is None or opening is None else earlier.get(opening)
    start: ParsedList[Item] = ParsedList(raw, 0) if known is None else known.start_of(raw)
    items = _with_parsed(start, name, b"[" + raw[start.rest :] if start else raw, kind, check, most)
    if earlier is not None and opening is not None and items is not known:
        earlier.put(opening, items, items.size)
    return items


def _with_parsed(
    start: ParsedList[Item], name: str, rest: bytes, kind: type[Item], check: Check, most: int | None
) -> ParsedList[Item]:
    """Return a list with its `rest` parsed, which is one of the items behind the first."""
    try:
        raws = [bytes(raw) for raw in ITEMS.decode(rest)]
    except msgspec.ValidationError:
        wrong(name, "must be a list of objects")
    if most is not None:
        _check_length(name, len(start) + len(raws), most)
    parsed = []
    for index, text in enumerate(raws, len(start)):
        item = parse_value(text, f"{name}[{index}]")
        if not isinstance(item, dict):
            wrong(f"{name}[{index}]", "must be an object")
        parsed.append(kind(item, text))
    for index, item in enumerate(parsed, len(start)):
        check(item, f"{name}[{index}]")
    items = start.with_rest(raws, parsed)
    if most is not None:
        _check_length(name, items.pieces, most)
    return items


def _opening(kind: str, raw: bytes, user: int = 0) -> bytes:
    """Return what an earlier text is looked for by: a part of it, of a body the beginning of the first user message."""
    start = max(user, 0)
    return f"{kind} {start} ".encode() + raw[start : start + _OPENING]


def parse_value(raw: Any, place: str) -> Any:
    """Return the value of some JSON. Raises `BadRequest`."""
    raw = memoryview(raw)
    if len(raw) > MOST_ITEM_VALUES:
        check_size(bytes(raw), MOST_ITEM_VALUES, place)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"{place} is not valid JSON: {error.msg}", param=place, code="invalid_json") from None
    if len(raw) > MOST_DEPTH:
        check_depth(value, bytes(raw), place)
    return value


def _check_utf8(raw: bytes, place: str) -> None:
    try:
        raw.decode()
    except UnicodeDecodeError:
        told = f"{place} is not valid JSON: str is not valid UTF-8"
        raise BadRequest(told, param=place, code="invalid_json") from None


def _reason(error: Exception, raw: bytes) -> str:
    if isinstance(error, RecursionError):
        return DEEP
    if isinstance(error, msgspec.ValidationError):
        return "it must be an object"
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as better:
        return better.msg
    return str(error)


def _check_length(name: str, length: int, most: int) -> None:
    if length > most:
        told = f"Invalid '{name}': array too long. Expected at most {most:,}, with all parts and calls, got {length:,}."
        raise BadRequest(told, param=name, code="array_above_max_length")


def _pieces(item: Mapping[str, Any]) -> int:
    lists = (item.get("content"), item.get("tool_calls"))
    return sum(len(each) for each in lists if isinstance(each, list))


def _check_message(message: Mapping[str, Any], place: str) -> None:
    if not isinstance(message.get("role"), str):
        wrong(f"{place}.role", "must be a string")
    content = message.get("content")
    if isinstance(content, list):
        for index, part in enumerate(content):
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                wrong(f"{place}.content[{index}]", "must be an object with a type")
            if part["type"] == "text" and not isinstance(part.get("text"), str):
                wrong(f"{place}.content[{index}].text", "must be a string")
    elif content is not None and not isinstance(content, str):
        wrong(f"{place}.content", "must be a string, a list of parts or null")
    if message["role"] == "tool" and not isinstance(message.get("tool_call_id"), str | None):
        wrong(f"{place}.tool_call_id", "must be a string")
    _check_calls(message.get("tool_calls"), f"{place}.tool_calls")


def _check_calls(calls: Any, place: str) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        wrong(place, "must be a list")
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            wrong(f"{place}[{index}]", "must be an object")
        if not isinstance(call.get("id"), str | None):
            wrong(f"{place}[{index}].id", "must be a string")
        _check_callable(call, f"{place}[{index}]")


def _check_callable(item: Mapping[str, Any], place: str) -> None:
    for kind in ("function", "custom"):
        if kind in item:
            inner = item[kind]
            if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
                wrong(f"{place}.{kind}", "must be an object with a name")


# --- bounds -----------------------------------------------------------------------------------------------------------


def check_size(raw: bytes, most: int, place: str = "the body") -> int:
    """Return the most values that some JSON has. Raise `BadRequest` if it has more than `most`, or too many keys."""
    # most bodies are far from the bounds even if each sign in their texts counts
    values = _count(raw, _VALUES)
    if values <= most and (values <= MOST_KEYS or _count(raw, b":") <= MOST_KEYS):
        return values  # in front of each key is a sign that counts
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
    return values


def _count(raw: bytes, signs: bytes) -> int:
    """Return how often these bytes stand in some others; numpy takes a quarter of the time of `bytes.count`."""
    numpy = arrays.numpy()
    view = numpy.frombuffer(raw, numpy.uint8)
    return sum(int(numpy.count_nonzero(view == sign)) for sign in signs)


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
