"""One round of a chat completion on its way to the client: all passes but calls of internal tools.

Events that need no change keep their bytes.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import starmap
from operator import is_
from typing import Any, NamedTuple

import orjson

from proxy.chat import called_name
from proxy.chat.reasoning import AS_BLOCKS, AS_TEXT
from proxy.chat.sse import EventSplitter, check_held, event_data, with_data
from proxy.gateway.dialogue import Hand, Round, gap, heard, joined
from proxy.text.json_values import json_object


class _Call:
    """One call, as far as it has arrived."""

    def __init__(self) -> None:
        self.internal: bool | None = None
        """None until its name is known."""
        self.shown: int | None = None
        """Its index among those that the client sees."""
        self.buffered: list[Any] = []
        self.whole: dict[str, Any] = {}


class Calls:
    """Sorts deltas: those of internal calls are kept back, the client's are shown under contiguous indexes.

    What the client gets is in the order of the model: calls behind an internal one wait until it is known whether that
    one is handed on.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._all: list[_Call] = []
        self._at: dict[int | None, _Call] = {}
        self._next = 0
        self._moved = False
        """True if indexes are no longer the upstream's."""
        self.hidden = False
        """True if there was an internal one."""

    @property
    def shown(self) -> bool:
        """True if the client has seen any."""
        return any(call.shown is not None for call in self._all)

    @property
    def waiting(self) -> bool:
        """True if deltas are buffered: their call has no name yet, or stands behind an internal one."""
        return any(call.buffered for call in self._all)

    @property
    def whole(self) -> list[dict[str, Any]]:
        """All calls, as far as they have arrived, in order."""
        return [call.whole for call in self._all]

    def sort(self, entries: Sequence[Any]) -> list[Any]:
        """Return what the client gets to see of the next deltas; entries that need no change are the same objects."""
        shown: list[Any] = []
        for entry in entries:
            if not isinstance(entry, dict):
                shown.append(entry)
                continue
            call = self._call(entry)
            _merge(call.whole, entry, once=_NAMING)
            call.buffered.append(entry)
            if call.internal is None and (name := _name(entry)):
                call.internal = name in self._names
                self.hidden = self.hidden or call.internal
            if call.internal is not None and (call.internal or call.shown is not None or not self.hidden):
                shown += self._released(call)
        return shown

    async def hand_on(self, hand: Hand) -> None:
        """Make internal calls the client's that are handed on to it, each in one piece."""
        for call in [each for each in self._all if each.internal]:
            own = await hand(call.whole)
            if own is not None:
                call.internal, call.whole, call.buffered = False, dict(own), [dict(own)]

    def remaining(self) -> list[Any]:
        """Return the client's buffered calls: whole ones, and those that never got a name."""
        return [entry for call in self._all for entry in self._released(call)]

    def _released(self, call: _Call) -> list[Any]:
        buffered, call.buffered = call.buffered, []
        if call.internal or not buffered:
            return []
        self._moved = self._moved or self.hidden or self.waiting
        if call.shown is None:
            if len(buffered) > 1:
                buffered = [dict(call.whole)]  # SDKs take the first list of calls as it is, so each must be in it once
            index = buffered[0].get("index")
            call.shown = index if isinstance(index, int) and not self._moved else self._next
            self._next = max(self._next, call.shown + 1)
        return [_placed(entry, call.shown) if self._moved or "index" in entry else entry for entry in buffered]

    def _call(self, entry: Mapping[str, Any]) -> _Call:
        """Return the delta's call, by its index; if a server sends none or always the same, by its id."""
        own_index = entry.get("index")
        index = own_index if isinstance(own_index, int) else None
        call = self._at.get(index)
        known = call.whole.get("id") if call is not None else None
        own_id = entry.get("id")
        other = bool(_name(entry)) and call is not None and call.internal is not None
        if call is None or (other and (own_id != known if own_id else index is None)):
            call = self._at[index] = _Call()
            self._all.append(call)
        return call


def _placed(entry: dict[str, Any], index: int) -> dict[str, Any]:
    return entry if entry.get("index") == index else {**entry, "index": index}


