"""The bounds in front of an upstream, on an upstream that the test holds in its hand."""

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest
from pydantic import SecretStr

from proxy.chat.errors import BadRequest, PenstockError, UpstreamFailed, UpstreamTimeout, UpstreamUnavailable
from proxy.config.settings import BreakerSettings, Guarded, OpenAIUpstream
from proxy.http.client import redirected
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.guard import Breaker, GuardedUpstream, is_down
from tests.scripted import Chunks
from tests.scripted import Scripted as Behind

CALL = Call("/chat/completions", "m", b"{}", {})


class Scripted(Behind):
    """Answers with what it is given: a status, an error, a stream, or nothing until it is told."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked = 0
        self.go = asyncio.Event()

    async def send(self, call: Call) -> Reply:
        self.asked += 1
        answer = self.script.pop(0) if self.script else 200
        if answer == "wait":
            await self.go.wait()
            answer = 200
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return Reply(answer, [(b"x-should-retry", b"false")] if answer == 599 else [], b"")
        parts = [part for part in answer if isinstance(part, bytes)]
        return Reply(200, chunks=Chunks(parts, then=next((each for each in answer if each not in parts), None)))


ERRORS = [
    (b'data: {"error": {"message": "m", "type": "server_error", "code": null}}', False),
    (b'data: {"error": {"message": "m", "type": "server_error", "code": "upstream_broke_off"}}', True),
    (b'data: {"error": {"message": "m", "type": "InternalServerError", "code": 500}}', False),
    (b'data: {"error": {"message": "m", "code": "502"}}', True),
    (b'data: {"error": {"message": "m", "type": "server_error", "code": "upstream_timeout"}}', True),
    (b'data: {"type": "error", "error": {"type": "api_error"}}', False),
    (b'data: {"error": "the engine died"}', False),
    (b'data: {"type": "error", "error": {"type": "overloaded_error"}}', True),
    (b'data: {"type": "response.failed", "response": {"error": {"code": "server_error"}}}', False),
    (b'data: {"type": "response.failed", "response": {"error": {"code": "invalid_prompt"}}}', False),
    (b'data: {"type": "error", "code": "rate_limit_exceeded", "message": "m"}', False),
    (b'data: {"error": {"message": "m", "type": "BadRequestError", "code": 400}}', False),
    (b'data: {"error": {"type": "invalid_request_error", "code": "context_length_exceeded"}}', False),
    (b'data: {"choices": [{"delta": {"content": "\\"error\\""}}], "error": null}', False),
    (b'data: {"error": {"message": "m", "type": "InternalServerError"}}', False),
    (b'data: {"type": "error", "code": null, "message": "m"}', False),
    (b'data: {"error": {"message": "m", "type": "BadRequestError"}}', False),
    (b'data: {"error": {"message": "m", "type": "content_filter"}}', False),
    (b'data: {"error": "Input validation error", "error_type": "validation"}', False),
    (b'data: {"error": {"message": "Requested tokens (2285) exceed context window of 2048"}}', False),
    (b'data: {"error": {"message": "the request exceeds the available context size", "code": 500}}', False),
]
"""Events that end a stream, and whether they count: such as may be about a request or a key do not."""


def guarded(upstream: Scripted, *, failures: int = 2, **bounds: Any) -> GuardedUpstream:
    settings = Guarded(breaker=BreakerSettings(failures=failures, open_for=60), **bounds)
    return GuardedUpstream(upstream, settings, Breaker(settings.breaker))


async def outcome(upstream: GuardedUpstream) -> Any:
    """The status of an answer, the chunks of a stream, or the code of an error."""
    try:
        reply = await upstream.send(CALL)
        if reply.chunks is None:
            return reply.status
        try:
            return [chunk async for chunk in reply.chunks]
        finally:
            await reply.chunks.aclose()
    except PenstockError as error:
        return error.code


@pytest.mark.parametrize(("answer", "opens"), [
    pytest.param(UpstreamFailed("x"), True, id="not reached"),
    pytest.param(UpstreamTimeout("x"), True, id="late"),
    pytest.param(RuntimeError("x"), False, id="a fault of ours may be about the request"),
    pytest.param([b"a", UpstreamFailed("x", code="upstream_broke_off")], True, id="a stream that breaks off"),
    pytest.param(502, True, id="502"),
    pytest.param(redirected("x"), False, id="a redirect may be about a path"),
    pytest.param(503, True, id="503"),
    pytest.param(529, True, id="529"),
    pytest.param(500, False, id="500 may be about the request"),
    pytest.param(599, False, id="it says itself that another try is of no use"),
    pytest.param(429, False, id="429 is about a key"),
    pytest.param(400, False, id="400"),
    pytest.param(BadRequest("x"), False, id="a refusal of ours"),
    pytest.param(PenstockError("x", status=503), True, id="a server's refusal that was translated"),
    pytest.param([b"a", b"b"], False, id="a stream"),
    *(pytest.param([b'data: {"x": 1}\n', b"\nda" + told[2:20], told[20:] + b"\n\ndata: [DONE]\n\n"], opens, id=told.decode())
      for told, opens in ERRORS),
])  # fmt: skip
async def test_what_counts_as_a_failure(answer: Any, opens: bool) -> None:
    behind = Scripted(answer, answer)
    upstream = guarded(behind)
    for _ in range(2):
        with suppress(RuntimeError):
            await outcome(upstream)
    assert (await outcome(upstream) == "upstream_unavailable") is opens
    assert behind.asked == (2 if opens else 3)


async def test_a_refusal_says_when_to_come_back() -> None:
    upstream = guarded(Scripted(503, 503))
    await outcome(upstream)
    await outcome(upstream)
    with pytest.raises(UpstreamUnavailable) as caught:
        await upstream.send(CALL)
    assert caught.value.status == 503
    assert 1 <= int(caught.value.headers["retry-after"]) <= 60


async def test_a_full_upstream_lets_a_few_wait_and_refuses_the_others_at_once() -> None:
    behind = Scripted("wait")
    upstream = guarded(behind, max_connections=1, max_waiting=1, max_wait=60)
    first, second = asyncio.ensure_future(outcome(upstream)), asyncio.ensure_future(outcome(upstream))
    await asyncio.sleep(0)
    assert await outcome(upstream) == "server_is_overloaded"
    assert behind.asked == 1
    behind.go.set()
    assert [await first, await second] == [200, 200]
    assert await outcome(upstream) == 200


async def test_a_place_that_came_too_late_is_given_back() -> None:
    upstream = guarded(Scripted([b"a"]), max_connections=1, max_wait=60)
    reply = await upstream.send(CALL)
    waiting = asyncio.create_task(outcome(upstream))
    await asyncio.sleep(0)
    assert reply.chunks is not None
    await reply.chunks.aclose()  # the place is handed over, and the client leaves before it hears of it
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await outcome(upstream) == 200


async def test_a_key_is_masked_wherever_a_stream_breaks_it_in_two() -> None:
    key = "sk-operators-own-key"
    told = f'data: {{}}\n\ndata: {{"error": "{key} sk-"}}\n\ndata: sk-'.encode()
    settings = OpenAIUpstream(kind="openai", base_url="http://h/v1", api_key=SecretStr(key))
    for at in range(len(told)):
        upstream = GuardedUpstream(Scripted([told[:at], told[at:]]), settings, Breaker(settings.breaker))
        chunks = await outcome(upstream)
        assert b"".join(chunks) == told.replace(key.encode(), b"[key]"), at
        assert chunks[0] or not at


async def test_nobody_waits_longer_than_is_said() -> None:
    behind = Scripted("wait")
    upstream = guarded(behind, max_connections=1, max_wait=0.001)
    first = asyncio.ensure_future(outcome(upstream))
    await asyncio.sleep(0)
    assert await outcome(upstream) == "server_is_overloaded"
    behind.go.set()
    assert await first == 200
    assert await outcome(upstream) == 200


async def test_those_that_wait_for_an_upstream_that_fails_are_refused() -> None:
    behind = Scripted("wait")
    upstream = guarded(behind, failures=1, max_connections=1, max_wait=60)
    first = asyncio.ensure_future(outcome(upstream))
    second = asyncio.ensure_future(outcome(upstream))
    await asyncio.sleep(0)
    behind.script = [502]
    third = asyncio.ensure_future(outcome(upstream))
    behind.go.set()
    assert [await first, await second, await third] == [200, 502, "upstream_unavailable"]


async def _given_up(upstream: GuardedUpstream) -> None:
    task = asyncio.ensure_future(outcome(upstream))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_no_way_to_end_keeps_a_place() -> None:
    behind = Scripted()
    upstream = guarded(behind, failures=0, max_connections=1, max_wait=0.001)
    for answer in (200, 502, UpstreamFailed("x"), [b"a"], [], [b"a", UpstreamFailed("x")]):
        behind.script = [answer]
        await outcome(upstream)
    behind.script = ["wait"]
    await _given_up(upstream)
    behind.script = [[b"a", b"b"], [b"a", b"b"], [b"a"]]
    for read in (0, 1):
        reply = await upstream.send(CALL)
        assert reply.chunks is not None
        if read:
            await anext(aiter(reply.chunks))
        await reply.chunks.aclose()
    reply = await upstream.send(CALL)
    await _given_up(upstream)  # it waits for the stream's place
    assert reply.chunks is not None
    await reply.chunks.aclose()
    assert await outcome(upstream) == 200


async def test_a_probe_that_a_client_gives_up_is_made_by_the_next() -> None:
    behind = Scripted(502)
    settings = Guarded(breaker=BreakerSettings(failures=1, open_for=10))
    now = 0.0
    upstream = GuardedUpstream(behind, settings, Breaker(settings.breaker, lambda: now))
    await outcome(upstream)
    now = 11.0
    behind.script = ["wait"]
    await _given_up(upstream)
    assert await outcome(upstream) == 200


def test_statuses() -> None:
    assert [status for status in range(400, 600) if is_down(status)] == [502, 503, 504, *range(506, 600)]


async def test_a_stream_that_is_over_is_gone_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        reply = await guarded(Scripted([b"x"])).send(CALL)
        assert reply.chunks is not None
        stream = weakref.ref(reply.chunks)
        await reply.chunks.aclose()
        del reply
        assert stream() is None
    finally:
        gc.enable()
