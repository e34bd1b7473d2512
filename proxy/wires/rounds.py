"""One round of an answer on its way to the client: all passes but calls of internal tools.

Events that need no change keep their bytes. Behind something hidden, parts get other numbers; the end waits while
another round may follow; of later rounds the client gets no second beginning.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import starmap
from typing import Any, ClassVar, NamedTuple, Self

import orjson

from proxy.chat.errors import Unanswered
from proxy.chat.sse import EventSplitter, check_held
from proxy.text.json_values import json_object
from proxy.wires import messages, responses
from proxy.wires.messages_answer import FINISH, Blocks, read_event, written
from proxy.wires.view import Unwritable

_log = logging.getLogger("penstock.loop")

Hand = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]


class RoundResult(NamedTuple):
    """A round once it has ended; of several choices, the first one."""

    message: dict[str, Any]
    """The model's message, as it goes back to it: its calls in chat form, beside its own blocks or items."""
    usage: dict[str, Any]
    """The usage as the upstream reports it."""
    stop: Any
    """The reason for its end in chat's words; None where it did not say."""
    is_whole: bool
    """True if it is complete: one choice, an end, no error in between."""
    is_answer: bool = True
    """True if it is one, and no error."""


_FORMLESS = (AttributeError, KeyError, TypeError, ValueError, Unwritable)


@contextmanager
def understanding() -> Iterator[None]:
    """Raise `Unanswered` where a part of an answer has another type than its form says."""
    try:
        yield
    except _FORMLESS:
        _log.warning("malformed answer", exc_info=True)
        raise Unanswered("the upstream sent a malformed answer") from None


class AnswerRound:
    """A round, whole or as a stream. `feed` gives what the client gets at once, `tail` what it gets in the end."""

    def __init__(self, names: frozenset[str], before: Self | None = None) -> None:
        """`names` are those of the internal tools, `before` is the round before this one."""
        self.names, self._before = names, before
        self.hidden = False
        """True where an internal tool was called."""
        self._events, self._size = EventSplitter(), 0
        self._tail: list[tuple[bytes, dict[str, Any], bytes]] = []

    @classmethod
    def of(cls, body: bytes, *, streamed: bool) -> Self:
        """Return an answer that is a body or a whole stream."""
        read = cls(frozenset())
        if streamed:
            read.feed(body)
            read.end()
        else:
            read.take(json_object(body))
        return read

    @property
    def _is_moved(self) -> bool:
        """True where the client's answer is no longer the upstream's."""
        return self._before is not None or self.hidden

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets of the next bytes. Raise `UpstreamFailed` for an event without form or end."""
        self._size += len(chunk)
        check_held(self._size)
        events = self._events.feed(chunk)
        try:
            return b"".join(starmap(self._event, events))
        except _FORMLESS:
            raise Unanswered("the upstream sent a malformed event") from None

    def end(self) -> bytes:
        """Return what the client gets of bytes behind the last whole event."""
        rest = self._events.rest()
        return self._event(rest, b"\n\n" if self._is_moved else b"") if rest.strip() else rest

    def tail(self) -> bytes:
        """Return the end, which waits because the answer may go on, or something has to be remembered first."""
        return b"".join(starmap(self._ended, self._tail))

    def result(self) -> RoundResult:
        """Return what the model said; to be asked for once the round has ended."""
        raise NotImplementedError

    def take(self, answer: Mapping[str, Any]) -> bool:
        """Take in a whole answer; return whether it is one."""
        raise NotImplementedError

    async def hand_on(self, hand: Hand) -> bytes:
        """Return the events of internal calls that are handed on to the client."""
        raise NotImplementedError

    def whole(self, answer: Mapping[str, Any], rounds: Sequence[Any]) -> bytes:
        """Return a whole answer with what all rounds said, the last one's own among them."""
        raise NotImplementedError

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        """Return what the client gets of an event."""
        raise NotImplementedError

    def _ended(self, event: bytes, content: dict[str, Any], boundary: bytes) -> bytes:
        """Return what the client gets of an event of the end."""
        raise NotImplementedError


