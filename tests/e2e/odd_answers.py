"""Answers that servers in the wild give and the standard does not know: they must pass through byte for byte."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.scripted import answer, event

DONE = b"data: [DONE]\n\n"


def chunk(delta: object, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event({"id": "x", "object": "chat.completion.chunk", "created": 1, "choices": [choice], **more})


_ROLE = chunk({"role": "assistant", "content": "", "refusal": None})
_WORDS = [chunk({"content": word}) for word in ("one ", "two ", "three")]
_STOP = chunk({}, "stop")
_CLEAN = [_ROLE, *_WORDS, _STOP, DONE]
_USAGE = answer()["usage"]
_HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n"


@dataclass(frozen=True)
class Odd:
    """An answer as it goes over the wire, one item of `parts` per write."""

    parts: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream; charset=utf-8"})


def _edited(edit: Callable[[bytes], bytes]) -> Odd:
    return Odd([edit(part) for part in _CLEAN])


def _json(body: bytes, status: int = 200, **headers: str) -> Odd:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Odd([body], status, {"Content-Type": "application/json", **named})


def _tool(*calls: dict[str, object]) -> Odd:
    return Odd([_ROLE, *(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "tool_calls"), DONE])


def _cut(parts: list[bytes], size: int) -> list[bytes]:
    """The same bytes in writes of another size: boundaries fall inside events, lines and characters."""
    text = b"".join(parts)
    return [text[start : start + size] for start in range(0, len(text), size)]


_PLAIN = json.dumps({"id": "x", "object": "chat.completion", "choices": []}).encode()
_BARE = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in ("one", "two")]
_SECOND_FIRST = [{"choices": [{"index": index, "delta": {"content": "x"}}]} for index in (1, 0)]
_UNESCAPED = 'data: {"choices":[{"index":0,"delta":{"content":"naïve 水門 🚪"}}]}\n\n'.encode()
_FUNCTION = {"name": "f", "arguments": "{}"}

ODD: dict[str, Odd] = {
    "comments": Odd([_ROLE, b": keepalive\n\n", _WORDS[0], b":\n\n", _STOP, DONE]),
    "ping-without-data": Odd([_ROLE, b"event: ping\n\n", *_WORDS, _STOP, DONE]),
    "ping-with-data": Odd([_ROLE, b"event: ping\ndata: {}\n\n", *_WORDS, _STOP, DONE]),
    "ids": _edited(lambda part: b"id: 7\n" + part),
    "retry-field": Odd([b"retry: 3000\n\n", *_CLEAN]),
    "role-in-each": Odd([chunk({"role": "assistant", "content": word}) for word in "ab"] + [_STOP, DONE]),
    "role-empty": Odd([chunk({"role": "", "content": "a"}), _STOP, DONE]),
    "tool-id-in-each": _tool(
        *({"index": 0, "id": "c1", "function": {"name": "f", "arguments": part}} for part in "{}")
    ),
    "tool-without-index": _tool({"id": "c1", "type": "function", "function": _FUNCTION}),
    "usage-on-all": Odd([chunk({"content": word}, usage=_USAGE) for word in "abc"] + [_STOP, DONE]),
    "usage-null-unasked": Odd([chunk({"content": "a"}, usage=None), chunk({}, "stop", usage=None), DONE]),
    "no-finish": Odd([_ROLE, *_WORDS, DONE]),
    "no-done": Odd([_ROLE, *_WORDS, _STOP]),
    "bare-chunks": Odd([*map(event, _BARE), DONE]),
    "second-choice-first": Odd([*map(event, _SECOND_FIRST), _STOP, DONE]),
    "only-done": Odd([DONE]),
    "nothing": Odd([]),
    "crlf": _edited(lambda part: part.replace(b"\n", b"\r\n")),
    "cr": _edited(lambda part: part.replace(b"\n", b"\r")),
    "no-space": _edited(lambda part: part.replace(b"data: ", b"data:")),
    "many-data-lines": _edited(lambda part: part.replace(b', "created"', b',\ndata: "created"')),
    "error-null": Odd([chunk({"content": "a"}, error=None), _STOP, DONE]),
    "error-event": Odd([_ROLE, b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n']),
    "after-done": Odd([*_CLEAN, b"data: late\n\n"]),
    "no-last-newline": Odd([_ROLE, _STOP, b"data: [DONE]"]),
    "byte-order-mark": Odd([b"\xef\xbb\xbf" + _ROLE, _STOP, DONE]),
    "cut-anywhere": Odd(_cut([_ROLE, _UNESCAPED, _STOP, DONE], 7)),
    "one-write": Odd([b"".join(_CLEAN)]),
    "long-event": Odd([_ROLE, chunk({"content": "x" * 300_000}), _STOP, DONE]),
    "not-utf8": Odd([_ROLE, b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n', DONE]),
    "reasoning": Odd([chunk({"reasoning_content": "hm", "content": None}), *_WORDS, _STOP, DONE]),
    "stream-without-charset": Odd(_CLEAN, headers={"Content-Type": "text/event-stream"}),
    "stream-in-capitals": Odd(_CLEAN, headers={"Content-Type": "Text/Event-Stream"}),
    "stream-as-text": Odd(_CLEAN, headers={"Content-Type": "text/plain"}),
    "stream-compressed": Odd(
        # stored, not deflated: the line ends show, and whoever touches them breaks the checksum
        _cut([gzip.compress(b"".join(_CLEAN).replace(b"\n", b"\r\n"), 0, mtime=0)], 50),
        headers={"Content-Type": "text/event-stream", "Content-Encoding": "gzip"},
    ),
    "stream-with-error-status": Odd([event({"error": {"message": "busy"}})], status=503),
    "json-as-text": Odd([_PLAIN], headers={"Content-Type": "text/plain"}),
    "json-for-a-stream": _json(_PLAIN),
    "json-with-charset": Odd([_PLAIN], headers={"Content-Type": "application/json; charset=utf-8"}),
    "json-spaced": _json(b'\n {"b" : 1.0,\r\n  "a": 1e5, "a": "\\u00e9"}\n\n'),
    "json-compressed": _json(gzip.compress(_PLAIN, mtime=0), Content_Encoding="gzip"),
    "no-json": _json(b"not json"),
    "empty": _json(b""),
    "ollama-error": _json(b'{"error":"model is busy"}', 503),
    "detail-error": _json(b'{"detail":[{"loc":["body"],"msg":"wrong"}]}', 422),
    "html-error": Odd([_HTML], 502, {"Content-Type": "text/html"}),
    "created": _json(_PLAIN, 201),
    "teapot": _json(b"{}", 418),
    "rate-headers": _json(b"{}", 429, Retry_After="7", X_RateLimit_Remaining_Tokens="0", Openai_Processing_Ms="12"),
}
"""By name."""
