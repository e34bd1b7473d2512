"""Reads conversations from files; `docs/how-to/replay.md` has the forms."""

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from proxy.chat import ChatRequest, Message, encode
from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body
from proxy.chat.splice import readable
from proxy.identity import identify
from proxy.models.usage import Usage, UsageReader
from proxy.text import counted
from proxy.wires import body_of


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request of a conversation, with its recorded answer and usage."""

    body: Mapping[str, Any]
    """The client's request; it may lack a model."""
    raw: bytes | None = None
    answer: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    at: float | None = None
    usage: Usage | None = None
    sent: Mapping[str, Any] | None = None
    """The body that was sent at the time, where a chain had changed the request."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The requests of a conversation, in the order in which they came."""

    name: str
    source: str
    points: list[RecordedRequest]


def request_of(body: Mapping[str, Any]) -> ChatRequest:
    """Return the request in a recorded body of any wire."""
    return body_of(encode({"model": "any", **body})).parse()


def read(path: Path) -> list[Conversation]:
    """Return the conversations of a file. Raise `BadRequest` for what cannot be read, with its place.

    Requests that were saved without messages, which the vendor had, are left out with a warning.
    """
    talks: dict[tuple[str, int], Conversation] = {}
    stored: Stored = {}
    empty: list[str] = []
    for place, row, line in _rows(path):
        try:
            for item in _unpacked(row):
                # several lists may have one name
                number = len(talks) if _is_list(item) else -1
                for saved in _as_saved(item, f"{path.stem}-{len(talks) + 1}"):
                    whole, own = _whole(saved, stored), item.get("request", item)
                    if own is not item and not _has_messages(whole["request"]):
                        empty.append(place)
                        continue
                    # the bytes of a request count, as handles are made of them
                    is_own = item is row and whole["request"] is own
                    raw = None if not is_own else line if own is item else Body(line).raw_of("request")
                    point, name = _point(whole, raw)
                    talk = Conversation(name, str(item.get("source", path.stem)), [])
                    talks.setdefault((name, number), talk).points.append(point)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, BadRequest) as error:
            told = str(error) if isinstance(error, BadRequest) else f"no conversation ({type(error).__name__}: {error})"
            raise BadRequest(f"{place}: {told}; docs/how-to/replay.md has the forms") from None
    if empty:
        told = f"{counted(len(empty), 'request')} without messages left out, the first at {empty[0]}"
        print(f"warning: {told}", file=sys.stderr)
    if not talks:
        raise BadRequest(f"{path}: no conversation in it")
    return [replace(talk, points=_in_order(talk.points)) for talk in talks.values()]


def _rows(path: Path) -> Iterator[tuple[str, Any, bytes]]:
    """Yield the contents of the file, all of it or each line, with its place and its bytes."""
    text = readable(path.read_bytes().removeprefix(BOM_UTF8))
    with suppress(ValueError, RecursionError):
        yield str(path), json.loads(text), text
        return
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadRequest(f"{path}:{number}: not JSON: {error}") from None
            yield f"{path}:{number}", row, line


def _unpacked(row: Any) -> Iterator[Mapping[str, Any]]:
    if type(row) not in (dict, list):
        raise BadRequest("a request or a conversation is a JSON object")
    inner = row if isinstance(row, list) else row.get("conversations", row.get("requests"))
    if not isinstance(inner, list):
        yield row
        return
    for item in inner:
        yield from _unpacked(item)


