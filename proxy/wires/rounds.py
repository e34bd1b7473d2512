"""One round of an answer on its way to the client: all passes but calls of internal tools.

Events that need no change keep their bytes. Behind something hidden, parts get other numbers; the end waits while
another round may follow; of later rounds the client gets no second beginning.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from itertools import starmap
from typing import Any, ClassVar, NamedTuple, Self

import orjson

from proxy.chat.errors import Unanswered
from proxy.chat.sse import EventSplitter, check_held, encoded_event, read_event, with_data
from proxy.text.json_values import json_object, json_objects
from proxy.wires import messages, responses
from proxy.wires.messages import FINISH, Blocks
from proxy.wires.native import Unwritable

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
        self.names, self.before = names, before
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
    def rounds(self) -> list[Self]:
        """The rounds of the answer so far."""
        return [*([] if self.before is None else self.before.rounds), self]

    @property
    def _is_moved(self) -> bool:
        """True where the client's answer is no longer the upstream's."""
        return self.hidden or self.before is not None

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
        shown = b""
        for event, content, boundary in self._tail:
            made = self._ended(content)
            shown += (event if made == read_event(event) else with_data(event, made)) + boundary
        return shown

    def result(self) -> RoundResult:
        """Return what the model said; to be asked for once the round has ended."""
        raise NotImplementedError

    def take(self, answer: Mapping[str, Any]) -> bool:
        """Take in a whole answer; return whether it is one."""
        raise NotImplementedError

    async def hand_on(self, hand: Hand) -> bytes:
        """Return the events of internal calls that are handed on to the client."""
        raise NotImplementedError

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return a whole answer with what all rounds said."""
        raise NotImplementedError

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        """Return what the client gets of an event."""
        raise NotImplementedError

    def _ended(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return what the client gets of an event of the end."""
        raise NotImplementedError


class NativeRound(AnswerRound):
    """A round of numbered parts."""

    call: ClassVar[str]
    """The type of a part that is a call."""
    call_of: ClassVar[Callable[[Mapping[str, Any]], dict[str, Any]]]
    """Returns such a part in chat form."""
    opening: ClassVar[tuple[str, str, str]]
    """The type of an event with which a part begins, and the fields for its number and for the part."""
    begins: ClassVar[Set[str]]
    ends: ClassVar[Set[str]]
    """The types of events with which an answer begins, and with which it ends."""

    def __init__(self, names: frozenset[str], before: Self | None = None) -> None:
        super().__init__(names, before)
        self._next: int = 0 if before is None else before._next
        """The number of the next part that the client gets."""
        self._numbers: dict[Any, int | None] = {}
        """By the number of a part, that which it has for the client; None for one that it does not get."""
        self.parts: list[dict[str, Any]] = []
        """All that the model said, so far."""

    @property
    def _shown(self) -> list[dict[str, Any]]:
        """The parts of all rounds that the client gets."""
        return [part for each in self.rounds for part in each.parts if not self._is_internal(part)]

    def _is_internal(self, part: Mapping[str, Any]) -> bool:
        return part.get("type") == self.call and str(part.get("name")) in self.names

    async def hand_on(self, hand: Hand) -> bytes:
        events = b""
        for part in self.parts:
            given = await hand(type(self).call_of(part)) if self._is_internal(part) else None
            if given is not None:
                events += b"".join(self._handed(part, self._next, **given["function"]))
                self._next += 1
        return events

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        content = read_event(event)
        opening, place, part = self.opening
        kind, begun, own = content.get("type"), content.get(part), content.get(place)
        self._take_in(content)
        if kind in self.begins and self.before is not None:
            return b""
        if kind in self.ends and self._is_moved:
            self._tail.append((event, content, boundary))
            return b""
        if kind == opening and isinstance(begun, dict):
            is_internal = self._is_internal(begun)
            self.hidden = self.hidden or is_internal
            self._numbers[own] = None if is_internal else self._next
            self._next += not is_internal
        number = self._numbers.get(own, own)
        if number is None and own is not None:
            return b""
        shown = self._placed(content if number == own else {**content, place: number})
        return (event if shown is content else with_data(event, shown)) + boundary

    def _placed(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return an event that the client gets next."""
        return content

    def _take_in(self, content: dict[str, Any]) -> None:
        """Take in what an event says."""
        raise NotImplementedError

    def _handed(self, part: dict[str, Any], number: int, name: str, arguments: str) -> Iterator[bytes]:
        """Make an internal call one of the client's, and yield its events."""
        raise NotImplementedError


class MessagesRound(NativeRound):
    """A round of Anthropic's Messages; its parts are blocks."""

    call, call_of = "tool_use", messages.call_of
    opening = ("content_block_start", "index", "content_block")
    begins, ends = frozenset({"message_start"}), frozenset({"message_delta", "message_stop"})

    def __init__(self, names: frozenset[str], before: Self | None = None) -> None:
        super().__init__(names, before)
        self.blocks = Blocks()
        self.parts = self.blocks.content

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

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "content": self._shown, **self._stop(answer)}

    def _take_in(self, content: dict[str, Any]) -> None:
        self.blocks.feed(content)

    def _handed(self, part: dict[str, Any], number: int, name: str, arguments: str) -> Iterator[bytes]:
        part |= {"name": name, "input": orjson.loads(arguments)}
        yield encoded_event("content_block_start", index=number, content_block={**part, "input": {}})
        delta = {"type": "input_json_delta", "partial_json": arguments}
        yield encoded_event("content_block_delta", index=number, delta=delta)
        yield encoded_event("content_block_stop", index=number)

    def _ended(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return an event of the end, with all that the round used."""
        if content.get("type") != "message_delta":
            return content
        delta = dict(content.get("delta") or {})
        return {**content, "delta": delta | self._stop(delta), "usage": self.blocks.usage}

    def _stop(self, end: Mapping[str, Any]) -> dict[str, Any]:
        """Return another stop reason for an end that names calls of which the client has got none."""
        is_called = any(block.get("type") == "tool_use" for block in self._shown)
        return {"stop_reason": "end_turn"} if end.get("stop_reason") == "tool_use" and not is_called else {}


class ResponsesRound(NativeRound):
    """A round of Responses; its parts are items."""

    call, call_of = "function_call", responses.call_of
    opening = ("response.output_item.added", "output_index", "item")
    begins = frozenset({"response.created", "response.in_progress", "response.queued"})
    ends = frozenset({"response.completed", "response.incomplete", "response.failed"})

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
        if not isinstance(answer.get("output"), list):
            return False
        self.response, self.parts = dict(answer), json_objects(answer["output"])
        self.hidden = self.hidden or any(map(self._is_internal, self.parts))
        return True

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "output": self._shown}

    def _handed(self, part: dict[str, Any], number: int, name: str, arguments: str) -> Iterator[bytes]:
        done = {"name": name, "arguments": arguments}
        part |= done
        at = {"item_id": part.get("id", "")}
        for kind, more in (
            ("output_item.added", {"item": {**part, "arguments": "", "status": "in_progress"}}),
            ("function_call_arguments.delta", {**at, "delta": arguments}),
            ("function_call_arguments.done", {**at, **done}),
            ("output_item.done", {"item": part}),
        ):
            yield encoded_event(f"response.{kind}", **self._numbered({"output_index": number, **more}))

    def _take_in(self, content: dict[str, Any]) -> None:
        if content.get("type") in self.ends:
            self.take(content.get("response") or {})

    def _placed(self, content: dict[str, Any]) -> dict[str, Any]:
        if self._is_moved:
            return self._numbered(content) if content else content
        self._sequence = max(self._sequence, int(content.get("sequence_number", -1)) + 1)
        return content

    def _ended(self, content: dict[str, Any]) -> dict[str, Any]:
        return self._numbered({**content, "response": self.whole(self.response)})

    def _numbered(self, event: dict[str, Any]) -> dict[str, Any]:
        self._sequence += 1
        return {**event, "sequence_number": self._sequence - 1}
