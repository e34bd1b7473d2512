"""Refusals of upstreams in OpenAI's terms; those of prompts that do not fit in the words that clients know."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson

from proxy.chat.errors import OVERFLOW, PenstockError
from proxy.text.json_values import json_object
from proxy.text.tables import lines
from proxy.upstreams.base import Call, Reply
from proxy.wires.messages import STATUSES

_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses with which servers refuse a prompt."""

_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_LONGEST_BODY, _LONGEST_TEXT = 2**18, 4000
"""Bytes of a body that is read, characters of its texts."""

LONGEST_MESSAGE = 2000
"""Characters of a server's words that are passed on."""

_ECHOED = frozenset({"input", "request_id"})
"""Fields of an error that may repeat what the client sent."""


@dataclass(frozen=True, slots=True)
class Overflow:
    """A refusal for want of room, with its numbers of tokens."""

    prompt: int | None = None
    window: int | None = None
    words: str = field(default="", compare=False)
    """The words that name the window, verbatim."""

    def is_quoted(self, body: bytes, others: Iterable[str] = ()) -> bool:
        """Return whether the words that name the window may be the client's own, in a body or in other texts.

        Servers quote requests that they refuse.
        """
        try:
            plain = orjson.dumps(orjson.loads(body))
        except orjson.JSONDecodeError:  # such as half a character: what it says cannot be told
            return True
        words = self.words.encode().lower()
        return any(words in each.lower() for each in (body, plain, *map(str.encode, others)))


def find_overflow(text: str) -> Overflow | None:
    """Return the overflow that an error's text reports; None if the error is about something else."""
    text = text[:_LONGEST_TEXT]
    patterns = _patterns()
    if patterns["not"][0].search(text) or not any(sign.search(text) for sign in patterns["sign"]):
        return None
    prompt, window = (
        next(filter(None, (each.search(text) for each in patterns[kind])), None) for kind in ("prompt", "window")
    )
    sizes = [None if match is None else int(match["n"].replace(",", "")) for match in (prompt, window)]
    return Overflow(sizes[0], sizes[1], window[0] if window else "")


def read_refusal(status: int, body: bytes) -> Overflow | None:
    """Return the overflow that an error's body reports, or an error event of a stream."""
    if status not in _STATUSES or len(body) > _LONGEST_BODY:
        return None
    try:
        return find_overflow("\n".join(_texts(orjson.loads(body))))
    except orjson.JSONDecodeError:
        return find_overflow(body.decode("utf-8", "replace"))


def openai_body(body: bytes, overflow: Overflow) -> bytes:
    """Return the error in OpenAI's words. One that has the code already stays as it is; other fields are kept."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = body.decode("utf-8", "replace")
    fields = error_in(said)
    if isinstance(said, dict) and "error" in said and fields.get("code") == OVERFLOW:
        return body
    told = fields.get("message") or fields.get("detail") or fields
    text = told if isinstance(told, str) else orjson.dumps(told).decode()
    known = {"type": "invalid_request_error", "param": "messages"}
    kept = {key: value for key, value in fields.items() if isinstance(value, str | int) and key != "object"}
    error = known | kept | {"message": sentence(text, overflow.prompt, overflow.window), "code": OVERFLOW}
    return orjson.dumps({"error": error | {"param": error["param"] or "messages"}})


def error_in(answer: Any) -> Mapping[str, Any]:
    """Return the error object of an answer, which may be a list or be without one; a bare text is its `message`."""
    answer = answer[0] if isinstance(answer, list) and answer else answer
    error = answer.get("error", answer) if isinstance(answer, Mapping) else answer
    return error if isinstance(error, Mapping) else {"message": error}


def status_of(error: Mapping[str, Any]) -> int | None:
    """Return the status that an error within an answer stands for; None where it names none."""
    told = [str(error.get(name)) for name in ("status", "status_code", "code", "type")]
    known = (int(each) if _STATUS.fullmatch(each) else STATUSES.get(each) for each in told)
    return next(filter(None, known), None)


def words_of(error: Mapping[str, Any]) -> str:
    """Return the message of an error object; empty if there is none."""
    message = error.get("message")
    return message.strip() if isinstance(message, str) else ""


def sentence(text: str, prompt: int | None, window: int | None) -> str:
    """Return the sentence by which clients know that the context is full, followed by the server's own words."""
    limit = f"{window} tokens" if window else "exceeded"
    counted = f" However, your messages resulted in {prompt} tokens." if prompt else ""
    advice = "Please reduce the length of the messages."
    return f"This model's maximum context length is {limit}.{counted} {advice} {text[:LONGEST_MESSAGE]} ({OVERFLOW})"


