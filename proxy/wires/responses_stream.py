"""One round of an answer of Responses on its way to the client: all passes but calls of internal tools.

Events that need no change keep their bytes. Behind something hidden, items and events get other numbers; the end waits
while another round may follow; of later rounds the client gets no second beginning.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import orjson

from proxy.chat.sse import EventSplitter, check_held
from proxy.wires.messages_answer import read_event
from proxy.wires.messages_stream import Hand
from proxy.wires.responses import call_of, said_in

_BEGINS = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesRound:
    """A round, whole or as a stream. `feed` gives what the client gets at once, `tail` what it gets in the end."""

    def __init__(self, names: frozenset[str], before: "ResponsesRound | None" = None) -> None:
        """`names` are those of the internal tools, `before` is the round before this one."""
        self.names, self._before = names, before
        self._next: int = 0 if before is None else before._next
        self._sequence: int = 0 if before is None else before._sequence
        self._events, self._size = EventSplitter(), 0
        self._shown: dict[Any, int | None] = {}
        """By the number of an item, that which it has for the client; None for one that it does not get."""
        self._tail: list[tuple[bytes, dict[str, Any], bytes]] = []
        self.response: dict[str, Any] = {}
        """The answer, once it is known."""
        self.output: list[dict[str, Any]] = []
        self.is_handed = False
        """True once a call was handed on to the client."""

    @property
    def hidden(self) -> bool:
        """True where an internal tool was called."""
        return None in self._shown.values()

    @property
    def is_changed(self) -> bool:
        """True where the client gets something else than was said."""
        return self.is_handed or any(map(self._is_internal, self.output))

    @property
    def usage(self) -> dict[str, Any]:
        used = self.response.get("usage")
        return used if isinstance(used, dict) else {}

    def take(self, answer: Mapping[str, Any]) -> bool:
        """Take in a whole answer; return whether it is one."""
        output = answer.get("output")
        if not isinstance(output, list):
            return False
        self.response, self.output = dict(answer), [item for item in output if isinstance(item, dict)]
        return True

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets of the next bytes. Raises `UpstreamFailed` where there is no end of them."""
        self._size += len(chunk)
        check_held(self._size)
        return b"".join(starmap(self._event, self._events.feed(chunk)))

    def end(self) -> bytes:
        """Return what the client gets of bytes behind the last whole event."""
        rest = self._events.rest()
        return self._event(rest, b"\n\n" if self._is_moved else b"") if rest.strip() else rest

    def tail(self) -> bytes:
        """Return the end, which waits because the answer may go on, or something has to be remembered first."""
        return b"".join(starmap(self._ended, self._tail))

    async def hand_on(self, hand: Hand) -> bytes:
        """Return internal calls that are handed on to the client, each as an item of its own."""
        events = b""
        for item in self.output:
            given = await hand(call_of(item)) if self._is_internal(item) else None
            if given is not None:
                item |= {"name": given["function"]["name"], "arguments": given["function"]["arguments"]}
                self.is_handed = True
                events += b"".join(map(self._numbered, self._item(item)))
        return events

    def _item(self, item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        index, self._next = self._next, self._next + 1
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        at = {"output_index": index, "item_id": item.get("id", "")}
        yield {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **at, **done}
        yield {"type": "response.output_item.done", "output_index": index, "item": {**item}}

    @property
    def message(self) -> dict[str, Any]:
        """The model's message, as it goes back to it: in chat form, and its own items beside that."""
        return {**said_in(self.output), "items": [dict(item) for item in self.output]}

    @property
    def finish(self) -> str:
        """The reason for its end in chat's words; `length` for an answer that is not whole."""
        if self.response.get("status") != "completed":
            return "length"
        return "tool_calls" if any(item.get("type") == "function_call" for item in self.output) else "stop"

    @property
    def _is_moved(self) -> bool:
        """True where numbers are no longer the upstream's."""
        return self._before is not None or self.hidden

    def _is_internal(self, item: Mapping[str, Any]) -> bool:
        return item.get("type") == "function_call" and item.get("name") in self.names

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        content = read_event(event)
        kind, item = content.get("type"), content.get("item")
        if kind in _BEGINS and self._before is not None:
            return b""
        if kind in _ENDS:
            self.take(content.get("response") or {})
            if self._is_moved:
                self._tail.append((event, content, boundary))
                return b""
        if kind == "response.output_item.added" and isinstance(item, dict):
            self._shown[content.get("output_index")] = None if self._is_internal(item) else self._next
            self._next += not self._is_internal(item)
        if "output_index" in content:
            number = self._shown.get(content["output_index"], content["output_index"])
            if number is None:
                return b""
            content["output_index"] = number
        if not self._is_moved:
            self._sequence = max(self._sequence, int(content.get("sequence_number", -1)) + 1)
            return event + boundary
        return self._numbered(content) if content else event + boundary

    def _ended(self, event: bytes, content: dict[str, Any], boundary: bytes) -> bytes:
        """Return the event of the end, with what all rounds said."""
        rounds: list[ResponsesRound] = [self]
        while (before := rounds[0]._before) is not None:
            rounds.insert(0, before)
        return self._numbered({**content, "response": {**self.response, "output": _shown(rounds)}})

    def _numbered(self, event: dict[str, Any]) -> bytes:
        event = {**event, "sequence_number": self._sequence}
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), orjson.dumps(event))

    @staticmethod
    def whole(answer: Mapping[str, Any], rounds: Sequence["ResponsesRound"]) -> bytes:
        """Return a whole answer with what all rounds said, the last one's own among them."""
        return orjson.dumps({**answer, "output": _shown(rounds)})


def _shown(rounds: Sequence[ResponsesRound]) -> list[dict[str, Any]]:
    return [item for each in rounds for item in each.output if not each._is_internal(item)]