def _name(entry: Mapping[str, Any]) -> str:
    for kind in ("function", "custom"):
        inner = entry.get(kind)
        if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            return str(inner["name"])
    return ""


_HEAD = ("id", "created", "model")
"""The fields that all chunks of one stream have in common."""


class _Buffered(NamedTuple):
    """An event that is held back, as it came and as it is to pass."""

    passing: bytes
    event: bytes
    boundary: bytes
    chunk: dict[str, Any] | None


class ChatRound:
    """A round, whole or as a stream. `feed` gives what the client gets at once, `tail` what it gets in the end."""

    def __init__(
        self, names: frozenset[str], before: "ChatRound | None" = None, *, text: str = "", thoughts: int = 0
    ) -> None:
        """`names` are those of the internal tools, `before` is the round before this one.

        `text` is what earlier rounds said, `thoughts` how many blocks of signed reasoning they had.
        """
        self._thoughts = thoughts
        self.names = names
        self._later = before is not None
        self._head = {} if before is None else before.head
        self._text = text
        self._answer: dict[str, Any] = {}
        """The answer where it is no stream."""
        self._is_handed = False
        self._size = 0
        self._events = EventSplitter()
        self._heard: list[bytes] = []
        self._calls: dict[int, Calls] = {}
        self._tail: list[_Buffered] = []

    @property
    def hidden(self) -> bool:
        """True if an internal tool was called."""
        return any(calls.hidden for calls in self._calls.values())

    @property
    def is_changed(self) -> bool:
        """True where the client gets something else than was said in an answer that is no stream."""
        return self._is_handed or any(map(self._is_internal, _calls_of(self._answer)))

    def take(self, answer: Mapping[str, Any]) -> bool:
        """Take in a whole answer; return whether it is one."""
        self._answer = {**answer}
        return isinstance(answer.get("choices"), list)

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets of the next bytes. Raises `UpstreamFailed` where there is no end of them."""
        self._size += len(chunk)
        check_held(self._size)
        return b"".join(starmap(self._event, self._events.feed(chunk)))

    def end(self) -> bytes:
        """Return the client's part of bytes behind the last whole event, and calls that never got a name.

        If there are internal calls, `hand_on` gives the latter.
        """
        pending = self._events.rest()
        last = self._event(pending, b"\n\n" if self._later or self.hidden else b"") if pending else b""
        return last if self.hidden else last + self._remaining()

    async def hand_on(self, hand: Hand) -> bytes:
        """Return what the client gets of internal calls that are handed on to it, and of the calls behind them."""
        for call in filter(self._is_internal, _calls_of(self._answer)):
            if (own := await hand(call)) is not None:
                own = {**own}
                call.clear()
                call |= own
                self._is_handed = True
        for calls in self._calls.values():
            await calls.hand_on(hand)
        return self._remaining()

    def whole(self, answer: Mapping[str, Any], rounds: Sequence["ChatRound"]) -> bytes:
        """Return a whole answer with what all rounds said, the last one's own among them."""
        for choice in _choices(answer):
            if isinstance(message := choice.get("message"), dict):
                _join(message, [each.heard()[0].message for each in rounds[:-1]])
                self._take_out_internal(message, choice)
        return orjson.dumps(answer)

    def _take_out_internal(self, message: dict[str, Any], choice: dict[str, Any]) -> None:
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not any(map(self._is_internal, calls)):
            return
        message["tool_calls"] = [call for call in calls if not self._is_internal(call)]
        if not message["tool_calls"]:
            del message["tool_calls"]
            message["content"] = message.get("content") or ""
            if choice.get("finish_reason") == "tool_calls":
                choice["finish_reason"] = "stop"

    def _is_internal(self, call: Any) -> bool:
        return isinstance(call, dict) and called_name(call) in self.names

    def tail(self) -> bytes:
        """Events of the end, held back because the stream may go on, or something has to be remembered first."""
        return b"".join(map(self._ended, self._tail))

    @property
    def head(self) -> dict[str, Any]:
        """The id, time and model of this stream."""
        head: dict[str, Any] = dict(self._head)
        for data in self._heard if not self._later else ():
            chunk = json_object(data)
            head |= {key: chunk[key] for key in _HEAD if chunk.get(key) and key not in head}
            if len(head) == len(_HEAD):
                break
        return head

    def heard(self) -> tuple[Round, dict[str, Any]]:
        """Return what the model said in this round, and what it cost. Several choices are no whole answer."""
        message: dict[str, Any] = {}
        usage: dict[str, Any] = {}
        finish: Any = None
        if self._answer:
            choices, used = _choices(self._answer), self._answer.get("usage")
            only = choices[0] if len(choices) == 1 and isinstance(choices[0].get("message"), dict) else {}
            round_ = heard(only.get("message", {}), only.get("finish_reason") if only else "length", self.names)
            return round_, used if isinstance(used, dict) else {}
        whole = len(self._calls) == 1
        for chunk in map(json_object, self._heard):
            used = chunk.get("usage")
            usage = used if isinstance(used, dict) else usage
            whole = whole and not chunk.get("error")
            for choice in _choices(chunk):
                whole = whole and _place(choice) in self._calls
                finish = choice.get("finish_reason") or finish
                delta = choice.get("delta")
                parts = delta.items() if isinstance(delta, dict) else ()
                _merge(message, {key: part for key, part in parts if key not in ("role", "tool_calls")})
        calls = [call for each in self._calls.values() for call in each.whole]
        round_ = heard({**message, "tool_calls": calls}, finish if whole else "length", self.names)
        return round_, usage

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        data = event_data(event)
        chunk: dict[str, Any] | None = None
        if data[:1] == b"{":
            self._heard.append(data)
            if self._later or self._calls or b"tool_calls" in data:
                chunk = json_object(data) or None
        if chunk is not None:
            passing = self._shown(chunk, event, boundary)
            ends = not chunk.get("choices") or any(choice.get("finish_reason") for choice in _choices(chunk))
            ends = ends and not chunk.get("error")
        else:
            passing, ends = event + boundary, data == b"[DONE]"
        if ends and (self._later or self.hidden):
            rest = _parted(chunk) if chunk is not None else None
            if chunk is not None and rest is not None:
                passing = with_data(event, chunk) + boundary
            self._tail.append(_Buffered(passing, event, boundary, chunk))
            return b"" if rest is None else with_data(event, rest) + boundary
        return passing

    def _shown(self, chunk: dict[str, Any], event: bytes, boundary: bytes) -> bytes:
        """Return an event without what is not the client's; nothing where it says nothing else."""
        changed = False
        if self._later and "choices" in chunk:
            changed = True
            chunk |= self._head
        for choice in _choices(chunk):
            changed = self._sort(choice) or changed
            if self._later:
                self._continue(choice.get("delta"))
        if not changed:
            return event + boundary
        return with_data(event, chunk) + boundary if _says_something(chunk) else b""

    def _sort(self, choice: dict[str, Any]) -> bool:
        """Take the internal calls out of a choice; return True if that changed it."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return False
        listed = delta.get("tool_calls")
        entries = listed if isinstance(listed, list) else []
        calls = self._calls.setdefault(_place(choice), Calls(self.names))
        shown = calls.sort(entries)
        if choice.get("finish_reason") and not calls.hidden:
            shown += calls.remaining()
        if len(shown) == len(entries) and all(map(is_, shown, entries)):
            return False
        delta["tool_calls"] = shown
        if not shown:
            del delta["tool_calls"]
        return True

    def _continue(self, delta: Any) -> None:
        """Make the delta of a later round one that follows those of the earlier ones."""
        if not isinstance(delta, dict):
            return
        delta.pop("role", None)
        for block in blocks if isinstance(blocks := delta.get(AS_BLOCKS), list) else ():
            if isinstance(block, dict) and isinstance(block.get("index"), int):
                block["index"] += self._thoughts
        content = delta.get("content")
        if isinstance(content, str) and content:
            delta["content"] = gap(self._text, content) + content
            self._text = ""

    def _remaining(self) -> bytes:
        chunks: list[bytes] = []
        for index, calls in self._calls.items():
            if calls.waiting:
                choice = {"index": index, "delta": {"tool_calls": calls.remaining()}, "finish_reason": None}
                chunk = {**self.head, "object": "chat.completion.chunk", "choices": [choice]}
                chunks.append(b"data: " + orjson.dumps(chunk) + b"\n\n")
        return b"".join(chunks)

    def _ended(self, buffered: "_Buffered") -> bytes:
        """Return an event of the end; where the client got no call, it is not told that it got one."""
        changed = False
        for choice in _choices(buffered.chunk or {}):
            calls = self._calls.get(_place(choice))
            if choice.get("finish_reason") == "tool_calls" and calls and calls.hidden and not calls.shown:
                choice["finish_reason"], changed = "stop", True
        return with_data(buffered.event, buffered.chunk or {}) + buffered.boundary if changed else buffered.passing


def _calls_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls in a whole answer."""
    messages = [message for choice in _choices(answer) if isinstance(message := choice.get("message"), dict)]
    lists = [calls for message in messages if isinstance(calls := message.get("tool_calls"), list)]
    return [call for calls in lists for call in calls if isinstance(call, dict)]


