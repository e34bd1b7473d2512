"""One round of a chat completion on its way to the client: all passes but calls of internal tools.

Events that need no change keep their bytes.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from operator import is_
from typing import Any, Self

import orjson

from proxy.chat import called_name
from proxy.chat.reasoning import AS_BLOCKS, AS_TEXT
from proxy.chat.sse import event_data, with_data
from proxy.text.json_values import json_object, json_objects
from proxy.wires.rounds import AnswerRound, Hand, RoundResult


class Calls:
    """Sorts the deltas of one choice: the client's calls are shown under contiguous indexes, internal ones kept back.

    What the client gets is in the order of the model: calls behind an internal one, or behind one whose first delta has
    no name, wait for the end of the round. Only then is it known whether that one is handed on.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.all: list[dict[str, Any]] = []
        """All calls, as far as they have arrived, in order."""
        self.indexes: dict[int, int] = {}
        """By the place of a call, its index among those that the client sees."""
        self.hidden = False
        """True if there was an internal one."""
        self._at: dict[int | None, int] = {}
        self._next = 0

    def is_internal(self, call: Mapping[str, Any]) -> bool:
        return called_name(call) in self._names

    def take(self, calls: Any) -> None:
        self.all = [{**call} for call in json_objects(calls)]
        self.hidden = any(map(self.is_internal, self.all))

    def sort(self, entries: Sequence[Any]) -> list[Any]:
        """Return what the client gets to see of the next deltas; entries that need no change are the same objects."""
        shown: list[Any] = []
        for entry in entries:
            if not isinstance(entry, dict):
                shown.append(entry)
                continue
            begun, place = len(self.all), self._place(entry)
            merge(self.all[place], entry, once=_NAMING)
            self.hidden = self.hidden or self.is_internal(self.all[place])
            is_next = begun == place == len(self.indexes) and called_name(entry) and not self.hidden
            if is_next or place in self.indexes:
                own, index = entry.get("index"), self._index(place, entry.get("index"))
                shown.append(entry if own in (None, index) else {**entry, "index": index})
        return shown

    async def hand_on(self, hand: Hand) -> None:
        """Make internal calls the client's that are handed on to it."""
        for place, call in enumerate(self.all):
            if self.is_internal(call) and (own := await hand(call)) is not None:
                self.all[place] = {**own}

    def remaining(self) -> list[Any]:
        """Return the client's calls that it has not got yet, each in one piece: SDKs take the first list as it is."""
        return [
            {**call, "index": self._index(place)}
            for place, call in enumerate(self.all)
            if place not in self.indexes and not self.is_internal(call)
        ]

    def _index(self, place: int, own: Any = None) -> int:
        """Return the index that a call has for the client; `own` is the server's."""
        if place not in self.indexes:
            self.indexes[place] = own if isinstance(own, int) else self._next
            self._next = max(self._next, self.indexes[place] + 1)
        return self.indexes[place]

    def _place(self, entry: Mapping[str, Any]) -> int:
        """Return the place of a delta's call, by its index; if a server sends none or always the same, by its id."""
        index = own if isinstance(own := entry.get("index"), int) else None
        place = self._at.get(index)
        is_other = place is None
        if place is not None and called_name(entry) and called_name(self.all[place]):
            known, own_id = self.all[place].get("id"), entry.get("id")
            is_other = own_id != known if own_id else index is None
        if place is None or is_other:
            place = self._at[index] = len(self.all)
            self.all.append({})
        return place


_HEAD = ("id", "created", "model")
"""The fields that all chunks of one stream have in common."""


