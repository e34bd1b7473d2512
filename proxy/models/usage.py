"""Token usage, read from an answer's bytes as they pass by."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from proxy.chat.sse import ByteStream, EventSplitter, event_data, with_data
from proxy.models.vendor_reports import VendorReport, read_report
from proxy.text.json_values import json_object

NO_REPORT = VendorReport()

_TAIL = 8192
"""Bytes kept of a stream's beginning and of its end: usage stands in one of its last events, or at their end. Only
Anthropic's first event tells of the prompt."""

_EARLIER = "earlier_"
_COUNTED = ("input", "output", "cached", "written", "reasoning")
_NOTICED = ("prompt_tokens", "completion_tokens", "cached_tokens", "written_tokens", "reasoning_tokens")
_MODALITIES = ("text", "image", "audio")

_NO_USAGE = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,')
"""Only a key can look like this: inside a string its quotes would be escaped."""

_USAGE = re.compile(r'"usage"\s*:\s*\{')


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the upstream reports them, and other facts of an answer."""

    input: int | None = None
    """Tokens of the prompt, cached ones included."""
    output: int | None = None
    cached: int | None = None
    """Prompt tokens that the provider read from its cache."""
    model: str | None = None
    response_id: str | None = None
    finish_reasons: tuple[str, ...] = ()
    error: str | None = None
    """The code of the error that the answer is, in OpenAI's error body."""
    written: int | None = None
    """Prompt tokens that the provider wrote into its cache, where it charges for that and says so."""
    report: VendorReport = NO_REPORT
    reasoning: int | None = None
    modalities: tuple[tuple[str, int], ...] = ()
    """Tokens by modality, such as `audio.input_tokens`; none for an answer of several rounds."""

    def completed(self, facts: Mapping[str, object]) -> "Usage":
        """Return the billed usage: with earlier rounds, or the upstream's facts where the answer's bytes have none."""
        if self.input is not None:
            if facts.get("rounds", 1) == 1:
                return self
            before = {key: _count(facts.get(_EARLIER + key)) for key in _COUNTED}
            more: dict[str, Any] = {key: (getattr(self, key) or 0) + count for key, count in before.items() if count}
            return replace(self, modalities=(), **more)
        names = _NOTICED if "prompt_tokens" in facts else [_EARLIER + key for key in _COUNTED]
        noticed: dict[str, Any] = {key: _count(facts.get(name)) for key, name in zip(_COUNTED, names, strict=True)}
        return replace(self, **noticed)


class UsageReader:
    """The reader of usage in a whole body or at the end of a stream; it never fails."""

    def __init__(self) -> None:
        self._first = b""
        self._recent: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        self._recent.append(chunk)
        self._size += len(chunk)
        if self._size > 8 * _TAIL:  # now and then: it happens for each chunk of each stream
            recent = b"".join(self._recent)
            self._first = self._first or recent[:_TAIL]
            self._recent, self._size = [recent[-_TAIL:]], _TAIL

    def of_stream(self) -> Usage:
        """Return the usage at the end of the stream or in its first event; empty if there is none."""
        result = Usage()
        finish: tuple[str, ...] = ()
        error, report = None, NO_REPORT
        recent = b"".join(self._recent)
        for line in (*(self._first or recent[:_TAIL]).splitlines()[:2], *recent[-_TAIL:].splitlines()):
            if line.startswith(b"data:") and (event := json_object(line[5:])):
                answer = _answer_of(event)
                usage = _read(answer)
                finish = usage.finish_reasons or finish
                error = _failure(event) or _failure(answer) or error
                report = report.joined(read_report(event)).joined(read_report(answer))
                if usage.input or not result.input:
                    result = usage
                elif usage.output is not None:  # Anthropic may tell of the prompt at the beginning alone
                    result = replace(result, output=usage.output)
        if result.input is None:  # the event that tells of it may be longer than what is kept
            used = _read({"usage": _cut_usage(recent[-_TAIL:])})
            result = replace(used, model=result.model, response_id=result.response_id)
        return replace(result, finish_reasons=finish, error=error, report=report)

    def of_body(self, body: bytes) -> Usage:
        try:
            answer = _whole.decode(body)
        except (ValueError, RecursionError):
            return Usage()
        return _read(msgspec.structs.asdict(answer))


