"""Where a request goes instead: to a larger model where it does not fit, to another upstream where one fails.

Each try starts from what the client sent, with the chain, window and key of the model that is tried. A model that
refuses a request as too long, which fits by our count, is tried once more with what its refusal taught.
"""

import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace

import orjson

from proxy.access.exchange import Exchange
from proxy.chat.errors import NotFound, NotInTime, NotKept, PenstockError, Rejected, UpstreamFailed, error_body
from proxy.chat.sse import ByteStream
from proxy.context import ModelProfile
from proxy.gateway.chain import Outcome
from proxy.http.headers import impersonal, relayed
from proxy.telemetry.observation import OVERFLOW, Observation
from proxy.upstreams.base import Call, Reply, Upstream
from proxy.upstreams.overflow import Overflow, find_overflow, openai_body, read_refusal
from proxy.upstreams.routing import Route, Routes

_MOST = 5
"""Models that are tried for one request, the first among them."""

_DOUBTED = 2
"""A refusal without a count blames the window, not our count, where the window is so many times as large."""

_JSON = (b"content-type", b"application/json")

_ERROR_EVENT = re.compile(rb'(?:event: ?error\r?\n)?(?:data|error): ?(\{"(?:error|code|message)".{0,20000})', re.DOTALL)
"""A stream's first event that is an error."""

_HEADER = b"x-penstock-fallback"

_REASONS = frozenset(
    {OVERFLOW, "upstream_unreachable", "upstream_broke_off", "upstream_timeout", "upstream_unavailable",
     "upstream_invalid", "upstream_answer_too_large", "server_is_overloaded"}
)  # fmt: skip
"""Codes that are told as reasons; for any other it is the status. Some are the upstream's to choose."""

Send = Callable[[Call], Awaitable[Reply]]


class Refused(PenstockError):
    """An upstream's own answer that is an error, kept for the case that nothing better comes."""

    def __init__(self, reply: Reply, code: str) -> None:
        super().__init__("the upstream answered with an error", code=code, status=reply.status)
        self.reply = reply


