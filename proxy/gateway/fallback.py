"""Fallbacks: a larger model for a prompt that does not fit, another upstream for one that fails.

Each try starts from what the client sent, with the chain, window and key of the model that is tried. A model that
refuses a request as too long, which fits by our count, is tried once more with what its refusal taught.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace

import orjson

from proxy.access.exchange import Exchange
from proxy.chat.errors import (
    OVERFLOW,
    NotFound,
    NotInTime,
    NotKept,
    PenstockError,
    Unanswered,
    UpstreamFailed,
    error_body,
)
from proxy.chat.parse import Body, do_sized
from proxy.chat.reasoning import REASONING_FIELDS
from proxy.chat.sse import ByteStream
from proxy.http.headers import impersonal, relayed
from proxy.text.json_values import json_object
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.refusal import Overflow, error_in, find_overflow, openai_body, read_refusal, status_of
from proxy.upstreams.routing import Route, Routes

_log = logging.getLogger("penstock.api")

_MOST = 5
"""Models that are tried for one request, the first among them."""

_DOUBTED = 2
"""A refusal without a count blames the window, not our count, where the window is so many times as large."""

_ERROR_EVENT = re.compile(
    rb'(?:event: ?error\b[^{]{0,12}|(?:data|error): ?(?=\{"(?:error|code|message)"))(\{.{0,20000})?', re.DOTALL
)
"""A stream's first event that is an error, or its beginning."""
_END = re.compile(rb"\r?\n\r?\n")

_COMMENTS = re.compile(rb"(?::[^\n]*\n|\r?\n)+")
"""Keep-alive comments that servers send while a model gets ready."""

_PATIENCE, _LONGEST = 10.0, 2**16
"""Seconds and bytes for which a stream of comments alone is held; then its client gets them, as a sign of life."""

_HEADER = b"x-penstock-fallback"

_REASONS = frozenset(
    {OVERFLOW, "upstream_unreachable", "upstream_broke_off", "upstream_timeout", "upstream_unavailable",
     "upstream_invalid", "upstream_answer_too_large", "server_is_overloaded"}
)  # fmt: skip
"""Codes that are told as reasons; for any other it is the status. Some are the upstream's to choose."""


class ErrorReply(PenstockError):
    """An upstream's own answer that is an error, kept for the case that nothing better comes."""

    def __init__(self, reply: Reply, code: str) -> None:
        super().__init__("the upstream answered with an error", code=code, status=reply.status)
        self.reply = reply