def _join(message: dict[str, Any], earlier: Sequence[Mapping[str, Any]]) -> None:
    """Put what earlier rounds said in front of what the last one says."""
    for key in ("content", *AS_TEXT):
        texts = [text for each in earlier if isinstance(text := each.get(key), str) and text]
        last = message.get(key)
        if texts and (last is None or isinstance(last, str)):
            message[key] = reduce(joined, (*texts, last or ""), "")


def _choices(chunk: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = chunk.get("choices")
    return [choice for choice in listed if isinstance(choice, dict)] if isinstance(listed, list) else []


def _place(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _says_something(chunk: Mapping[str, Any]) -> bool:
    choices = _choices(chunk)
    if not choices or isinstance(chunk.get("usage"), dict):
        return True
    deltas = [choice.get("delta") for choice in choices]
    spoken = any(any(delta.values()) if isinstance(delta, dict) else delta for delta in deltas)
    return spoken or any(choice.get("finish_reason") for choice in choices)


def _parted(chunk: dict[str, Any]) -> dict[str, Any] | None:
    """Take what an event of the end says besides out of it, as a chunk of its own: the end waits, and may not be sent.

    None where it says nothing.
    """
    choices = _choices(chunk)
    if not any(isinstance(delta := choice.get("delta"), dict) and any(delta.values()) for choice in choices):
        return None
    rest = {key: value for key, value in chunk.items() if key != "usage"}
    rest["choices"] = [{**choice, "finish_reason": None} for choice in choices]
    for choice in choices:
        choice["delta"] = {}
        choice.pop("logprobs", None)
    return rest


_NAMING = frozenset({"index", "type", "id", "name", "format"})
"""Keys that pieces may repeat; all other texts are put together."""


def _merge(known: dict[str, Any], more: Mapping[str, Any], *, once: frozenset[str] = frozenset()) -> None:
    """Put a piece to what is known. Keys of `once` keep their first value."""
    for key, value in more.items():
        before = known.get(key)
        if value is None or (key in once and before):
            continue
        if isinstance(value, dict):
            known[key] = dict(before) if isinstance(before, dict) else {}
            _merge(known[key], value, once=once)
        elif isinstance(value, list):
            known[key] = _added(before if isinstance(before, list) else [], value)
        elif isinstance(value, str) and isinstance(before, str):
            known[key] = before + value
        else:
            known[key] = value


def _added(known: list[Any], entries: list[Any]) -> list[Any]:
    """Return a list with more of it: an entry with the index of an earlier one goes on with that."""
    extended = list(known)
    for entry in entries:
        index = entry.get("index") if isinstance(entry, dict) else None
        begun = next((one for one in extended if isinstance(one, dict) and one.get("index") == index), None)
        if index is None or begun is None:
            extended.append(dict(entry) if isinstance(entry, dict) else entry)
        else:
            _merge(begun, entry, once=_NAMING)
    return extended
