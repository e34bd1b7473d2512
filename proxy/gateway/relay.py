"""One pipe from the upstream to the client, and the observers of what passes through it."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import starmap
from operator import attrgetter, mod
from typing import ClassVar

from proxy.access.exchange import Exchange
from proxy.chat import with_fields
from proxy.chat.errors import PenstockError
from proxy.chat.parse import Body
from proxy.chat.sse import ByteStream
from proxy.gateway.restoring import restored
from proxy.http.headers import relayed
from proxy.models.usage import Usage, UsageReader, without_usage
from proxy.policy import Fact
from proxy.step import Step, Verdict
from proxy.telemetry.observation import OPERATIONS, Observation, ObservedCall
from proxy.upstreams.base import Call, Reply, Upstream

_KEPT = 4 * 2**20
"""Bytes of an answer whose text is kept for its record."""
_UNPRINTABLE = re.compile(r"[^!-~]")
_HEADER_LIMIT = 1024
"""Largest size of a header in bytes: reverse proxies often refuse response heads of more than 4 to 8 KiB."""

_NOT_OF_A_TOKEN = re.compile(r"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")
"""Characters that no token in an HTTP header may have (RFC 9110 §5.6.2)."""
_NOT_PRINTABLE = re.compile("[^ -~]")


class Observer:
    """Watches one answer on its way to the client. Nothing here may take time, or raise."""

    reads: ClassVar[bool] = False
    """True if it takes the bytes of the answer."""

    def feed(self, chunk: bytes) -> None:
        """Take note of the next bytes, which may be all of them."""

    def ended(self, reply: Reply, usage: Usage) -> None:
        """Take note that the client has all of the answer; `usage` is what all its rounds used."""


@dataclass
class Observers:
    """The observers of one call, from its reservation to the end of its answer.

    Whatever ends the block ends the observation as well: an answer, an error, or a client that leaves.
    """

    call: Call
    """The call as it is to be sent: it carries the trace."""
    _upstream: Upstream
    _http: Exchange
    _body: Body | None = None
    """The client's."""
    watches: Sequence[Observer] = ()
    """They look at the answer on behalf of a policy, or of who saves it."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """The facts of the reply, once there is one."""
    observed: ObservedCall = field(init=False)

    async def __aenter__(self) -> "Observers":
        """Reserve what the call may use. Raises `RateLimited`, or `BadRequest` where it asks for more than it may."""
        call, http, seen = self.call, self._http, self._http.seen
        await http.admission.reserve(call, http.own_headers)
        fields: Mapping[str, object] = {}
        if seen.trace_id is not None:
            fields = call.request.rest if call.request is not None else self._body.rest() if self._body else {}
        self.observed = seen.call(
            provider=self._upstream.provider,
            model=call.model,
            operation=OPERATIONS.get(call.path),
            address=self._upstream.address,
            fields=fields,
        )
        headers = self.observed.carry(call.headers)
        if headers is not call.headers:
            self.call = with_fields(call, headers=headers)
        if seen.keeps_text:
            self.watches = (*self.watches, Copying(_KEPT, partial(_keep, seen)))
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PenstockError):
            used = Usage().completed(self.facts)
            self.observed.end(error=error, usage=used)
            if self._http.status is None:
                self._http.admission.note_failure(used, self._http.seen.usd)
        self.observed.end()

    def ended(self, reply: Reply, usage: Usage) -> None:
        """Take note that the client has all of the answer: price it, then count it against the caller's limits."""
        for watch in self.watches:
            watch.ended(reply, usage)
        self.observed.end(status=reply.status, usage=usage, facts=reply.facts, error=usage.error)
        admission = self._http.admission
        (admission.note if reply.status < 400 else admission.note_failure)(usage, self._http.seen.usd)
        learn(self.call, reply, usage, translates=self._upstream.abilities.translates)