def _as_saved(row: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Yield what a row has in the form of saved requests; a message list without an id is called `name`."""
    if _is_list(row):
        yield from _of_list(row, name)
    elif isinstance(row.get("text"), dict):
        yield saved_form(row)
    elif "request_id" in row:
        raise BadRequest("a record without text: /admin/requests/{id} has it where `records: {text: true}` is set")
    else:
        yield row if "request" in row else {"request": row}


def _is_list(row: Mapping[str, Any]) -> bool:
    """Return whether a row is a whole conversation; a request names a model, and ends with the open message."""
    if "request_points" in row or "messages" not in row or "text" in row:
        return "request_points" in row
    return "model" not in row or bool(_answer(row["messages"][-1:]))


def _of_list(row: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    messages: list[dict[str, Any]] = row["messages"]
    request_of({"messages": messages})  # raises for what is wrong with an answer, too
    points = row.get("request_points")
    if points is None:
        points = [place for place, each in enumerate(messages) if place and each["role"] == "assistant"]
        points += [] if messages[-1]["role"] == "assistant" else [len(messages)]
    shared = {key: row[key] for key in ("model", "tools") if row.get(key)}
    for point in points:
        request, answer = {**shared, "messages": messages[:point]}, _answer(messages[point:])
        yield {"conversation": row.get("id", name), "request": request, "answer": answer}


def saved_form(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with text as `penstock serve --save` writes it, in the form of chat completions."""
    usage = {"prompt_tokens": record.get("input_tokens"), "completion_tokens": record.get("output_tokens")}
    usage |= {"prompt_tokens_details": {"cached_tokens": record.get("cached_tokens")}}
    answer, came, sent = record["text"].get("answer"), recorded_body(record), recorded_body(record, "after")
    return {
        "at": record.get("ended"),
        "conversation": record.get("conversation"),
        "request": came,
        **({"sent": sent} if sent != came else {}),
        "response": {"choices": [{"index": 0, "message": answer}] if answer else [], "usage": usage},
    }


def recorded_body(record: Mapping[str, Any], when: str = "before") -> dict[str, Any]:
    """Return the request in a record with text, as the client sent it or (`after`) as it was sent on."""
    text = record["text"]
    tools = text.get(f"tools_{when}")
    return {"model": record["model"], "messages": text[when], **({"tools": tools} if tools else {})}


Stored = dict[str, list[Any]]
"""By the id of an answer, or of a conversation that the vendor keeps, all of it up to here."""


def _whole(row: Mapping[str, Any], stored: Stored) -> Mapping[str, Any]:
    """Return a row with the whole conversation in its request, also where the vendor had the beginning of it."""
    body, response = row["request"], row.get("response")
    name, listed = _listed(body)
    thread, whole = body.get("thread") or {}, body.get("conversation")
    whole = whole.get("id") if isinstance(whole, dict) else whole
    before = body.get("previous_response_id") or thread.get("previous_message_id") or whole
    if before in stored:
        listed = [*stored[before], *listed]
        bare = {
            key: value for key, value in body.items() if key not in ("previous_response_id", "conversation", "thread")
        }
        row = {**row, "request": {**bare, name: listed}}
    if isinstance(response, dict) and isinstance(response.get("id"), str):
        stored |= {id: [*listed, *_output_of(response)] for id in (response["id"], whole) if id}
    return row


def _has_messages(body: Mapping[str, Any]) -> bool:
    return not body.keys().isdisjoint(("messages", "input"))


def _listed(body: Mapping[str, Any]) -> tuple[str, list[Any]]:
    name = "messages" if "messages" in body else "input"
    listed = body.get(name) or []
    return name, [{"role": "user", "content": listed}] if isinstance(listed, str) else listed


def _output_of(response: Mapping[str, Any]) -> list[Any]:
    """Return what a response of the vendors' own wires says, as the next request has it."""
    if isinstance(output := response.get("output"), list):
        return output
    content = response.get("content")
    return [{"role": "assistant", "content": content}] if isinstance(content, list) else []


def _point(row: Mapping[str, Any], raw: bytes | None) -> tuple[RecordedRequest, str]:
    """Return a request, and the name of its conversation. `raw` is the request as the file has it."""
    body, response, answer = row["request"], row.get("response"), row.get("answer")
    if not isinstance(body.get("messages", []), list) or not _has_messages(body):
        raise BadRequest("messages must be a list of messages")
    if isinstance(response, dict):
        name, listed = _listed(body)
        if behind := _output_of(response):
            answer = _answer(request_of({**body, name: [*listed, *behind]}).messages[-1:])
        else:
            answer = (response.get("choices") or [{}])[0].get("message")
    if answer is not None:
        request_of({"messages": [answer]})
    reported = {"usage": row["usage"]} if row.get("usage") else response
    usage = UsageReader().of_body(encode(reported)) if isinstance(reported, dict) else None
    headers = {str(name).lower(): str(value) for name, value in (row.get("headers") or {}).items()}
    conversation = row.get("conversation") or row.get("conversation_id")
    if not conversation:
        who = identify(headers, request_of(body))
        conversation = f"{who.tenant[:8]}/{who.scope}"
    at = row.get("at")
    seconds = datetime.fromisoformat(at).timestamp() if isinstance(at, str) else None if at is None else float(at)
    return RecordedRequest(body, raw, answer, headers, seconds, usage, row.get("sent")), str(conversation)


AnyMessage = TypeVar("AnyMessage", bound=Mapping[str, Any])


def _answer(behind: Sequence[AnyMessage]) -> AnyMessage | None:
    return behind[0] if behind and behind[0].get("role") == "assistant" else None


def answer_in(request: ChatRequest, later: ChatRequest) -> Message | None:
    """Return the answer to a request, as a later one of the conversation has it."""
    return _answer(later.messages[len(request.messages) :])


def _in_order(points: Sequence[RecordedRequest]) -> list[RecordedRequest]:
    """Return requests sorted by their times, each with the answer that the next one has."""
    points = sorted(points, key=lambda point: point.at or 0.0)  # stable where nothing says when they came
    for place, (point, later) in enumerate(pairwise(points)):
        if point.answer is None:
            points[place] = replace(point, answer=answer_in(request_of(point.body), request_of(later.body)))
    return points
