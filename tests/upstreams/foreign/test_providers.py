"""Streams and errors of providers in their own shapes, over real sockets through the real litellm."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from proxy.chat.errors import Unanswered, UpstreamFailed
from proxy.config.settings import ForeignUpstream
from proxy.upstreams.foreign.worker import Provider
from tests.loopback import serving
from tests.upstreams.foreign.conftest import ask, error, send
from tests.upstreams.streams import events

Event = dict[str, Any]


@asynccontextmanager
async def provider(name: str, answer: Sequence[Event] | Event | bytes, status: int = 200) -> AsyncIterator[Provider]:
    """An upstream of litellm's provider `name`, whose server streams some events or answers with one body."""

    async def serve(request: web.Request) -> web.StreamResponse:
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=status)
        if isinstance(answer, dict):
            return web.json_response(answer, status=status)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in answer:
            data = "[DONE]" if event is DONE else json.dumps(event)
            await response.write(f"data: {data}\n\n".encode())
        return response

    async with serving(serve) as url:
        yield Provider(name, ForeignUpstream(kind="foreign", provider=name, base_url=url))


DONE: Event = {}


def openai_like(text: str | None, finish: str | None = None, **more: Any) -> Event:
    delta = {"role": "assistant", "content": text} if text is not None else {}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def gemini(said: str | Event | None, finish: str | None = None) -> Event:
    """An event that says a text, or calls a function."""
    candidate: Event = {"index": 0}
    if said is not None:
        part = {"text": said} if isinstance(said, str) else {"functionCall": said}
        candidate["content"] = {"role": "model", "parts": [part]}
    if finish is not None:
        candidate["finishReason"] = finish
    used = {"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 14, "cachedContentTokenCount": 3}
    return {"candidates": [candidate], "usageMetadata": used, "modelVersion": "gemini-2.5-flash", "responseId": "r1"}


USED = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}

STREAMS = [
    # provider, what its server streams, the finish reason that the client reads; None where the stream was cut off
    ("gemini", [gemini("hel"), gemini("lo", "STOP")], "stop"),
    ("gemini", [gemini("hello"), gemini("", "STOP")], "stop"),
    ("gemini", [gemini("hello"), gemini(None, "MAX_TOKENS")], "length"),
    ("gemini", [gemini("hello"), gemini(None, "SAFETY")], "content_filter"),
    ("gemini", [gemini({"name": "f", "args": {"a": 1}}, "STOP")], "tool_calls"),
    ("gemini", [gemini("hel"), gemini("lo")], None),
    ("mistral", [openai_like("hel"), openai_like("lo", "stop", usage=USED), DONE], "stop"),
    ("mistral", [openai_like("hello")], None),
    ("groq", [openai_like("hello"), openai_like(None, "stop", x_groq={"id": "r", "usage": USED}), DONE], "stop"),
    ("groq", [openai_like("hello")], None),
    ("deepseek", [openai_like("hello"), openai_like("", "length", usage=USED), DONE], "length"),
    ("deepseek", [openai_like("hello")], None),
    ("xai", [openai_like("hello"), openai_like("", "stop"), {**openai_like(None), "choices": [], "usage": USED}, DONE],
     "stop"),
    ("openrouter", [openai_like("hello"), openai_like("", "stop", native_finish_reason="stop"), DONE], "stop"),
    ("openrouter", [openai_like("hello")], None),
    ("together_ai", [openai_like("hello"), openai_like("", "eos"), DONE], "stop"),
    ("perplexity", [openai_like("hello", citations=["u"]), openai_like("", "stop", usage=USED), DONE], "stop"),
    ("fireworks_ai", [openai_like("hello"), openai_like(None, "stop", usage=USED), DONE], "stop"),
    ("nvidia_nim", [openai_like("hello"), openai_like("", "tool_calls"), DONE], "tool_calls"),
    ("databricks", [openai_like("hello"), openai_like("", "stop", usage=USED), DONE], "stop"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "streamed", "finish"), STREAMS)