class NativeRound(AnswerRound):
    """A round of numbered parts."""

    call: ClassVar[str]
    """The type of a part that is a call."""
    call_of: ClassVar[Callable[[Mapping[str, Any]], dict[str, Any]]]
    """Returns such a part in chat form."""

    def __init__(self, names: frozenset[str], before: Self | None = None) -> None:
        super().__init__(names, before)
        self._next: int = 0 if before is None else before._next
        """The number of the next part that the client gets."""
        self._shown: dict[Any, int | None] = {}
        """By the number of a part, that which it has for the client; None for one that it does not get."""
        self.parts: list[dict[str, Any]] = []
        """All that the model said, so far."""

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The parts that the client gets."""
        return [part for part in self.parts if not self._is_internal(part)]

    def _is_internal(self, part: Mapping[str, Any]) -> bool:
        return part.get("type") == self.call and str(part.get("name")) in self.names

    async def hand_on(self, hand: Hand) -> bytes:
        events = b""
        for part in self.parts:
            given = await hand(type(self).call_of(part)) if self._is_internal(part) else None
            if given is not None:
                events += b"".join(self._handed(part, self._next, given["function"]))
                self._next += 1
        return events

    def _number(self, number: Any, part: Mapping[str, Any]) -> None:
        """Give a part that begins the number that it has for the client."""
        is_internal = self._is_internal(part)
        self.hidden = self.hidden or is_internal
        self._shown[number] = None if is_internal else self._next
        self._next += not is_internal

    def _handed(self, part: dict[str, Any], number: int, function: Mapping[str, Any]) -> Iterator[bytes]:
        """Make an internal call one of the client's, and yield its events."""
        raise NotImplementedError


class MessagesRound(NativeRound):
    """A round of Anthropic's Messages; its parts are blocks."""

    call = "tool_use"
    call_of = messages.call_of

    def __init__(self, names: frozenset[str], before: Self | None = None) -> None:
        super().__init__(names, before)
        self.blocks = Blocks()
        self.parts = self.blocks.content
        self._calls: bool = before is not None and before._calls
        """True once the client has got a call."""

    def result(self) -> RoundResult:
        blocks, stop = self.blocks, self.blocks.stop
        calls = [messages.call_of(block) for block in self.parts if block.get("type") == "tool_use"]
        message = {"content": blocks.sent_back, **({"tool_calls": calls} if calls else {})}
        is_answer = blocks.begun and not blocks.error
        stop_word = None if stop is None else FINISH.get(stop, "stop")
        return RoundResult(message, blocks.usage, stop_word, is_answer and stop is not None, is_answer)

    def take(self, answer: Mapping[str, Any]) -> bool:
        self.blocks.take(answer)
        self.hidden = any(map(self._is_internal, self.parts))
        return isinstance(answer.get("content"), list)

    def _handed(self, part: dict[str, Any], number: int, function: Mapping[str, Any]) -> Iterator[bytes]:
        self._calls = True
        part |= {"name": function["name"], "input": orjson.loads(function["arguments"])}
        yield written({"type": "content_block_start", "index": number, "content_block": {**part, "input": {}}})
        delta = {"type": "input_json_delta", "partial_json": orjson.dumps(part["input"]).decode()}
        yield written({"type": "content_block_delta", "index": number, "delta": delta})
        yield written({"type": "content_block_stop", "index": number})

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        content = read_event(event)
        kind, block = content.get("type"), content.get("content_block")
        self.blocks.feed(content)
        if kind == "message_start" and self._before is not None:
            return b""
        if kind in ("message_delta", "message_stop") and self._is_moved:
            self._tail.append((event, content, boundary))
            return b""
        if kind == "content_block_start" and isinstance(block, dict):
            self._number(content.get("index"), block)
            self._calls = self._calls or (block.get("type") == "tool_use" and not self._is_internal(block))
        if not str(kind).startswith("content_block_"):
            return event + boundary
        number = self._shown.get(content.get("index"), content.get("index"))
        if number is None:
            return b""
        return event + boundary if number == content.get("index") else written({**content, "index": number})

    def _ended(self, event: bytes, content: dict[str, Any], boundary: bytes) -> bytes:
        """Return an event of the end, with all that the round used. It names no calls that the client has not got."""
        if content.get("type") != "message_delta":
            return event + boundary
        delta = dict(content.get("delta") or {})
        if delta.get("stop_reason") == "tool_use" and not self._calls:
            delta["stop_reason"] = "end_turn"
        return written({**content, "delta": delta, "usage": self.blocks.usage})

    def whole(self, answer: Mapping[str, Any], rounds: Sequence[NativeRound]) -> bytes:
        content = [block for each in rounds for block in each.shown]
        stop = answer.get("stop_reason")
        if stop == "tool_use" and not any(block.get("type") == "tool_use" for block in content):
            stop = "end_turn"
        return orjson.dumps({**answer, "content": content, "stop_reason": stop})


