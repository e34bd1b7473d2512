"""A guard sees every string of a request: it is redacted or the request is refused, and never forwarded."""

import json
from typing import Any

import pytest

from tests.e2e.conftest import Client
from tests.e2e.servers import Received, Upstream, answering, begin_stream, send, send_chunk
from tests.scripted import answer, assembled, events
from tests.sdk_types import MARK
from tests.upstreams.anthropic.stand_in import stream_events as anthropic_events
from tests.wires import openai_server

CONFIG = """
upstreams:
  main: {kind: openai, base_url: "{url}"}
  claude: {kind: anthropic, base_url: "{url}", api_key: k}
models: [{match: "claude-*", upstream: claude}, {match: "*", upstream: main}]
chains: {default: [redact_secrets: {}, reject_oversize: {}]}
records: {text: true}
"""
CHAT, MESSAGES, RESPONSES = "chat/completions", "messages", "responses"
PATHS = pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])


def asking(path: str, messages: list[Any], **more: Any) -> dict[str, Any]:
    """Return a body of this wire."""
    model = "claude-opus-5" if path == MESSAGES else "gpt-5"
    limit = {"max_tokens": 9} if path == MESSAGES else {}
    return {"model": model, "input" if path == RESPONSES else "messages": messages, **limit, **more}


IMAGE = {"type": "image_url", "image_url": {"url": f"https://cdn.example.com/{MARK}.png"}}
ESCAPED = json.dumps({"a": MARK}).replace("@", "\\u0040")
PLACES: dict[str, tuple[dict[str, Any], dict[str, str], str, int]] = {
    "an unknown field": ({"wish": f"for {MARK}"}, {}, "", 400),
    "a key of an unknown field": ({"wish": [{MARK: 1}]}, {}, "", 400),
    "the name of a field": ({MARK: 1}, {}, "", 400),
    "a field of a message": ({"messages": [{"role": "user", "content": "hi", "note": MARK}]}, {}, "", 400),
    "a header": ({}, {"x-user-email": MARK, "x-team": "search"}, "", 200),
    "the query": ({}, {}, "user=marker.4711%40example.com", 400),
    "the address of an image": ({"messages": [{"role": "user", "content": [IMAGE]}]}, {}, "", 200),
    "escaped in JSON": ({"messages": [{"role": "user", "content": ESCAPED}]}, {}, "", 200),
}


@pytest.mark.parametrize(("body", "headers", "query", "status"), PLACES.values(), ids=PLACES)
async def test_no_string_gets_past_it(
    client: Client, behind: Upstream, body: dict[str, Any], headers: dict[str, str], query: str, status: int
) -> None:
    asked = {**asking(CHAT, [{"role": "user", "content": "hi"}]), **body}
    told = await client.post(f"/v1/chat/completions?{query}", asked, headers)
    assert told.status == status, told.body
    for each in behind.received:
        # a port may have the digits alone
        assert "marker.4711" not in f"{each.path} {each.headers} {each.body.decode()}"
        assert each.header("x-team") == headers.get("x-team")


def said(path: str, text: str, *, thought: bool = False) -> tuple[Any, list[Any]]:
    """Return an answer with a text and a call that has it, or behind a thought; and what a client sends back of it."""
    if path == CHAT:
        call = {"id": "c1", "type": "function", "function": {"name": "n", "arguments": json.dumps({"a": text})}}
        made = answer(text) if thought else answer(text, finish="tool_calls", tool_calls=[call])
        return made, [{"role": "assistant", "content": text}]
    if path == MESSAGES:
        content = [{"type": "text", "text": text}, {"type": "tool_use", "id": "t", "name": "n", "input": {"a": text}}]
        if thought:
            content = [{"type": "thinking", "thinking": "Let me see.", "signature": "s"}, content[0]]
        usage = {"input_tokens": 1, "output_tokens": 1}
        made = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
        return {**made, "stop_reason": "end_turn", "stop_sequence": None}, [{"role": "assistant", "content": content}]
    items: list[Any] = [{**openai_server.message(text), "id": "msg_1", "status": "completed"}]
    if thought:
        items.insert(0, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"})
    else:
        items.append({**openai_server.call("c", "n", a=text), "id": "fc_1", "status": "completed"})
    return {"id": "r", "object": "response", "status": "completed", "model": "m", "output": items}, items


def read(path: str, streamed: bytes) -> str:
    """Return all text of a stream's deltas."""
    if path == CHAT:
        return json.dumps(assembled(streamed))
    lines = streamed.decode().splitlines()
    deltas = [json.loads(line[6:]).get("delta") or {} for line in lines if line.startswith("data: ")]
    texts = [each if isinstance(each, str) else each.get("text") or each.get("partial_json") for each in deltas]
    return "".join(filter(None, texts))


@PATHS
@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_has_again_what_the_model_never_saw(
    client: Client, behind: Upstream, path: str, stream: bool
) -> None:
    async def echoing(upstream: Upstream, received: Received, writer: Any) -> None:
        body = json.loads(received.body)
        made, _ = said(path, f"You said: {body['input' if path == RESPONSES else 'messages'][-1]['content']}")
        if not stream:
            await send(writer, 200, json.dumps(made).encode())
            return
        named = anthropic_events(made, "whole") if path == MESSAGES else openai_server.stream_events(made)
        parts = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in named)
        await begin_stream(writer)
        for part in events(made) if path == CHAT else parts:
            await send_chunk(writer, part)
        await send_chunk(writer, b"")

    behind.respond = echoing
    told = await client.post(f"/v1/{path}", asking(path, [{"role": "user", "content": f"I am {MARK}"}], stream=stream))
    text = read(path, told.body) if stream else told.body.decode()
    assert f"You said: I am {MARK}" in text
    assert text.count(MARK) == 2
    assert MARK.encode() not in behind.last.body
    # nor has any record or explanation that operators read
    for shown in (f"/admin/requests/{told.headers['x-request-id']}", "/admin/conversations"):
        assert MARK.encode() not in (await client.get(f"{shown}?text=true")).body


@PATHS
async def test_each_request_begins_with_the_one_before(client: Client, behind: Upstream, path: str) -> None:
    """The beginning that signed reasoning stands on was sent with placeholders, and stays so."""
    made, back = said(path, "Hello.", thought=True)
    behind.respond = answering(json.dumps(made).encode())
    talk: list[Any] = [{"role": "user", "content": f"I am {MARK}"}]
    before = b""
    for n in range(3):
        told = await client.post(f"/v1/{path}", asking(path, talk))
        assert told.status == 200, told.body
        sent = behind.last.body
        assert MARK.encode() not in sent
        assert sent.startswith(before)
        assert sum(map(sent.count, (b"encrypted_content", b"signature"))) == (0 if path == CHAT else n)
        before = sent[: sent.rindex(b"]")]
        talk += [*back, {"role": "user", "content": f"I am {MARK} still, {n}."}]