async def test_a_stream_ends_as_its_provider_ended_it(name: str, streamed: list[Event], finish: str | None) -> None:
    model = "gemini-2.5-flash" if name == "gemini" else "m"
    async with provider(name, streamed) as upstream:
        reply = await send(upstream, ask(model=model, stream=True))
        *chunks, last = await events(reply)

    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    if finish is None:
        assert (reasons, last["error"]["code"]) == ([], "upstream_broke_off")
    else:
        assert (reasons, last) == ([finish], "[DONE]")
        assert "error" not in reply.facts


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("answer", [b"<html>Hello</html>", b'data: {"candidates": [{"con', b"{}"])
@pytest.mark.parametrize("name", ["gemini", "mistral", "groq", "openai", "cohere_chat"])
async def test_an_answer_that_is_none_has_broken_off(name: str, answer: bytes, stream: bool) -> None:
    """litellm has many words for that, and waits without end for the rest of what Gemini has cut off."""
    async with provider(name, answer) as upstream:
        with pytest.raises(Unanswered) as raised:
            await send(upstream, ask(model="gemini-2.5-flash", stream=stream))

    assert (raised.value.status, raised.value.code) == (502, "upstream_broke_off")
    assert "litellm" not in raised.value.message.lower()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["anthropic", "gemini", "openai"])
async def test_a_redirect_takes_no_key_to_another_host(name: str, stream: bool) -> None:
    received: list[web.Request] = []

    async def other(request: web.Request) -> web.StreamResponse:
        received.append(request)
        return web.json_response({})

    async def redirect(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"location": away})

    async with serving(other) as away, serving(redirect) as url:
        upstream = Provider(name, ForeignUpstream(kind="foreign", provider=name, base_url=url))
        with pytest.raises(UpstreamFailed, match="set its base_url to the final address"):
            await send(upstream, ask(model="gemini-2.5-flash", stream=stream))

    assert received == []


async def test_an_error_with_status_200_or_within_a_stream_keeps_its_words() -> None:
    async with provider("openrouter", {"error": {"code": 429, "message": "Slow down."}}) as upstream:
        reply = await send(upstream, ask(model="m"))

    assert (reply.status, error(reply)["message"]) == (429, "Slow down.")
    broken = google(503, "UNAVAILABLE", "The model is overloaded.")
    async with provider("gemini", [gemini("hello"), broken]) as upstream:
        *_, last = await events(await send(upstream, ask(model="gemini-2.5-flash", stream=True)))

    assert last["error"]["message"].endswith("The model is overloaded.")
    assert last["error"]["code"] == "server_is_overloaded"


def google(code: int, status: str, message: str, **detail: Any) -> Event:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **detail}]
    return {"error": {"code": code, "status": status, "message": message, "details": details}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("sent", "status", "code", "retry_after"), [
    (google(400, "INVALID_ARGUMENT", "API key not valid.", reason="API_KEY_INVALID"), 401, "invalid_api_key", None),
    (google(400, "INVALID_ARGUMENT", "Bad temperature.", reason="OTHER"), 400, None, None),
    (google(429, "RESOURCE_EXHAUSTED", "Quota exceeded.", retryDelay="20.3s"), 429, "rate_limit_exceeded", b"21"),
    (google(429, "RESOURCE_EXHAUSTED", "Quota exceeded.", retryDelay="soon"), 429, "rate_limit_exceeded", None),
    (google(503, "UNAVAILABLE", "The model is overloaded."), 503, "server_is_overloaded", None),
])  # fmt: skip
async def test_googles_errors_keep_their_words_status_and_delay(
    stream: bool, sent: Event, status: int, code: str | None, retry_after: bytes | None
) -> None:
    async with provider("gemini", sent, status=sent["error"]["code"]) as upstream:
        reply = await send(upstream, ask(model="gemini-2.5-flash", stream=stream))

    told = error(reply)
    assert (reply.status, told["message"], told["code"]) == (status, sent["error"]["message"], code)
    assert dict(reply.headers).get(b"retry-after") == retry_after


async def test_what_gemini_does_not_take_is_told() -> None:
    async with provider("gemini", gemini("hello", "STOP")) as upstream:
        fields: Event = {"seed": 3, "logprobs": True, "top_logprobs": 2, "verbosity": "low", "n": 1}
        reply = await send(upstream, ask(model="gemini-2.5-flash", **fields))

    assert reply.facts["ignored"] == "seed,top_logprobs,verbosity"
