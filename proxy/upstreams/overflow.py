"""Prompts that do not fit: servers' words for it, and OpenAI's, which clients know."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson

from proxy.text.tables import lines

CODE = "context_length_exceeded"

_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses with which servers refuse a prompt."""

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
    prompt, window = _first(patterns["prompt"], text), _first(patterns["window"], text)
    return Overflow(_number(prompt), _number(window), window[0] if window else "")


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
        error = orjson.loads(body)
    except orjson.JSONDecodeError:
        error = body.decode("utf-8", "replace")
    error = error[0] if isinstance(error, list) and error else error
    inner = error.get("error", error) if isinstance(error, dict) else error
    fields = {key: value for key, value in inner.items() if key != "object"} if isinstance(inner, dict) else {}
    if isinstance(error, dict) and "error" in error and fields.get("code") == CODE:
        return body
    told = fields.get("message") or fields.get("detail") or inner
    text = told if isinstance(told, str) else orjson.dumps(told).decode()
    known = {"type": "invalid_request_error", "param": "messages"}
    kept = {key: fields[key] for key in fields if isinstance(fields[key], str | int)}
    error = known | kept | {"message": sentence(text, overflow.prompt, overflow.window), "code": CODE}
    return orjson.dumps({"error": error | {"param": error["param"] or "messages"}})


def sentence(text: str, prompt: int | None, window: int | None) -> str:
    """Return the sentence by which clients know that the context is full, followed by the server's own words."""
    limit = f"{window} tokens" if window else "exceeded"
    counted = f" However, your messages resulted in {prompt} tokens." if prompt else ""
    advice = "Please reduce the length of the messages."
    return f"This model's maximum context length is {limit}.{counted} {advice} {text[:LONGEST_MESSAGE]} ({CODE})"


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


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> re.Match[str] | None:
    return next((match for each in patterns if (match := each.search(text))), None)


def _number(match: re.Match[str] | None) -> int | None:
    return None if match is None else int(match["n"].replace(",", ""))


@cache
def _patterns() -> dict[str, tuple[re.Pattern[str], ...]]:
    found: dict[str, tuple[re.Pattern[str], ...]] = {}
    for kind, _, pattern in (line.partition(" ") for line in lines("overflows")):
        made = re.compile(pattern.replace("{n}", r"(?P<n>\d[\d,]{0,11})"), re.IGNORECASE)
        found[kind] = (*found.get(kind, ()), made)
    return found