class Attempts:
    """The routes by which one request may be answered, one after the other.

    To be iterated over once. Each attempt that fails is told to `failed`, which decides whether there is another one.
    """

    has_chosen = False
    """True once a policy has chosen a model."""
    _call: Call | None = None
    """The call that this attempt has sent."""
    _error: PenstockError | None = None
    """The error that is reported if all attempts fail."""
    _reason = ""

    def __init__(self, routes: Routes, first: Route, http: Exchange, body: Body) -> None:
        self._routes, self._first, self._http = routes, first, http
        self._route, self._body = first, body
        self._remaining: deque[str] = deque()
        self._tried: set[tuple[str, str]] = set()
        self._next: Route | None = first
        self._refusals: dict[tuple[str, str], tuple[bytes, PenstockError]] = {}
        """By model the body that it found too long, and how it said so."""
        self._open = bool(first.settings.fallbacks) or first.settings.larger is not None
        self._own = len(http.own_headers)

    def __iter__(self) -> Iterator[Route]:
        """Give the routes, and say in headers and telemetry why one follows on another."""
        own, headers = self._own, self._http.own_headers
        while (route := self._next) is not None:
            headers[own:] = [each for each in headers[own:] if each[0] == _HEADER]
            if route is not self._route:
                told = f"{route.label}; reason={self._reason}".encode("ascii", "replace")
                headers[own:] = [(_HEADER, told)]
                self._http.seen.turned(route.model, self._reason, named=route.named)
            self._tried.add(_place(route))
            self._route, self._next, self._call = route, None, None
            yield route

    async def carried(self, call: Call) -> Call:
        """Return a call with what may go to this route of the client's headers, query and messages.

        At another server than the first one nothing that may hold a key, an account or a wish for that provider; at
        another provider no reasoning of the first one's models, which it may refuse.
        """
        if same_server(self._route.upstream, self._first.upstream):
            return call
        call = replace(call, headers=impersonal(call.headers), query="")
        return call if self._route.upstream.provider == self._first.upstream.provider else await self._unreasoned(call)

    async def _unreasoned(self, call: Call) -> Call:
        """Return the call without reasoning in its messages; a header names the fields that were left out."""
        if not any(f'"{name}"'.encode() in call.body for name in REASONING_FIELDS):
            return call
        request = call.request
        if request is None:
            request = await do_sized(len(call.body), lambda: type(self._body)(call.body).parse())
        named = {name for message in request.messages for name in REASONING_FIELDS if name in message}
        if not named:
            return call
        request = request.with_messages(
            message if named.isdisjoint(message) else message.without(*named) for message in request.messages
        )
        told = ",".join(f"messages[].{name}" for name in sorted(named))
        self._http.own_headers.append((b"x-penstock-ignored", told.encode()))
        return replace(call, body=request.encode(), request=None if call.request is None else request)

    def choose(self, by: str, model: str) -> None:
        """Go on with the model that a step chose; with the same one again where the caller may not use that."""
        self.has_chosen = True
        try:
            route = self._routes.of(model, self._http.caller.may_use)
        except PenstockError as error:
            fields = {"policy": by, "why": error.code, "request_id": self._http.request_id}
            _log.warning("the model that a policy chose cannot be used", extra={"fields": fields})
            route = self._route
        self._next, self._reason = self._route if _place(route) == _place(self._route) else route, f"policy {by}"

    def sending(self, call: Call) -> None:
        """Note that a call is sent now. Raises the refusal of the same body by the same model, which stands."""
        body, refusal = self._refusals.get(_place(self._route), (b"", None))
        if refusal is not None and body == call.body:
            raise refusal
        self._call = call

    async def check(self, reply: Reply) -> Reply:
        """Return the answer; of a stream its first chunk has arrived.

        Raise `ErrorReply` for one that another attempt may better; one that came as a stream is told in our words.
        """
        is_counted = self._call is not None and self._call.counted is not None
        if reply.chunks is not None and reply.status < 400 and (self._open or is_counted):
            reply = await _begun_or_refused(reply, reply.chunks)
        reason = _reason(reply, is_chat=self._body.wire == "chat")
        if reason is not None and (self._open or reason == OVERFLOW):
            if reply.chunks is not None:
                await reply.chunks.aclose()
                reply = reply.as_json(error_body(f"the upstream answered with status {reply.status}", "server_error"))
            raise ErrorReply(reply, reason)
        return reply

    def failed(self, error: PenstockError) -> None:
        """Take note of an attempt's failure.

        Raise the error if another attempt cannot better it, or may not be made, because this one may have been
        processed.
        """
        if self._route.settings.may_repeat:
            error.headers.pop("x-should-retry", None)
        is_failure, reason = self._is_failure(error), error.code if error.code in _REASONS else str(error.status)
        if isinstance(
            error, NotInTime | NotKept
        ):  # what was not shortened this time fits a larger model as well as any
            reason = OVERFLOW
        if self._http.status is not None or not (is_failure or reason == OVERFLOW):
            raise error
        self._reason = reason
        if error.code == OVERFLOW and self._learns(error):
            self._next = self._route
            return
        if self._error is None or is_failure:
            self._error = error
        self._next = self._other()

    async def give_up(self) -> None:
        """Tell how the last upstream failed. Where none failed, only refused for want of room, the first refusal."""
        http, own, error = self._http, self._own, self._error
        http.own_headers[own:] = [each for each in http.own_headers[own:] if each[0] != _HEADER]
        if not isinstance(error, ErrorReply):
            raise error or UpstreamFailed("no upstream was asked")
        reply = error.reply
        reply = await http.caller.shown(reply, {name for name, _ in http.own_headers})
        await http.respond(reply.status, relayed(reply.headers, stream=False), reply.body or b"")

    def _learns(self, refusal: PenstockError) -> bool:
        """Take from the first refusal of a model how long the prompt was at least; return whether to try it again."""
        place, call = _place(self._route), self._call
        if place in self._refusals or call is None or call.tokens is None or not call.counted or not call.profile:
            return False
        if not isinstance(refusal, ErrorReply):
            overflow = find_overflow(refusal.message)
        elif refusal.reply.facts.get("rounds", 1) == 1:
            overflow = read_refusal(refusal.reply.status, refusal.reply.body or b"")
        else:
            return False
        report = overflow or Overflow()
        ours = call.counted.total
        wanted = (call.request.max_output_tokens if call.request is not None else None) or 0
        # else the answer is lowered
        if not report.window or not (report.prompt or ours) <= report.window < ours + wanted:
            least = max(report.window or call.profile.window, ours)
            if report.prompt and report.prompt != ours:  # what only repeats our count is not the upstream's
                least = report.prompt
            elif least > _DOUBTED * ours:
                return False
            call.tokens.refused(call.counted, least)
        self._refusals[place] = call.body, refusal
        return True

    def _is_failure(self, error: PenstockError) -> bool:
        """Return whether the upstream failed, and not a step of the chain, so that another one may be asked."""
        if isinstance(error, Unanswered) and not self._route.settings.may_repeat:
            return False
        failed = isinstance(error, UpstreamFailed) or error.status == 429 or error.status >= 500
        return self._call is not None and failed and error.code != OVERFLOW

    def _other(self) -> Route | None:
        settings, overflow = self._route.settings, self._reason == OVERFLOW
        names = (settings.larger,) if overflow and settings.larger else () if overflow else settings.fallbacks
        self._remaining.extendleft(reversed(names))
        while self._remaining and len(self._tried) < _MOST:
            try:
                route = self._routes.of(self._remaining.popleft(), self._http.caller.may_use)
            except NotFound:  # for this key; that all can be routed is checked with the configuration
                continue
            if _place(route) not in self._tried:
                return route
        return None