class Detours:
    """The models that one request may still be answered by, and the one that is tried now."""

    def __init__(self, routes: Routes, first: Route) -> None:
        self.route = first
        self._routes = routes
        self._first = first
        self._left: deque[str] = deque()
        self._tried = {_place(first)}
        self._sent = False
        self._again = False
        self._refusals: dict[tuple[str, str], tuple[bytes, PenstockError]] = {}
        """By model the body that it found too long, and how it said so."""
        self._open = bool(first.settings.fallbacks) or first.settings.larger is not None

    async def serve(self, http: Exchange, seen: Observation, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try one model after the other until one has begun to answer; at the end tell how the last upstream failed.

        Where none failed, only refused for want of room, the first refusal is told.
        """
        own = len(http.own_headers)
        told: PenstockError | None = None
        while True:
            self._sent = False
            try:
                await attempt()
                return
            except PenstockError as error:
                if http.status is not None or not (self._is_failure(error) or _told(error) == OVERFLOW):
                    raise
                if self._again:
                    self._again = False
                    http.own_headers[own:] = [each for each in http.own_headers[own:] if each[0] == _HEADER]
                    continue
                if told is None or self._is_failure(error):
                    told = error
                reason = _told(error)
            if not self._turn(overflow=reason == OVERFLOW):
                break
            del http.own_headers[own:]
            about = f"{self.route.label}; reason={reason}".encode("ascii", "replace")
            http.own_headers.append((_HEADER, about))
            seen.turned(self.route.model, reason, named=self.route.named)
        http.own_headers[own:] = [each for each in http.own_headers[own:] if each[0] != _HEADER]
        if not isinstance(told, Refused):
            raise told
        await _relay(http, told.reply)

    def carried(self, call: Call) -> Call:
        """The call to the model that is tried, with what may go there of the client's headers and query.

        At another server than the first one nothing that may hold a key, an account or a wish for that provider.
        """
        if same_server(self.route.upstream, self._first.upstream):
            return call
        return replace(call, headers=impersonal(call.headers), query="")

    def check(self, outcome: Outcome, profile: ModelProfile) -> None:
        """Raises `Rejected` where there is a larger model for a request that does not fit, and no step said so."""
        if self.route.settings.larger is None or outcome.after is None:
            return
        usable = profile.usable(outcome.request)
        if outcome.after.total > usable:
            raise Rejected(
                f"This model's maximum context length is {profile.window} tokens. However, your messages resulted in "
                f"{outcome.after.total} tokens, of which {usable} fit. Please reduce the length of the messages. "
                f"({OVERFLOW})",
                code=OVERFLOW,
                param="messages",
            )

    def through(self, send: Send) -> Send:
        """A way to send that raises `Refused` for an answer that another model may better, and lets no other pass
        before its first byte is here."""

        async def sent(call: Call) -> Reply:
            body, refusal = self._refusals.get(_place(self.route), (b"", None))
            if refusal is not None and body == call.body:
                raise refusal
            self._sent = True
            try:
                reply = await send(call)
            except PenstockError as error:
                if error.code == OVERFLOW:
                    self._learn(call, error, find_overflow(error.message))
                raise
            if reply.chunks is not None and reply.status < 400 and (self._open or call.counted is not None):
                reply = await _begun_or_refused(reply, reply.chunks)
            reason = _reason(reply)
            if reason is not None and (self._open or reason == OVERFLOW):
                refused = Refused(await _whole(reply), reason)
                if reason == OVERFLOW and reply.facts.get("rounds", 1) == 1:
                    self._learn(call, refused, read_refusal(reply.status, reply.body or b""))
                raise refused
            return reply

        return sent

    def _learn(self, call: Call, refusal: PenstockError, overflow: Overflow | None) -> None:
        """Take from the first refusal of a model how long the prompt was at least, and have it tried again."""
        place = _place(self.route)
        if place in self._refusals or call.tokens is None or call.counted is None or call.profile is None:
            return
        told = overflow or Overflow()
        ours = call.counted.total
        # what only repeats our count is not the upstream's
        least = told.prompt if told.prompt and told.prompt != ours else max(told.window or call.profile.window, ours)
        if least > _DOUBTED * ours and least != told.prompt:
            return
        call.tokens.refused(call.counted, least)
        self._refusals[place] = call.body, refusal
        self._again = True

    def _is_failure(self, error: PenstockError) -> bool:
        """Whether the upstream failed, and not a step of the chain."""
        failed = isinstance(error, UpstreamFailed) or error.status == 429 or error.status >= 500
        return self._sent and failed and error.code != OVERFLOW

    def _turn(self, *, overflow: bool) -> bool:
        """Go on to the next model; whether there is one."""
        settings = self.route.settings
        names = (settings.larger,) if overflow and settings.larger else () if overflow else settings.fallbacks
        self._left.extendleft(reversed(names))
        while self._left and len(self._tried) < _MOST:
            try:
                route = self._routes.of(self._left.popleft())
            except NotFound:  # the configuration is checked for it
                continue
            if _place(route) not in self._tried:
                self._tried.add(_place(route))
                self.route = route
                return True
        return False


async def _relay(http: Exchange, reply: Reply) -> None:
    if http.caller is not None:
        reply = await http.caller.shown(reply, {name for name, _ in http.own_headers})
    await http.respond(reply.status, relayed(reply.headers, stream=False), reply.body or b"")


def _told(error: PenstockError) -> str:
    """The reason in a word: a prompt that was not shortened this time fits a larger model as well as any."""
    if isinstance(error, NotInTime | NotKept):
        return OVERFLOW
    return error.code if error.code in _REASONS else str(error.status)


def same_server(one: Upstream, other: Upstream) -> bool:
    """Whether what is meant for the one upstream may be sent to the other."""
    return one is other or (one.address is not None and (one.address, one.provider) == (other.address, other.provider))


def _place(route: Route) -> tuple[str, str]:
    return route.upstream.name, route.model


def _reason(reply: Reply) -> str | None:
    """Why an answer is none: the code of an overflow, or the status; None for an answer, or a refusal that stands."""
    if reply.status == 429 or reply.status >= 500:
        return str(reply.status)
    if reply.status == 400 and OVERFLOW.encode() in (reply.body or b""):
        try:
            return OVERFLOW if orjson.loads(reply.body or b"")["error"]["code"] == OVERFLOW else None
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None
    return None


async def _whole(reply: Reply) -> Reply:
    """The refusal; one that came as a stream is closed, and told in our words."""
    if reply.chunks is None:
        return reply
    await reply.chunks.aclose()
    body = error_body(f"the upstream answered with status {reply.status}", "server_error")
    headers = [(name, value) for name, value in reply.headers if name != b"content-type"]
    return Reply(reply.status, [*headers, _JSON], body)


async def _begun_or_refused(reply: Reply, chunks: ByteStream) -> Reply:
    """A stream whose first chunk is here, or the refusal that this is: some servers say only there that a prompt is too
    long. Raises what comes instead of it."""
    flowing = aiter(chunks)
    try:
        first = await anext(flowing, None)
    except BaseException:
        await chunks.aclose()
        raise
    event = _ERROR_EVENT.match(first or b"")
    overflow = read_refusal(400, event[1]) if event else None
    if event is not None and overflow is not None:
        await chunks.aclose()
        headers = [(name, value) for name, value in reply.headers if name != b"content-type"]
        return Reply(400, [*headers, _JSON], openai_body(event[1], overflow), facts=reply.facts)
    reply.chunks = _Begun(chunks, first, flowing)
    return reply


class _Begun:
    def __init__(self, chunks: ByteStream, first: bytes | None, flowing: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._flow = self._go_on(first, flowing)

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        return self._flow

    async def aclose(self) -> None:
        await self._flow.aclose()
        await self._chunks.aclose()

    @staticmethod
    async def _go_on(first: bytes | None, flowing: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        if first is not None:
            yield first
            async for chunk in flowing:
                yield chunk