def _texts(value: Any, name: str = "", depth: int = 4) -> Iterator[str]:
    if isinstance(value, str | int):
        yield f"{name}: {value}"
    elif isinstance(value, dict) and depth:
        for key, inner in value.items():
            if key not in _ECHOED:
                yield from _texts(inner, key, depth - 1)
    elif isinstance(value, list) and depth:
        for inner in value[:8]:
            yield from _texts(inner, name, depth - 1)


@cache
def _patterns() -> dict[str, tuple[re.Pattern[str], ...]]:
    found: dict[str, tuple[re.Pattern[str], ...]] = {}
    for kind, _, pattern in (line.partition(" ") for line in lines("overflows")):
        made = re.compile(pattern.replace("{n}", r"(?P<n>\d[\d,]{0,11})"), re.IGNORECASE)
        found[kind] = (*found.get(kind, ()), made)
    return found


_BY_STATUS = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable_error", "server_is_overloaded"),
}
"""OpenAI's type and code; other statuses have a type of their hundred and no code."""

_OVERLOADED = 529
"""Anthropic's status for an overload of all; no client of OpenAI's knows it."""
_USUAL_WAIT = "2"
"""Seconds until another try, where such a server does not say."""

RETRY_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry")


def advice(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers of an error that tell SDKs when to try again."""
    told = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    return {name: told[name] for name in RETRY_HEADERS if name in told}


class Refused(PenstockError):
    """The upstream answered with an error."""

    def __init__(self, message: str, status: int, **more: Any) -> None:
        super().__init__(message, status=status, kind=_kind_of(status)[0], **more)


def _kind_of(status: int) -> tuple[str, str | None]:
    return _BY_STATUS.get(status) or ("server_error" if status >= 500 else "invalid_request_error", None)


def refused(
    status: int, text: str, call: Call | None, *, is_own: bool, headers: Mapping[str, str] | None = None
) -> Refused:
    """Return the error for a status, with the server's words. If not `is_own`, it comes from something in front.

    One for a prompt that does not fit has our own figures where the server left them out.
    """
    if status == _OVERLOADED:
        status, headers = 503, {"retry-after": _USUAL_WAIT, **(headers or {})}
    overflow = find_overflow(text) if status in _STATUSES else None
    if overflow is not None or status == 413:
        prompt = (overflow and overflow.prompt) or (call.counted.total if call and call.counted else None)
        window = (overflow and overflow.window) or (call.profile.window if call and call.profile else None)
        return Refused(sentence(text, prompt, window), 400, code=OVERFLOW, param="messages")
    if status == 404 and is_own and call is not None:
        text = f"The model `{call.model[:200]}` does not exist or you do not have access to it. {text}"
    text = text or f"The upstream answered with status {status}."
    return Refused(text, status, code=_kind_of(status)[1] if is_own else None, headers=headers)


def refusal_in(reply: Reply) -> Refused:
    """Return the error that an answer in OpenAI's form is, with the server's own message and code."""
    fields = error_in({"error": None, **json_object(reply.body or b"")})
    code, param = (value if isinstance(value := fields.get(name), str) else None for name in ("code", "param"))
    text = str(fields.get("message") or f"The upstream answered with status {reply.status}.")
    return Refused(text, reply.status, code=code, param=param)