class Copying(Observer):
    """Copies an answer as it passes by, and gives `ended` the copy; None where it has more than `most` bytes."""

    reads = True

    def __init__(self, most: int, ended: Callable[[bytes | None, Reply, Usage], None]) -> None:
        self._most, self._parts, self._size, self._ended = most, list[bytes](), 0, ended

    def feed(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= self._most:
            self._parts.append(chunk)
        else:
            self._parts.clear()

    def ended(self, reply: Reply, usage: Usage) -> None:
        self._ended(b"".join(self._parts) if self._size <= self._most else None, reply, usage)


def _keep(seen: Observation, answer: bytes | None, reply: Reply, usage: Usage) -> None:
    if answer is not None:
        seen.text = answer, reply.chunks is not None


def learn(call: Call, reply: Reply, usage: Usage, *, translates: bool) -> None:
    """Compare our count of a prompt with the upstream's, unless it cut the prompt or was asked more than once."""
    if reply.facts.get("rounds", 1) != 1 or reply.facts.get("truncated"):
        return
    reported = (Usage().completed(reply.facts) if translates else usage).input
    if reported and call.request and call.counted and call.tokens:
        call.tokens.observe(call.request, call.counted, reported)


async def relay(http: Exchange, reply: Reply, observers: Observers) -> None:
    """Give the client an answer. Errors of a stream pass through."""
    for name in (
        ("ignored", "unkept", "truncated") if reply.facts else ()
    ):  # of a stream, the last is known at its end only
        if told := reply.facts.get(name):
            value = "true" if told is True else _UNPRINTABLE.sub("_", str(told))  # clients choose the names of fields
            http.own_headers.append((f"x-penstock-{name}".encode(), value.encode()))
    own = dict(http.own_headers).keys() - {b"x-request-id"}  # the upstream's gets another name
    reply = await http.caller.shown(reply, own)
    reader, feeds = UsageReader(), [each.feed for each in observers.watches if each.reads]
    if reply.chunks is None:
        body = reply.body or b""
        observers.observed.first_chunk()
        usage = reader.of_body(body).completed(reply.facts)
        if (rounds := int(reply.facts.get("rounds", 1))) > 1 and usage.input is not None:
            http.own_headers.append((b"x-penstock-usage", counts_header(rounds, usage.input, usage.output)))
        shown = restored(observers.call, reply) if observers.call.restores else reply
        await http.respond(shown.status, relayed(shown.headers, stream=False), shown.body or b"")
        for feed in feeds:
            feed(body)
    else:
        passing = with_fields(reply, chunks=noted(reply.chunks, [reader.feed, *feeds]))
        shown = restored(observers.call, passing)
        chunks = shown.chunks or reply.chunks
        chunks = without_usage(chunks) if observers.call.hide_usage else chunks
        await http.relay(shown.status, relayed(shown.headers, stream=True), chunks, observers.observed.first_chunk)
        usage = reader.of_stream().completed(reply.facts)
    observers.ended(reply, usage)


async def noted(chunks: ByteStream, feeds: Sequence[Callable[[bytes], None]]) -> AsyncGenerator[bytes, None]:
    """Yield the chunks, each of which is given to all who read."""
    async with aclosing(chunks):
        async for chunk in chunks:
            for feed in feeds:
                feed(chunk)
            yield chunk


# --- headers of the answer ---


def server_timing(steps: Sequence[Step]) -> str:
    """Return a `Server-Timing` value (W3C) such as `window_history;dur=0.31;desc="dropped 10 of 47 turns"`.

    It has at most 1024 ASCII characters: a step that does not fit loses its description, or is left out with all
    after it. Empty for no steps.
    """
    formats = [*starmap(_format, map(attrgetter("policy", "verdict", "why", "observed"), steps))]
    durations = [1000 * step.seconds for step in steps]
    if len(value := ", ".join(formats) % (*durations,)) <= _HEADER_LIMIT:
        return value
    entries: list[str] = []
    room = _HEADER_LIMIT
    for entry in map(mod, formats, durations):
        entry = entry if len(entry) <= room else entry.partition(";desc=")[0]
        if len(entry) > room:
            break
        entries.append(entry)
        room -= len(entry) + len(", ")
    return ", ".join(entries)


def findings_header(steps: Iterable[Step]) -> str:
    """Return the value of `x-penstock-findings`, JSON in ASCII: `[{"policy": ..., "finding": ...}]`; empty for none.

    It has at most 1024 characters. Findings that do not fit are left out; `explain` shows all.
    """
    entries: list[str] = []
    room = _HEADER_LIMIT - len("[]")
    having = filter(attrgetter("findings"), steps)
    for policy, finding in ((step.policy, finding) for step in having for finding in step.findings):
        entry = json.dumps({"policy": policy, "finding": finding})
        room -= len(entry) + len(", ")
        if room < 0:
            break
        entries.append(entry)
    return f"[{', '.join(entries)}]" if entries else ""


@lru_cache(1024)
def counts_header(*counts: int | None) -> bytes:
    """Return counts as a header has them, `4100;2000;8192`; `-` for an unknown one."""
    return ";".join("-" if count is None else str(count) for count in counts).encode()


@lru_cache(1024)
def _format(policy: str, verdict: Verdict, why: str, observed: bool) -> str:
    """Return the entry of a step, with a format in place of its duration in milliseconds."""
    text = why if verdict in ("keep", "rewrite") else f"{verdict}: {why}"
    text = _NOT_PRINTABLE.sub("", f"observed: {text}" if observed else text)
    name, text = _NOT_OF_A_TOKEN.sub("_", policy) or "_", text.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name.replace("%", "%%")};dur=%.2f;desc="{text.replace("%", "%%")}"'
