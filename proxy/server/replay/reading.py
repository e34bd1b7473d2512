"""Reads conversations from files: requests, message lists, records of this proxy, traces.

| a line, or the whole file, is | with |
|---|---|
| a chat request | `messages`, `model`; the last message is to be answered |
| a message list | `messages`, perhaps `tools`, and `request_points`: a request is `messages[:point]` |
| a saved request, as `penstock serve --save` writes it | `request`, perhaps `usage` or `response`, `at` |
| a record of `/admin/requests/{id}`, or a list of them | `text`, where `records: {text: true}` keeps it |
| OTLP/JSON traces | `resourceSpans`; the spans have `gen_ai.input.messages` |
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from proxy.chat import encode
from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body
from proxy.identity import identify
from proxy.models.usage import Usage, UsageReader
from proxy.server.replay.traces import spans


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request of a conversation, and what is known of it."""

    body: Mapping[str, Any]
    """The client's request; it may lack a model."""
    raw: bytes | None = None
    """The client's own bytes of it, where the file has them: handles are made of them."""
    answer: Mapping[str, Any] | None = None
    """The message that answered it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    at: float | None = None
    """When it came, in seconds since 1970."""
    usage: Usage | None = None
    """What the upstream reported."""
    sent: Mapping[str, Any] | None = None
    """What was sent at the time, where a chain had changed the request."""
    needed: tuple[str, ...] | None = None
    """Values that the answer needed; None where they have to be found."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Requests in the order in which they came."""

    name: str
    source: str
    points: Sequence[RecordedRequest]


def read(path: Path) -> list[Conversation]:
    """Return the conversations of a file. Raise `BadRequest` for what cannot be read, with its place."""
    found: list[Conversation] = []
    loose: dict[str, list[RecordedRequest]] = {}
    for place, row, line in _rows(path):
        try:
            for item in _unpacked(row):
                if _is_list(item):
                    found.append(_message_list(item, path.stem, len(found) + 1))
                else:
                    point, name = _point(item, line if item is row else None)
                    loose.setdefault(name, []).append(point)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, BadRequest) as error:
            told = str(error) if isinstance(error, BadRequest) else f"no conversation ({type(error).__name__}: {error})"
            raise BadRequest(f"{place}: {told}; docs/how-to/replay.md has the forms") from None
    for name, points in loose.items():
        in_order = sorted(points, key=lambda point: point.at or 0.0)  # stable where nothing says when they came
        found.append(Conversation(name, path.stem, [*_answered(in_order)]))
    if not found:
        raise BadRequest(f"{path}: no conversation in it")
    return found


def _is_list(row: Mapping[str, Any]) -> bool:
    """Return whether a row is a whole conversation: a chat request names a model, and ends with what is to be
    answered."""
    if "request_points" in row or "messages" not in row or "text" in row:
        return "request_points" in row
    return "model" not in row or bool(_answer(row["messages"][-1:]))


def _rows(path: Path) -> Iterator[tuple[str, Any, bytes]]:
    """Yield what the file holds: all of it, or each line; with its place and its bytes."""
    text = path.read_bytes()
    try:
        yield str(path), json.loads(text), text
        return
    except ValueError:
        pass
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise BadRequest(f"{path}:{number}: not JSON: {error}") from None
            yield f"{path}:{number}", row, line


def _unpacked(row: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the conversations and requests in what one line holds."""
    if isinstance(row, list):
        for item in row:
            yield from _unpacked(item)
    elif "resourceSpans" in row:
        yield from spans(row)
    elif isinstance(row.get("conversations", row.get("requests")), list):
        yield from _unpacked(row.get("conversations", row.get("requests")))
    else:
        yield row


def _message_list(row: Mapping[str, Any], source: str, number: int) -> Conversation:
    messages: list[dict[str, Any]] = row["messages"]
    points = row.get("request_points")
    if points is None:
        points = [place for place, each in enumerate(messages) if place and each["role"] == "assistant"]
        points += [] if messages[-1]["role"] == "assistant" else [len(messages)]
    shared = {key: row[key] for key in ("model", "tools") if row.get(key)}
    needed: dict[int, list[str]] | None = None
    if "values" in row:
        needed = {point: [] for point in points}
        for value in row["values"]:
            if value["cls"] == "id" and value["first_role"] not in ("arg", "assistant"):
                needed.setdefault(value["at"], []).append(value["v"])
    made = [
        RecordedRequest(
            {**shared, "messages": messages[:point]},
            answer=_answer(messages[point : point + 1]),
            needed=None if needed is None else tuple(needed[point]),
        )
        for point in points
    ]
    return Conversation(str(row.get("id", f"{source}-{number}")), str(row.get("source", source)), made)


def _point(row: Mapping[str, Any], line: bytes | None) -> tuple[RecordedRequest, str]:
    """Return a request, and the name of its conversation; `line` has its bytes."""
    if isinstance(text := row.get("text"), dict):
        point = _of_record(row, text)
    elif "request_id" in row:
        raise BadRequest("a record without text: /admin/requests/{id} has it where `records: {text: true}` is set")
    elif "request" in row:
        point = replace(_of_exchange(row), raw=None if line is None else Body(line).raw_of("request"))
    else:
        point = RecordedRequest(row, line)
    if not isinstance(point.body.get("messages"), list):
        raise BadRequest("messages must be a list of messages")
    name = row.get("conversation") or row.get("conversation_id")
    if not name:
        who = identify(point.headers, Body(encode({"model": "", **point.body} | {"model": "any"})).parse())
        name = f"{who.tenant[:8]}/{who.scope}"
    return point, str(name)


def _of_exchange(row: Mapping[str, Any]) -> RecordedRequest:
    response = row.get("response")
    answer, usage = row.get("answer"), UsageReader().of_body(encode({"usage": row.get("usage") or {}}))
    if isinstance(response, dict):
        choices = response.get("choices") or [{}]
        answer = choices[0].get("message")
        usage = UsageReader().of_body(encode(response))
    headers = {str(name).lower(): str(value) for name, value in (row.get("headers") or {}).items()}
    at, sent = _seconds(row.get("at")), row.get("sent")
    return RecordedRequest(row["request"], answer=answer, headers=headers, at=at, usage=usage, sent=sent)


def _of_record(row: Mapping[str, Any], text: Mapping[str, Any]) -> RecordedRequest:
    def body(when: str) -> dict[str, Any]:
        tools = text.get(f"tools_{when}")
        return {"model": row["model"], "messages": text[when], **({"tools": tools} if tools else {})}

    usage = Usage(row.get("input_tokens"), row.get("output_tokens"), row.get("cached_tokens"))
    at, sent = _seconds(row.get("ended")), body("after")
    return RecordedRequest(body("before"), answer=text.get("answer"), at=at, usage=usage, sent=sent)


def _answered(points: Sequence[RecordedRequest]) -> Iterator[RecordedRequest]:
    """Yield the requests with their answers, as the next one of the conversation has them."""
    for place, point in enumerate(points):
        if point.answer is None and place + 1 < len(points):
            end = len(point.body["messages"])
            yield replace(point, answer=_answer(points[place + 1].body["messages"][end : end + 1]))
        else:
            yield point


def _answer(behind: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return behind[0] if behind and behind[0].get("role") == "assistant" else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, str):
        return datetime.fromisoformat(value).timestamp()
    return float(value) if isinstance(value, (int, float)) else None