class ChatRound(AnswerRound):
    """A round of chat completions."""

    def __init__(self, names: frozenset[str], before: Self | None = None) -> None:
        super().__init__(names, before)
        self._answer: dict[str, Any] | None = None
        """The answer where it is no stream."""
        self._data: list[bytes] = []
        """The events so far."""
        self._calls: dict[int, Calls] = {}
        """By choice: of a whole answer by its place, of a stream by its index."""
        self._earlier: str = "" if before is None else before.text
        self._gap = self._earlier
        """The text of earlier rounds, as long as this one has none."""
        self._blocks: int = 0 if before is None else before.thoughts

    @cached_property
    def head(self) -> dict[str, Any]:
        """The id, time and model of the stream, once they are known."""
        head: dict[str, Any] = {} if self.before is None else {**self.before.head}
        for chunk in map(json_object, self._data if self.before is None else ()):
            head |= {key: chunk[key] for key in _HEAD if chunk.get(key) and key not in head}
            if len(head) == len(_HEAD):
                break
        return head

    @cached_property
    def _first(self) -> tuple[int, RoundResult]:
        """The first choice, without its calls, and its place among the calls."""
        messages, stops = dict[int, dict[str, Any]](), dict[int, Any]()
        usage: dict[str, Any] = {}
        is_broken, key = False, "delta" if self._answer is None else "message"
        for chunk in map(json_object, self._data) if self._answer is None else [self._answer]:
            usage = used if isinstance(used := chunk.get("usage"), dict) else usage
            is_broken = is_broken or chunk.get("error") is not None
            for place, choice in enumerate(_choices(chunk)):
                index = _index(choice) if self._answer is None else place
                stops[index] = choice.get("finish_reason") or stops.get(index)
                if isinstance(part := choice.get(key), dict):
                    merge(messages.setdefault(index, {}), part)
        first = min(stops, default=0)
        message = {key: value for key, value in messages.get(first, {}).items() if key not in ("role", "tool_calls")}
        is_answer = first in messages and not is_broken
        return first, RoundResult(message, usage, stops.get(first), len(stops) == 1 and not is_broken, is_answer)

    def result(self) -> RoundResult:
        place, first = self._first
        calls = self._calls[place].all if place in self._calls else []
        return first._replace(message={**first.message, "tool_calls": calls})

    @property
    def text(self) -> str:
        content = self._first[1].message.get("content")
        return joined(self._earlier, content if isinstance(content, str) else "")

    @property
    def thoughts(self) -> int:
        blocks = self._first[1].message.get(AS_BLOCKS)
        return self._blocks + (len(blocks) if isinstance(blocks, list) else 0)

    def take(self, answer: Mapping[str, Any]) -> bool:
        self._answer = {**answer}
        for place, choice in enumerate(_choices(answer)):
            message, calls = choice.get("message"), Calls(self.names)
            calls.take(message.get("tool_calls") if isinstance(message, dict) else None)
            self._calls[place] = calls
            self.hidden = self.hidden or calls.hidden
        return isinstance(answer.get("choices"), list)

    def end(self) -> bytes:
        """Return the client's part of bytes behind the last whole event, and calls that never got a name.

        If there are internal calls, `hand_on` gives the latter.
        """
        last = super().end()
        return last if self.hidden else last + self._remaining()

    async def hand_on(self, hand: Hand) -> bytes:
        for calls in self._calls.values():
            await calls.hand_on(hand)
        return self._remaining()

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        earlier = [each.result().message for each in self.rounds[:-1]]
        for choice, calls in zip(_choices(answer), self._calls.values(), strict=True):
            if not isinstance(message := choice.get("message"), dict):
                continue
            for key in ("content", *AS_TEXT):
                texts = [text for each in earlier if isinstance(text := each.get(key), str) and text]
                if texts and isinstance(last := message.get(key), str | None):
                    message[key] = reduce(joined, (*texts, last or ""), "")
            if calls.hidden:
                message["tool_calls"] = [each for each in calls.all if not calls.is_internal(each)]
                if not message["tool_calls"]:
                    del message["tool_calls"]
                    message["content"] = message.get("content") or ""
                    _end_without_calls(choice)
        return answer

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        data = event_data(event)
        chunk: dict[str, Any] = {}
        if data[:1] == b"{":
            self._data.append(data)
            if self.before is not None or self._calls or b"tool_calls" in data:
                chunk = json_object(data)
        if not chunk and data != b"[DONE]":
            return event + boundary
        is_changed, choices = self._change(chunk), _choices(chunk)
        is_end = not chunk.get("choices") or any(choice.get("finish_reason") for choice in choices)
        is_end = is_end and not chunk.get("error")
        if not (is_end and self._is_moved):
            if is_changed and not (is_end or _speaks(chunk) or chunk.get("usage") or chunk.get("error")):
                return b""
            return (with_data(event, chunk) if is_changed else event) + boundary
        self._tail.append((event, chunk, boundary))
        if not _speaks(chunk):
            return b""
        # what the end says besides cannot wait: it may never be sent
        rest = {key: value for key, value in chunk.items() if key != "usage"}
        rest["choices"] = [{**choice, "finish_reason": None} for choice in choices]
        for choice in choices:
            choice["delta"] = {}
            choice.pop("logprobs", None)
        return with_data(event, rest) + boundary

    def _change(self, chunk: dict[str, Any]) -> bool:
        """Take out of a chunk what is not the client's, and make it go on behind earlier rounds; True if it changed."""
        changed = self.before is not None and "choices" in chunk
        if changed:
            chunk |= self.head
        for choice in _choices(chunk):
            if isinstance(delta := choice.get("delta"), dict):
                changed = self._sort(choice, delta) or changed
                if self.before is not None:
                    self._continue(delta)
        return changed

    def _sort(self, choice: Mapping[str, Any], delta: dict[str, Any]) -> bool:
        """Take the internal calls out of a delta; return True if that changed it."""
        entries = listed if isinstance(listed := delta.get("tool_calls"), list) else []
        calls = self._calls.setdefault(_index(choice), Calls(self.names))
        shown = calls.sort(entries)
        self.hidden = self.hidden or calls.hidden
        if choice.get("finish_reason") and not calls.hidden:
            shown += calls.remaining()
        if len(shown) == len(entries) and all(map(is_, shown, entries)):
            return False
        delta["tool_calls"] = shown
        if not shown:
            del delta["tool_calls"]
        return True

    def _continue(self, delta: dict[str, Any]) -> None:
        """Make the delta of a later round one that follows those of the earlier ones."""
        delta.pop("role", None)
        for block in json_objects(delta.get(AS_BLOCKS)):
            if isinstance(block.get("index"), int):
                block["index"] += self._blocks
        content = delta.get("content")
        if isinstance(content, str) and content:
            delta["content"] = joined(self._gap, content)[len(self._gap) :]
            self._gap = ""

    def _remaining(self) -> bytes:
        events = b""
        for index, calls in self._calls.items():
            if waiting := calls.remaining():
                choice = {"index": index, "delta": {"tool_calls": waiting}, "finish_reason": None}
                chunk = {**self.head, "object": "chat.completion.chunk", "choices": [choice]}
                events += b"data: " + orjson.dumps(chunk) + b"\n\n"
        return events

    def _ended(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return a chunk of the end; where the client got no call, it is not told that it got one."""
        for choice in _choices(content):
            calls = self._calls.get(_index(choice))
            if calls is not None and calls.hidden and not calls.indexes:
                _end_without_calls(choice)
        return content


def joined(before: str, after: str) -> str:
    """Return the texts of two rounds as one, set apart where they would run into each other."""
    is_close = before and after and not before[-1].isspace() and not after[0].isspace()
    return before + ("\n\n" if is_close else "") + after


def _end_without_calls(choice: dict[str, Any]) -> None:
    if choice.get("finish_reason") == "tool_calls":
        choice["finish_reason"] = "stop"


def _choices(chunk: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = json_objects(chunk.get("choices"))
    return choices if len(choices) < 2 else sorted(choices, key=_index)


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _speaks(chunk: Mapping[str, Any]) -> bool:
    deltas = [choice.get("delta") for choice in _choices(chunk)]
    return any(any(delta.values()) if isinstance(delta, dict) else delta for delta in deltas)


_NAMING = frozenset({"index", "type", "id", "name", "format"})
"""Keys that pieces may repeat; all other texts are put together."""


def merge(known: dict[str, Any], more: Mapping[str, Any], *, once: frozenset[str] = frozenset()) -> None:
    """Put a piece to what is known. Keys of `once` keep their first value."""
    for key, value in more.items():
        before = known.get(key)
        if value is None or (key in once and before):
            continue
        if isinstance(value, dict):
            known[key] = dict(before) if isinstance(before, dict) else {}
            merge(known[key], value, once=once)
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
            merge(begun, entry, once=_NAMING)
    return extended