def same_server(one: Upstream, other: Upstream) -> bool:
    """Return whether what is meant for the one upstream may be sent to the other."""
    return one is other or (one.address is not None and (one.address, one.provider) == (other.address, other.provider))


def _place(route: Route) -> tuple[str, str]:
    return route.upstream.name, route.model


def _reason(reply: Reply, *, is_chat: bool) -> str | None:
    """Why an answer is none: the code of an overflow, or the status; None for an answer, or a refusal that stands."""
    if reply.status == 429 or reply.status >= 500:
        return str(reply.status)
    if not is_chat:
        return OVERFLOW if reply.status == 400 and read_refusal(400, reply.body or b"") else None
    if reply.status != 400 or OVERFLOW.encode() not in (reply.body or b""):
        return None
    error = json_object(reply.body or b"").get("error")
    return OVERFLOW if isinstance(error, dict) and error.get("code") == OVERFLOW else None


async def _begun_or_refused(reply: Reply, chunks: ByteStream) -> Reply:
    """Return a stream whose first chunk has arrived, or the error in it.

    Some servers say only there that a prompt is too long, or that they have failed. Raise the error that comes instead.
    """
    flowing, clock = aiter(chunks), asyncio.get_running_loop().time
    until = clock() + _PATIENCE
    try:
        first = more = await anext(flowing, b"")
        while more and len(first) < _LONGEST and _goes_on(first) and clock() < until:
            more = await anext(flowing, b"")
            first += more
    except BaseException:
        await chunks.aclose()
        raise
    event = _error_event(first)
    refusal = _refusal(event[1]) if event and event[1] else None
    if refusal is not None:
        await chunks.aclose()
        return reply.as_json(refusal[1], refusal[0])
    reply.chunks = resumed = _resumed(first, flowing, chunks)
    await anext(resumed)  # a generator that was never begun ignores its closing
    return reply


def _error_event(first: bytes) -> re.Match[bytes] | None:
    comments = _COMMENTS.match(first)
    return _ERROR_EVENT.match(first, comments.end() if comments else 0)


def _goes_on(first: bytes) -> bool:
    """Return whether a stream has begun with comments alone, or with a part of an error."""
    event = _error_event(first)
    return _COMMENTS.fullmatch(first) is not None or (event is not None and not _END.search(first, event.start()))


def _refusal(error_body: bytes) -> tuple[int, bytes] | None:
    """Return the status and the body that the error of a stream stands for; None where it names no status."""
    overflow = read_refusal(400, error_body)
    if overflow is not None:
        return 400, openai_body(error_body, overflow)
    answer = json_object(error_body.splitlines()[0])
    error = error_in(answer)
    status = status_of(error) or 0
    is_failure = status == 429 or status >= 500
    return (status, orjson.dumps(answer if "error" in answer else {"error": error})) if is_failure else None


async def _resumed(first: bytes, flowing: AsyncIterator[bytes], chunks: ByteStream) -> AsyncGenerator[bytes, None]:
    """Yield the stream again from its first bytes on, behind an empty chunk."""
    async with aclosing(chunks):
        yield b""
        if first:
            yield first
        async for chunk in flowing:
            yield chunk
