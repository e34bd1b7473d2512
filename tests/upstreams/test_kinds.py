"""The same of each kind of upstream that translates: answers and errors in OpenAI's form, and nothing left behind."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiohttp import web

from proxy.chat import ChatRequest
from proxy.chat.errors import BadRequest, PenstockError, Unanswered, UpstreamFailed, UpstreamTimeout
from proxy.config.settings import AnthropicUpstream, ForeignUpstream, OllamaUpstream
from proxy.testing import chat, tool
from proxy.upstreams.anthropic import Anthropic
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.foreign.worker import Provider
from proxy.upstreams.ollama import Ollama
from tests.loopback import serving
from tests.upstreams.foreign.conftest import close_litellm
from tests.upstreams.foreign.fake_anthropic import FakeAnthropic, fake_anthropic
from tests.upstreams.ollama.fake_ollama import FakeOllama, fake_ollama
from tests.upstreams.streams import assembled, events

KEY = "sk-ant-client-key"
MODEL = "claude-sonnet-4-5"
TOOLS = (tool(),)
ARGUMENTS = [{"key": "a"}, {"key": "ä"}]


@dataclass
class Lab:
    """An upstream, and the server behind it."""

    upstream: Any
    server: FakeAnthropic | FakeOllama

    async def send(self, request: ChatRequest, **fields: Any) -> Reply:
        key = f"Bearer {KEY}"
        call = Call("/chat/completions", MODEL, b"", {"authorization": key}, request=request, **fields)
        reply: Reply = await self.upstream.send(call)
        return reply

    async def fails(self, request: ChatRequest, **fields: Any) -> PenstockError:
        with pytest.raises(PenstockError) as caught:
            await self.send(request, **fields)
        assert self.server.url.removeprefix("http://") not in caught.value.message
        assert KEY not in caught.value.message
        return caught.value

    def say_all(self) -> None:
        """Have a thought, a text and two calls said."""
        if isinstance(self.server, FakeOllama):
            said: list[dict[str, Any]] = [{"thinking": "hm"}, {"content": "hel"}, {"content": "lo"}]
            calls = [{"function": {"index": 0, "name": "look_up", "arguments": each}} for each in ARGUMENTS]
            said += [{"tool_calls": [calls[0]]}, {"tool_calls": [calls[1]]}]
            self.server.said = [{"role": "assistant", "content": "", **each} for each in said]
        else:
            used = ({"id": f"tu_{n}", "name": "look_up", "input": each} for n, each in enumerate(ARGUMENTS))
            thought = {"type": "thinking", "thinking": "hm", "signature": "signed"}
            text = {"type": "text", "text": "hello"}
            self.server.content = [thought, text, *({"type": "tool_use", **each} for each in used)]
            self.server.stop_reason = "tool_use"

    def end(self, how: str) -> None:
        """Have a stream end so: `cut`, `error` after some text, `empty` or `never`."""
        self.server.ending = how
        if isinstance(self.server, FakeOllama) and how in ("error", "empty"):
            self.server.ending, self.server.error = "short", "Overloaded" if how == "error" else ""
            self.server.said = self.server.said if how == "error" else []


Start = Callable[..., AbstractAsyncContextManager[Lab]]


@asynccontextmanager
async def anthropic(**settings: Any) -> AsyncGenerator[Lab, None]:
    async with fake_anthropic() as server:
        made = Anthropic("main", AnthropicUpstream(**{"kind": "anthropic", "base_url": server.url, **settings}))
        yield Lab(made, server)
        await made.aclose()


@asynccontextmanager
async def ollama(**settings: Any) -> AsyncGenerator[Lab, None]:
    async with fake_ollama() as server:
        chosen = OllamaUpstream(**{"kind": "ollama", "base_url": server.url, **settings})
        made = Ollama("main", chosen, lambda model: None)
        yield Lab(made, server)
        await made.aclose()


@asynccontextmanager
async def litellm(**settings: Any) -> AsyncGenerator[Lab, None]:
    async with fake_anthropic() as server:
        settings["timeout"] = settings.pop("idle_timeout", 600.0)
        chosen = {"kind": "foreign", "provider": "anthropic", "base_url": server.url, **settings}
        made = Provider("main", ForeignUpstream.model_validate(chosen))
        await made._loaded()
        yield Lab(made, server)
        await close_litellm()


@pytest.fixture(params=[anthropic, ollama, litellm], ids=lambda each: each.__name__)
def start(request: pytest.FixtureRequest) -> Start:
    made: Start = request.param
    return made


@pytest.fixture
async def lab(start: Start) -> AsyncIterator[Lab]:
    async with start() as made:
        yield made


def ask(conversation: str = "u1", **rest: Any) -> ChatRequest:
    return chat(conversation, model=MODEL, **rest)


both = pytest.mark.parametrize("stream", [False, True])


async def test_a_whole_answer_and_a_stream_say_the_same_in_openais_form(lab: Lab) -> None:
    lab.say_all()
    reply = await lab.send(ask(tools=TOOLS))
    whole = json.loads(reply.body or b"")
    lab.say_all()
    streaming = await lab.send(ask(tools=TOOLS, stream=True))
    *chunks, done = await events(streaming)

    assert reply.headers == [(b"content-type", b"application/json")]
    assert streaming.headers[0] == (b"content-type", b"text/event-stream; charset=utf-8")
    assert whole["id"].startswith("chatcmpl-")
    assert whole["object"] == "chat.completion"
    assert set(whole) <= {"id", "object", "created", "model", "choices", "usage", "service_tier", "system_fingerprint"}
    (choice,) = whole["choices"]
    assert set(choice) == {"index", "message", "logprobs", "finish_reason"}
    message = choice["message"]
    assert (message["role"], message["content"], message["refusal"]) == ("assistant", "hello", None)
    assert message["reasoning_content"] == "hm"
    assert [set(call) for call in message["tool_calls"]] == [{"id", "type", "function"}] * 2
    assert all(call["id"] for call in message["tool_calls"])
    assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == ARGUMENTS
    assert choice["finish_reason"] == "tool_calls"
    usage = whole["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0

    assert done == "[DONE]"
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert not any("usage" in chunk for chunk in chunks)
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert not any(set(chunk["choices"][0]) - {"index", "delta", "logprobs", "finish_reason"} for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"].items() >= {"role": "assistant", "content": ""}.items()
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["tool_calls"]
    streamed = assembled(chunks)
    assert (streamed["content"], streamed["reasoning_content"]) == ("hello", "hm")
    assert [call["index"] for call in streamed["tool_calls"]] == [0, 1]
    assert [json.loads(call["function"]["arguments"]) for call in streamed["tool_calls"]] == ARGUMENTS
    assert len({call["id"] for call in streamed["tool_calls"]}) == 2


async def test_usage_is_streamed_to_those_who_ask(lab: Lab) -> None:
    *chunks, last, done = await events(await lab.send(ask(stream=True, stream_options={"include_usage": True})))

    assert done == "[DONE]"
    assert all(chunk["choices"] and not chunk.get("usage") for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 7
    assert last["id"] == chunks[0]["id"]


@both
@pytest.mark.parametrize(("status", "kind", "code"), [
    (400, "invalid_request_error", None),
    (401, "invalid_request_error", "invalid_api_key"),
    (403, "invalid_request_error", "permission_denied"),
    (404, "invalid_request_error", "model_not_found"),
    (429, "rate_limit_error", "rate_limit_exceeded"),
    (500, "server_error", None),
    (503, "service_unavailable_error", "server_is_overloaded"),
])  # fmt: skip
async def test_a_refusal_keeps_its_words(lab: Lab, stream: bool, status: int, kind: str, code: str | None) -> None:
    lab.server.status, lab.server.error = status, "No, said the provider."

    error = await lab.fails(ask(stream=stream))

    assert (error.status, error.type, error.code) == (status, kind, code)
    assert "No, said the provider." in error.message
    assert len(lab.server.bodies) == 1, "it is asked once"


@both
@pytest.mark.parametrize(("status", "told", "limit"), [
    (400, "prompt is too long: 200001 tokens > 200000 maximum",
     "200000 tokens. However, your messages resulted in 200001 tokens."),
    (413, "Request exceeds the maximum size", ""),
])  # fmt: skip
async def test_a_full_context_has_known_words(lab: Lab, stream: bool, status: int, told: str, limit: str) -> None:
    lab.server.status, lab.server.error = status, told

    error = await lab.fails(ask(stream=stream))

    assert (error.status, error.type) == (400, "invalid_request_error")
    assert (error.code, error.param) == ("context_length_exceeded", "messages")
    assert error.message.startswith(f"This model's maximum context length is {limit}")
    assert error.message.endswith(f"Please reduce the length of the messages. {told} (context_length_exceeded)")


@pytest.mark.parametrize(
    ("ending", "code"), [("error", {None, "server_is_overloaded"}), ("cut", {"upstream_broke_off"})]
)
async def test_a_stream_that_breaks_ends_with_an_error(lab: Lab, ending: str, code: set[str | None]) -> None:
    lab.end(ending)
    reply = await lab.send(ask(stream=True))
    *chunks, last = await events(reply)

    assert chunks
    assert not any(choice["finish_reason"] for chunk in chunks for choice in chunk["choices"])
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert last["error"]["code"] in code
    assert ("Overloaded" in last["error"]["message"]) is (ending == "error")
    assert lab.server.url.removeprefix("http://") not in last["error"]["message"]


async def test_a_stream_that_breaks_before_its_first_chunk_keeps_its_status(lab: Lab) -> None:
    lab.end("empty")

    assert isinstance(await lab.fails(ask(stream=True)), UpstreamFailed)


@both
@pytest.mark.parametrize("answer", [b"<html>Hello, says a proxy.</html>", b"[]", b'{"a": 1}', b""])
async def test_a_server_that_answers_nonsense_has_broken_off(lab: Lab, stream: bool, answer: bytes) -> None:
    lab.server.raw = answer

    error = await lab.fails(ask(stream=stream))

    assert (type(error), error.status, error.code) == (Unanswered, 502, "upstream_broke_off")
    assert "Hello" not in error.message


async def test_a_server_that_is_down_or_says_nothing(start: Start) -> None:
    async with start(base_url="http://127.0.0.1:1") as lab:
        error = await lab.fails(ask())

    assert (error.status, error.code) == (502, "upstream_unreachable")
    assert "'main'" in error.message
    async with start(idle_timeout=1.0) as lab:
        lab.server.delay = 30
        assert isinstance(await lab.fails(ask()), UpstreamTimeout)


async def test_a_request_that_cannot_be_translated_is_never_sent(lab: Lab) -> None:
    error = await lab.fails(ask(temperature="hot"))

    assert isinstance(error, BadRequest)
    assert error.param == "temperature"
    assert lab.server.paths == []


async def test_calls_with_a_type_of_null_are_sent(lab: Lab) -> None:
    """Clients that put the deltas of a stream together send such calls."""
    request = ask("u a!c1 tc1")
    calling = request.messages[1]
    calls = [{**each, "type": None} for each in calling["tool_calls"]]
    messages = (request.messages[0], calling.with_changes(tool_calls=calls), request.messages[2])

    assert (await lab.send(request.with_messages(messages))).status == 200


async def test_fields_that_the_server_lacks_are_left_out_and_told(lab: Lab) -> None:
    reply = await lab.send(ask(logit_bias={"1": 2}, n=1, parallel_tool_calls=True))

    assert reply.facts["ignored"] == "logit_bias", "`n: 1` asks for nothing"
    assert "logit_bias" not in lab.server.bodies[-1]


async def test_strict_params_refuse_them(start: Start) -> None:
    async with start(strict_params=True) as lab:
        error = await lab.fails(ask(logit_bias={"1": 2}))
        assert lab.server.bodies == []

    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "logit_bias")


@pytest.mark.parametrize("is_read", [True, False])
async def test_closing_a_stream_stops_the_server(lab: Lab, is_read: bool) -> None:
    lab.end("never")
    reply = await lab.send(ask(stream=True))
    assert reply.chunks is not None
    if is_read:
        await anext(aiter(reply.chunks))

    await reply.chunks.aclose()

    await asyncio.wait_for(lab.server.dropped.wait(), 60)


async def test_a_client_that_leaves_before_the_answer_stops_the_server(lab: Lab) -> None:
    lab.server.delay = 30
    sending = asyncio.create_task(lab.send(ask()))
    await lab.server.asked.wait()

    sending.cancel()

    await asyncio.wait_for(lab.server.dropped.wait(), 60)
    with suppress(asyncio.CancelledError):
        await sending


async def test_a_redirect_of_a_path_that_passes_is_not_followed() -> None:
    async def redirect(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"location": "https://evil.example/v1"})

    async with serving(redirect) as url:
        upstream = Anthropic("main", AnthropicUpstream(kind="anthropic", base_url=url))
        asked = Call("/messages", MODEL, b"{}", {"x-api-key": KEY})
        with pytest.raises(UpstreamFailed, match="set its base_url to the final address"):
            await upstream.send(asked)
        assert (await upstream.send(replace(asked, path="/models", method="GET"))).status == 307
        await upstream.aclose()
