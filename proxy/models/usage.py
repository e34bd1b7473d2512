"""Token usage, read from an answer's bytes as they pass by, and other reports of vendors.

They report dropped reasoning, edits of their own, causes of a missed cache, and reads of the cache.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple, TypedDict

import msgspec

from proxy.chat.sse import ByteStream, EventSplitter, read_event, with_data
from proxy.context import CacheRules, Identity, ModelProfile
from proxy.state.cache import Cache
from proxy.text.json_values import json_object, json_objects, mapping

HARMFUL = frozenset({"prefix_binding_mismatch", "prefix_mismatch"})
"""Reasons for dropped reasoning that an edit of a prompt causes; others are a change of the model or the account."""
_CHANGED = re.compile(r"(?!model)\w+_changed")
"""Causes of a missed cache that an edit of a prompt can have."""

_REPORTS = frozenset({"input_transformations", "context_management", "diagnostics", "prompt_cache_diagnostics"})
"""The fields of an answer with reports."""
_CONVERSATIONS = 20_000
_AGE = 24 * 3600.0


class VendorReport(NamedTuple):
    """A vendor's report on one request."""

    dropped: tuple[str, ...] = ()
    """The reason for each block or item of reasoning that it took out."""
    edits: tuple[str, ...] = ()
    """The types of its own edits that it applied."""
    missed: str | None = None
    """The part of the prompt that kept it from reading its cache."""

    def harm(self, *, is_unread: bool) -> str | None:
        """Return why an edit did harm, or None; `is_unread` if nothing was read that should have been cached."""
        is_edited = is_unread and self.missed is not None and _CHANGED.fullmatch(self.missed) is not None
        return next((reason for reason in self.dropped if reason in HARMFUL), self.missed if is_edited else None)

    def __str__(self) -> str:
        dropped = [f"dropped reasoning: {reason}" for reason in dict.fromkeys(self.dropped)]
        edits = [f"applied {edit}" for edit in dict.fromkeys(self.edits)]
        return "; ".join([*dropped, *edits, *([f"missed its cache: {self.missed}"] if self.missed else [])])

    def joined(self, other: "VendorReport") -> "VendorReport":
        """Return both as one: a stream reports in several events, some of them twice."""
        return VendorReport(other.dropped or self.dropped, other.edits or self.edits, other.missed or self.missed)


def read_report(answer: Mapping[str, Any]) -> VendorReport:
    """Return the report in an answer, or in an event of its stream."""
    if _REPORTS.isdisjoint(answer):  # as almost all
        return NO_REPORT
    found = json_objects(answer.get("input_transformations"))
    dropped = [str(each.get("reason")) for each in found if each.get("type") != "thinking_mismatch_allowed"]
    applied = json_objects(mapping(answer.get("context_management")).get("applied_edits"))
    edits = [str(each.get("type")) for each in applied]
    causes = (("diagnostics", "cache_miss_reason"), ("prompt_cache_diagnostics", "reason"))
    reason = next(filter(None, (mapping(answer.get(field)).get(name) for field, name in causes)), None)
    missed = reason.get("type") if isinstance(reason, dict) else reason
    return VendorReport(tuple(dropped), tuple(edits), None if reason is None else str(missed))


MISSES = 3
"""So many answers in a row without a read that was expected: then the cache is taken for unused."""

PAUSE = 600.0


class ReportMemory:
    """The steps on hold, and the misses of the cache, in each conversation. For use on one event loop."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._holds: Cache[tuple[str, str], Mapping[str, str]] = Cache(_CONVERSATIONS, age=_AGE)
        self._misses: Cache[tuple[str, str, str, str], int] = Cache(_CONVERSATIONS, age=PAUSE, clock=clock)

    def hold(self, who: Identity, steps: Iterable[str], reason: str) -> None:
        self._holds.put((who.tenant, who.scope), {**self.on_hold(who), **dict.fromkeys(steps, reason)})

    def on_hold(self, who: Identity) -> Mapping[str, str]:
        return self._holds.get((who.tenant, who.scope)) or {}

    def note(self, who: Identity, upstream: str, model: str, expected: int, reported: int | None) -> None:
        """Take note of an answer: the tokens that were expected to be read from the cache, and those that were."""
        key = (who.tenant, who.scope, upstream, model)
        if reported:
            self._misses.pop(key)
        elif expected and reported == 0:  # None is a server that does not tell
            self._misses.put(key, (self._misses.get(key) or 0) + 1)

    def applied(self, who: Identity, upstream: str, profile: ModelProfile) -> ModelProfile:
        """Return the profile as it is charged: without a cache where the conversation was seen to read none."""
        unused = (self._misses.get((who.tenant, who.scope, upstream, profile.name)) or 0) >= MISSES
        return replace(profile, cache=CacheRules()) if unused else profile

    def forget(self, tenant: str) -> int:
        return self._holds.forget(tenant) + self._misses.forget(tenant)


NO_REPORT = VendorReport()

_TAIL = 8192
"""Bytes kept of a stream's beginning and of its end: usage stands in one of its last events, or at their end. Only
Anthropic's first event tells of the prompt."""

_EARLIER = "earlier_"
_COUNTED = ("input", "output", "cached", "written", "reasoning")
_NOTICED = ("prompt_tokens", "completion_tokens", "cached_tokens", "written_tokens", "reasoning_tokens")
_MODALITIES = ("text", "image", "audio")

_PARTS = ("response.", "content_block_", "message_", "ping")
"""The beginnings of types of events in Responses and Messages."""
_ENDS = frozenset(
    {
        "message_delta",
        "message_stop",
        *(f"response.{how}" for how in ("completed", "incomplete", "failed", "cancelled")),
    }
)
"""The types of events with which these end."""

