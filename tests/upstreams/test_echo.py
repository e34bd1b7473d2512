"""The upstream that needs nothing."""

import json
from typing import Any

import pytest

from proxy.chat import ChatRequest
from proxy.chat.errors import BadRequest, NotFound
from proxy.testing import CharTokens, chat, tool
from proxy.upstreams.base import Call, Reply
from proxy.upstreams.completion import DONE, JSON_HEADERS, STREAM_HEADERS
from proxy.upstreams.echo import Echo

ECHO = Echo("echo")


async def asked(request: ChatRequest) -> Reply:
    call = Call("/chat/completions", request.model, request.encode(), {}, request=request, tokens=CharTokens())
    return await ECHO.send(call)


async def events(reply: Reply) -> list[bytes]:
    assert reply.body is None
    assert reply.chunks is not None
    whole = b"".join([chunk async for chunk in reply.chunks])
    return whole.split(b"\n\n")[:-1]


def read(event: bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return data


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
    sent = await events(reply)

    assert (reply.status, reply.headers) == (200, STREAM_HEADERS)
    chunks = [read(event) for event in sent[:-1]]
    assert sent[-1] == DONE.strip()
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == whole
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]


@pytest.mark.parametrize("path", ["/embeddings", "/models", "/responses", "/nowhere"])
async def test_every_other_path_is_not_found(path: str) -> None:
    with pytest.raises(NotFound, match=f"/v1{path}"):
        await ECHO.send(Call(path, "", b"{}", {}))


async def test_a_request_without_messages_is_refused() -> None:
    with pytest.raises(BadRequest) as caught:
        await asked(chat(""))

    assert (caught.value.param, caught.value.code) == ("messages", "empty_array")
