"""One round of an answer of Anthropic's Messages on its way to the client: all passes but calls of internal tools.

Events that need no change keep their bytes. Behind something hidden, blocks get other numbers; the end waits while
another round may follow; of later rounds the client gets no second beginning.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import orjson

from proxy.chat.sse import EventSplitter, check_held
from proxy.wires.messages import call_of
from proxy.wires.messages_answer import FINISH, Blocks, read_event

Hand = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]


class MessagesRound:
    """A round, whole or as a stream. `feed` gives what the client gets at once, `tail` what it gets in the end."""

    def __init__(self, names: frozenset[str], before: "MessagesRound | None" = None) -> None:
        """`names` are those of the internal tools, `before` is the round before this one."""
        self.names, self._later = names, before is not None
        self._next: int = 0 if before is None else before._next
        """The number of the next block that the client gets."""
        self._calls: bool = before is not None and before._calls
        """True once the client has got a call."""
        self._events, self._size = EventSplitter(), 0
        self._shown: dict[Any, int | None] = {}
        """By the number of a block, that which it has for the client; None for one that it does not get."""
        self._tail: list[tuple[bytes, dict[str, Any], bytes]] = []
        self.blocks = Blocks()
        self._is_handed = False

    @property
    def hidden(self) -> bool:
        """True where an internal tool was called."""
        return None in self._shown.values()

    @property
    def is_changed(self) -> bool:
        """True where the client gets something else than was said."""
        return self._is_handed or any(map(self._is_internal, self.blocks.content))

    @property
    def usage(self) -> dict[str, Any]:
        return self.blocks.usage

    def take(self, answer: Mapping[str, Any]) -> bool:
        """Take in a whole answer; return whether it is one."""
        self.blocks.take(answer)
        return isinstance(answer.get("content"), list)

    def feed(self, chunk: bytes) -> bytes:
        """Return what the client gets of the next bytes. Raises `UpstreamFailed` where there is no end of them."""
        self._size += len(chunk)
        check_held(self._size)
        return b"".join(starmap(self._event, self._events.feed(chunk)))

    def end(self) -> bytes:
        """Return what the client gets of bytes behind the last whole event."""
        rest = self._events.rest()
        return self._event(rest, b"\n\n" if self._later or self.hidden else b"") if rest.strip() else rest

    def tail(self) -> bytes:
        """Return the end, which waits because the answer may go on, or something has to be remembered first."""
        return b"".join(starmap(self._ended, self._tail))

    async def hand_on(self, hand: Hand) -> bytes:
        """Return internal calls that are handed on to the client, each as a block of its own."""
        events = b""
        for block in self.blocks.content:
            given = await hand(call_of(block)) if self._is_internal(block) else None
            if given is not None:
                self._is_handed = True
                block |= {"name": given["function"]["name"], "input": orjson.loads(given["function"]["arguments"])}
                events += b"".join(map(written, self._block(block)))
        return events

    def _block(self, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        index, self._next, self._calls = self._next, self._next + 1, True
        yield {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
        delta = {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}

    @property
    def message(self) -> dict[str, Any]:
        """The model's message, as it goes back to it: its own blocks, and its calls in chat form beside them."""
        calls = [call_of(block) for block in self.blocks.content if block.get("type") == "tool_use"]
        return {"content": self.blocks.sent_back, **({"tool_calls": calls} if calls else {})}

    @property
    def finish(self) -> str:
        """The reason for its end in chat's words; `length` for an answer that is not whole."""
        stop = self.blocks.stop
        return "length" if stop is None or self.blocks.error else FINISH.get(stop, "stop")

    @staticmethod
    def whole(answer: Mapping[str, Any], rounds: Sequence["MessagesRound"]) -> bytes:
        """Return a whole answer with what all rounds said, the last one's own among them."""
        content = [block for each in rounds for block in each.blocks.content if not each._is_internal(block)]
        stop = answer.get("stop_reason")
        if stop == "tool_use" and not any(block.get("type") == "tool_use" for block in content):
            stop = "end_turn"
        return orjson.dumps({**answer, "content": content, "stop_reason": stop})

    def _is_internal(self, block: Mapping[str, Any]) -> bool:
        return block.get("type") == "tool_use" and block.get("name") in self.names

    def _event(self, event: bytes, boundary: bytes) -> bytes:
        content = read_event(event)
        kind = content.get("type")
        self.blocks.feed(content)
        if kind == "message_start" and self._later:
            return b""
        if kind in ("message_delta", "message_stop") and (self._later or self.hidden):
            self._tail.append((event, content, boundary))
            return b""
        if kind == "content_block_start":
            self._number(content)
        if not str(kind).startswith("content_block_"):
            return event + boundary
        number = self._shown.get(content.get("index"), content.get("index"))
        if number is None:
            return b""
        return event + boundary if number == content.get("index") else written({**content, "index": number})

    def _number(self, content: Mapping[str, Any]) -> None:
        block = content.get("content_block")
        is_call = isinstance(block, dict) and block.get("type") == "tool_use"
        if isinstance(block, dict) and self._is_internal(block):
            self._shown[content.get("index")] = None
            return
        self._shown[content.get("index")] = self._next
        self._next, self._calls = self._next + 1, self._calls or is_call

    def _ended(self, event: bytes, content: dict[str, Any], boundary: bytes) -> bytes:
        """Return an event of the end, with all that the round used. It names no calls that the client has not got."""
        if content.get("type") != "message_delta":
            return event + boundary
        delta = dict(content.get("delta") or {})
        if delta.get("stop_reason") == "tool_use" and not self._calls:
            delta["stop_reason"] = "end_turn"
        return written({**content, "delta": delta, "usage": self.blocks.usage})


def written(event: Mapping[str, Any]) -> bytes:
    """Return an event as the bytes of a stream."""
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), orjson.dumps(event))