class _Told(msgspec.Struct):
    """The fields of a whole answer that are read: the millions of numbers of embeddings would take a while."""

    usage: Any = None
    choices: Any = None
    model: Any = None
    id: Any = None
    error: Any = None
    input_transformations: Any = None
    context_management: Any = None
    diagnostics: Any = None
    prompt_cache_diagnostics: Any = None


_whole = msgspec.json.Decoder(_Told)


def _answer_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of an event that tells of the answer: Responses and Messages put it into the event."""
    return _mapping(event.get("response")) or _mapping(event.get("message")) or event


def _failure(event: Mapping[str, Any]) -> str | None:
    """Return the code of the error that an event of a stream is, else its type."""
    error = event if event.get("type") == "error" and "error" not in event else event.get("error")
    if not error:
        return None
    told = _mapping(error)
    known = (told.get("code"), told.get("type"))
    return next((str(each) for each in known if each and isinstance(each, str | int)), "error")


def _cut_usage(end: bytes) -> Any:
    """Return the last object under the key `usage` in JSON whose beginning is missing."""
    text = end.decode("utf-8", "replace")
    found = [*_USAGE.finditer(text)]
    try:
        return json.JSONDecoder().raw_decode(text, found[-1].end() - 1)[0] if found else None
    except (ValueError, RecursionError):
        return None


def _read(answer: Mapping[str, Any]) -> Usage:
    usage = _mapping(answer.get("usage"))
    choices = answer.get("choices")
    reasons = [_mapping(choice).get("finish_reason") for choice in choices] if isinstance(choices, list) else []
    details = _mapping(usage.get("prompt_tokens_details", usage.get("input_tokens_details")))
    spent = _mapping(usage.get("completion_tokens_details", usage.get("output_tokens_details")))
    read = written = None
    prompt = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    if prompt is not None and "prompt_tokens" not in usage:  # Anthropic counts its cache beside the rest of the prompt
        read, written = (_count(usage.get(f"cache_{done}_input_tokens")) for done in ("read", "creation"))
        prompt += (read or 0) + (written or 0)
    return Usage(
        input=prompt,
        output=_count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cached=_count(details.get("cached_tokens", read)),
        written=_count(details.get("cache_creation_tokens", details.get("cache_write_tokens", written))),
        model=_text(answer.get("model")),
        response_id=_text(answer.get("id")),
        finish_reasons=tuple(reason for reason in reasons if isinstance(reason, str)),
        error=_text(_mapping(answer.get("error")).get("code")),
        report=read_report(answer),
        reasoning=_count(spent.get("reasoning_tokens", spent.get("thinking_tokens"))),
        modalities=tuple(
            (f"{kind}.{side}_tokens", count)
            for side, part in (("input", details), ("output", spent))
            for kind in _MODALITIES
            if part and (count := _count(part.get(f"{kind}_tokens")))
        ),
    )


def read_usage(usage: Any) -> Usage:
    """Return the tokens that a `usage` object of any of the wires reports."""
    return _read({"usage": usage})


def earlier(facts: Mapping[str, object], usage: Mapping[str, Any]) -> dict[str, int]:
    """Facts about what the rounds before the last one used, with the usage of one more."""
    read = read_usage(usage)
    used = {_EARLIER + key: getattr(read, key) for key in _COUNTED}
    return {key: (_count(facts.get(key)) or 0) + more for key, more in used.items() if more is not None}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


async def without_usage(chunks: ByteStream) -> AsyncGenerator[bytes, None]:
    """Yield a stream, event by event, without the usage that only Penstock asked for."""
    events = EventSplitter()
    async with aclosing(chunks):
        async for chunk in chunks:
            kept = [shown + boundary for event, boundary in events.feed(chunk) if (shown := _client_event(event))]
            if kept:
                yield b"".join(kept)
    if rest := events.rest():
        yield rest


def _client_event(event: bytes) -> bytes:
    """Return an event without usage, empty if it carries nothing else, or its own bytes if it has none."""
    if b'"usage"' not in event:
        return event
    answer = json_object(event_data(event))
    if "usage" not in answer:
        return event
    if answer["usage"] is not None and answer.get("choices") == []:
        return b""
    if answer["usage"] is None:
        return _NO_USAGE.sub(b"", event)
    del answer["usage"]
    return with_data(event, answer)
