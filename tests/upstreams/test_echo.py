"""The upstream that needs nothing."""

import json

import pytest

from proxy.chat import ChatRequest
from proxy.chat.errors import BadRequest, NotFound
from proxy.testing import CharTokens, chat, tool
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.completion import JSON_HEADERS, STREAM_HEADERS
from proxy.upstreams.echo import Echo
from tests.upstreams.streams import assembled, events

ECHO = Echo("echo")


async def asked(request: ChatRequest) -> Reply:
    call = Call("/chat/completions", request.model, request.encode(), {}, request=request, tokens=CharTokens())
    return await ECHO.send(call)


async def test_it_reports_what_reached_it() -> None:
    request = chat("s u1 ax! tx u2", model="echo-1", tools=[tool("look_up"), tool("search")])
    count = await CharTokens().count(request)

    reply = await asked(request)

    assert (reply.status, reply.headers, reply.chunks) == (200, JSON_HEADERS, None)
    answer = json.loads(reply.body or b"")
    text = answer["choices"][0]["message"]["content"]
    assert answer["model"] == "echo-1"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert text.splitlines() == [
        "5 messages (1 system, 2 user, 1 assistant, 1 tool), 2 tools",
        f"about {count.total} tokens: {count.system} system, {count.tools} tools, {count.messages} conversation",
        "tools: look_up, search",
    ]
    assert "a1" not in text, "it repeats nothing that was said"
    assert "tools:" not in str((await asked(chat("u1"))).body)
    assert answer["usage"]["prompt_tokens"] == count.total
    assert answer["usage"]["completion_tokens"] == len(text.split())


async def test_it_streams_the_same_report() -> None:
    request = chat("s u1", tools=[tool()])
    whole = json.loads((await asked(request)).body or b"")["choices"][0]["message"]["content"]

    reply = await asked(request.with_field("stream", True))
    *chunks, done = await events(reply)

    assert (reply.status, reply.headers, done) == (200, STREAM_HEADERS, "[DONE]")
    assert assembled(chunks)["content"] == whole
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("path", ["/embeddings", "/models", "/responses", "/nowhere"])
async def test_every_other_path_is_not_found(path: str) -> None:
    with pytest.raises(NotFound, match=f"/v1{path}"):
        await ECHO.send(Call(path, "", b"{}", {}))


async def test_a_request_without_messages_is_refused() -> None:
    with pytest.raises(BadRequest) as caught:
        await asked(chat(""))

    assert (caught.value.param, caught.value.code) == ("messages", "empty_array")