_BEGINS = frozenset({"response.created", "response.in_progress", "response.queued"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesRound(NativeRound):
    """A round of Responses; its parts are items."""

    call = "function_call"
    call_of = responses.call_of

    def __init__(self, names: frozenset[str], before: Self | None = None) -> None:
        super().__init__(names, before)
        self._sequence: int = 0 if before is None else before._sequence
        self.response: dict[str, Any] = {}
        """The answer, once it is known."""

    def result(self) -> RoundResult:
        message = {**responses.said_in(self.parts), responses.ITEMS: [dict(item) for item in self.parts]}
        used, response = self.response.get("usage"), self.response
        stop = "tool_calls" if any(item.get("type") in responses.CALLS for item in self.parts) else "stop"
        return RoundResult(
            message,
            used if isinstance(used, dict) else {},
            "length" if response.get("incomplete_details") else stop,
            response.get("status") == "completed",
            isinstance(response.get("output"), list) and not response.get("error"),
        )

    def take(self, answer: Mapping[str, Any]) -> bool:
        output = answer.get("output")
        if not isinstance(output, list):
            return False
        self.response, self.parts = dict(answer), [item for item in output if isinstance(item, dict)]
        self.hidden = self.hidden or any(map(self._is_internal, self.parts))
        return True

    def _handed(self, part: dict[str, Any], number: int, function: Mapping[str, Any]) -> Iterator[bytes]:
        done = {"name": function["name"], "arguments": function["arguments"]}
        part |= done
        begun = {**part, "arguments": "", "status": "in_progress"}
        yield self._numbered({"type": "response.output_item.added", "output_index": number, "item": begun})
        at = {"output_index": number, "item_id": part.get("id", "")}
        more = {"type": "response.function_call_arguments.delta", **at, "delta": part["arguments"]}
        yield self._numbered(more)
        yield self._numbered({"type": "response.function_call_arguments.done", **at, **done})
        yield self._numbered({"type": "response.output_item.done", "output_index": number, "item": {**part}})

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
            self._number(content.get("output_index"), item)
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
        rounds: list[ResponsesRound] = [self]
        while (before := rounds[0]._before) is not None:
            rounds.insert(0, before)
        output = [item for each in rounds for item in each.shown]
        return self._numbered({**content, "response": {**self.response, "output": output}})

    def _numbered(self, event: dict[str, Any]) -> bytes:
        event = {**event, "sequence_number": self._sequence}
        self._sequence += 1
        return written(event)

    def whole(self, answer: Mapping[str, Any], rounds: Sequence[NativeRound]) -> bytes:
        return orjson.dumps({**answer, "output": [item for each in rounds for item in each.shown]})