_NO_USAGE = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,')
"""Only a key can look like this: inside a string its quotes would be escaped."""

_READ = _REPORTS | {"usage", "choices", "model", "id", "error"}
"""The fields of a whole answer that are read: the millions of numbers of embeddings would take a while."""
_make: Any = TypedDict
_decoder = msgspec.json.Decoder(_make("_Read", dict.fromkeys(_READ, Any), total=False))
_USAGE = re.compile(r'"usage"\s*:\s*\{')


class Usage(NamedTuple):
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
            return self._replace(modalities=(), **more)
        names = _NOTICED if "prompt_tokens" in facts else [_EARLIER + key for key in _COUNTED]
        noticed: dict[str, Any] = {key: _count(facts.get(name)) for key, name in zip(_COUNTED, names, strict=True)}
        return self._replace(**noticed)


class UsageReader:
    """The reader of usage in a whole body or at the end of a stream; it never fails."""

    def __init__(self) -> None:
        self._first = b""
        self._recent: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        self._recent.append(chunk)
        self._size += len(chunk)
        if self._size > 2 * _TAIL:  # now and then: it happens for each chunk of each stream
            recent = b"".join(self._recent)
            self._first = self._first or recent[:_TAIL]
            self._recent, self._size = [recent[-_TAIL:]], _TAIL

    def of_stream(self) -> Usage:
        """Return the usage at the end of the stream or in its first event; empty if there is none."""
        result = Usage()
        finish: tuple[str, ...] = ()
        error, report = None, NO_REPORT
        recent = b"".join(self._recent)
        last = _events(recent[-_TAIL:].splitlines())
        for event in (*_events((self._first or recent[:_TAIL]).splitlines()[:2]), *last):
            # Responses and Messages put what tells of the answer into the event
            answer = mapping(event.get("response")) or mapping(event.get("message")) or event
            usage = _read(answer)
            finish = usage.finish_reasons or finish
            error = _error(event) or _error(answer) or error
            report = report.joined(read_report(event)).joined(read_report(answer))
            if usage.input or not result.input:
                result = usage
            elif usage.output is not None:  # Anthropic may tell of the prompt at the beginning alone
                result = result._replace(output=usage.output)
        if result.input is None:  # the event that tells of it may be longer than what is kept
            used = _read({"usage": _cut_usage(recent[-_TAIL:])})
            result = used._replace(model=result.model, response_id=result.response_id)
        is_cut = not finish and b"[DONE]" not in recent[-_TAIL:] and _lack_end(last)
        named = _named(error) or ("upstream_broke_off" if is_cut else None)
        return result._replace(finish_reasons=finish, error=named, report=report)

    def failure(self) -> Mapping[str, Any] | None:
        """Return the error that one of the last events of a stream is; None if there is none."""
        end = b"".join(self._recent)[-_TAIL:]
        told = (line for line in reversed(end.splitlines()) if line.startswith(b"data:") and b'"error"' in line)
        events = map(json_object, (line[5:] for line in told))
        return next(filter(None, (_error(event) or _error(mapping(event.get("response"))) for event in events)), None)

    def of_body(self, body: bytes) -> Usage:
        try:
            return _read(_decoder.decode(body))
        except (ValueError, RecursionError):
            return Usage()


def _events(lines: Sequence[bytes]) -> Sequence[Mapping[str, Any]]:
    found = (json_object(line[5:]) for line in lines if line.startswith(b"data:"))
    return [event for event in found if event]


def _lack_end(events: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last events are parts of an answer without its end. Of other streams no end is known."""
    kinds = [str(event.get("type")) for event in events]
    is_part = bool(events) and (isinstance(events[-1].get("choices"), list) or kinds[-1].startswith(_PARTS))
    return is_part and _ENDS.isdisjoint(kinds)


def _error(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the error that an event of a stream is; None if it is none."""
    error = event if event.get("type") == "error" and "error" not in event else event.get("error")
    return {"message": error, "type": event.get("error_type"), **mapping(error)} if error else None


def _named(error: Mapping[str, Any] | None) -> str | None:
    if error is None:
        return None
    known = (error.get("code"), error.get("type"))
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
    usage = mapping(answer.get("usage"))
    reasons = [choice.get("finish_reason") for choice in json_objects(answer.get("choices"))]
    details = mapping(usage.get("prompt_tokens_details", usage.get("input_tokens_details")))
    spent = mapping(usage.get("completion_tokens_details", usage.get("output_tokens_details")))
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
        error=_text(mapping(answer.get("error")).get("code")),
        report=read_report(answer),
        reasoning=_count(spent.get("reasoning_tokens", spent.get("thinking_tokens"))),
        modalities=tuple(
            (f"{kind}.{side}_tokens", count)
            for side, part in (("input", details), ("output", spent))
            for kind in _MODALITIES
            if (count := _count(part.get(f"{kind}_tokens")))
        )
        if details or spent
        else (),
    )


def read_usage(usage: Any) -> Usage:
    """Return the tokens that a `usage` object of any of the wires reports."""
    return _read({"usage": usage})


def earlier(facts: Mapping[str, object], usage: Mapping[str, Any]) -> dict[str, int]:
    """Facts about what the rounds before the last one used, with the usage of one more."""
    read = read_usage(usage)
    used = {_EARLIER + key: getattr(read, key) for key in _COUNTED}
    return {key: (_count(facts.get(key)) or 0) + more for key, more in used.items() if more is not None}


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


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
    answer = read_event(event)
    if "usage" not in answer:
        return event
    if answer["usage"] is not None and answer.get("choices") == []:
        return b""
    if answer["usage"] is None:
        return _NO_USAGE.sub(b"", event)
    del answer["usage"]
    return with_data(event, answer)
