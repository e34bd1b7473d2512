"""A guard sees every string of a request: it is redacted or the request is refused, and never forwarded."""

import json
from typing import Any

import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from tests.e2e.conftest import Lab, Setup
from tests.e2e.servers import begin_stream, say, send, send_chunk
from tests.sdk_types import MARK, planted
from tests.upstreams.anthropic.stand_in import stream_events as anthropic_events
from tests.wires import openai_server

CONFIG = """
upstreams:
  main: {{kind: openai, base_url: "{url}"}}
  claude: {{kind: anthropic, base_url: "{url}", api_key: k}}
models:
  - {{match: "claude-*", upstream: claude}}
  - {{match: open, upstream: main, chain: open}}
  - {{match: "*", upstream: main}}
chains:
  default:
    - redact_secrets: {{}}
    - reject_oversize: {{}}
  open: []
records: {{text: true}}
"""


@pytest.fixture
async def setup(lab: Lab) -> Setup:
    return Setup(await lab.start(CONFIG.format(url=lab.behind.url)), lab.behind, lab.http)


BODIES = dict(
    [*planted(CompletionCreateParamsNonStreaming, ""), *planted(CompletionCreateParamsStreaming, "")]
)  # fmt: skip


def test_the_fields_of_the_sdk_are_found() -> None:
    places = " ".join(BODIES)
    for name in (".user", ".metadata", ".prediction", ".stop", ".filename", ".image_url.url", ".functions", ".city"):
        assert name in places
    assert len(BODIES) > 100


async def test_no_string_of_the_sdk_gets_past_it(setup: Setup) -> None:
    refused, late = set[str](), list[str]()
    for place, body in BODIES.items():
        spoken = [{"role": "user", "content": "hi"}]
        messages = [*(body["messages"] if place.startswith(".messages") else ()), *spoken]
        body = {
            **body,
            "model": body["model"] if place == ".model" else "guarded",
            "messages": messages,
            "stream": False,
        }
        setup.upstream.reset()
        async with setup.session.post(setup.url, json=body) as response:
            await response.read()
            if response.status != 200:
                refused.add(place)
        late += [place for each in setup.upstream.received if MARK.encode() in each.body]
    assert late == []
    # a model cannot be redacted; the other is a name of the client's own where only known ones are read
    assert refused == {".model", ".tool_choice|1.allowed_tools.tools[].*"}


@pytest.mark.parametrize(
    ("body", "headers", "query", "status"),
    [
        pytest.param({"wish": f"for {MARK}"}, {}, "", 400, id="an unknown field"),
        pytest.param({"wish": [{MARK: 1}]}, {}, "", 400, id="a key of an unknown field"),
        pytest.param({MARK: 1}, {}, "", 400, id="the name of a field"),
        pytest.param({"messages": [{"role": "user", "content": "hi", "note": MARK}]}, {}, "", 400, id="in a message"),
        pytest.param({}, {"x-user-email": MARK, "x-team": "search"}, "", 200, id="a header"),
        pytest.param({}, {}, "user=marker.4711%40example.com", 400, id="the query"),
        pytest.param({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": f"https://cdn.example.com/{MARK}.png"}}]}]}, {}, "", 200, id="the address of an image"),
        pytest.param({"messages": [{"role": "user", "content": json.dumps({"a": MARK}).replace("@", "\\u0040")}]},
                     {}, "", 200, id="escaped in JSON"),
    ],
)  # fmt: skip
async def test_nor_does_any_other(
    setup: Setup, body: dict[str, Any], headers: dict[str, str], query: str, status: int
) -> None:
    body = {"model": "guarded", "messages": [{"role": "user", "content": "hi"}], **body}
    async with setup.session.post(f"{setup.url}?{query}", json=body, headers=headers) as response:
        told = await response.text()
        assert response.status == status, told
    for each in setup.upstream.received:
        sent = f"{each.path} {each.headers} {each.body.decode()}"
        assert "marker.4711" not in sent  # a port may have the digits alone
        assert each.header("x-team") == headers.get("x-team")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_has_again_what_the_model_never_saw(setup: Setup, stream: bool) -> None:
    async def echoing(upstream: Any, received: Any, writer: Any) -> None:
        text = json.loads(received.body)["messages"][-1]["content"]
        call = {"id": "c1", "type": "function", "function": {"name": "mail", "arguments": json.dumps({"to": text})}}
        message = {"role": "assistant", "content": f"You said: {text}", "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        await say(
            writer, received, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    setup.upstream.respond = echoing
    body = {"model": "guarded", "messages": [{"role": "user", "content": f"I am {MARK}"}], "stream": stream}
    async with setup.session.post(setup.url, json=body) as response:
        told = (await response.read()).decode()
        number = response.headers["x-request-id"]
    if stream:
        chunks = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        told = "".join(delta.get("content") or "" for delta in deltas)
        told += "".join(call["function"].get("arguments", "") for each in deltas for call in each.get("tool_calls", ()))
    assert f"You said: I am {MARK}" in told
    assert told.count(MARK) == 2
    assert MARK.encode() not in setup.upstream.last.body
    await check_kept(setup, number)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["messages", "responses"])
async def test_nor_on_the_vendors_own_wires(setup: Setup, path: str, stream: bool) -> None:
    async def echoing(upstream: Any, received: Any, writer: Any) -> None:
        body = json.loads(received.body)
        text = f"You said: {body['messages' if path == 'messages' else 'input'][-1]['content']}"
        if path == "messages":
            usage = {"input_tokens": 1, "output_tokens": 1}
            content = [
                {"type": "text", "text": text},
                {"type": "tool_use", "id": "t", "name": "n", "input": {"a": text}},
            ]
            answer = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content,
                      "stop_reason": "tool_use", "stop_sequence": None, "usage": usage}  # fmt: skip
            events = anthropic_events(answer, "whole")
        else:
            said = {**openai_server.message(text), "id": "msg_1", "status": "completed"}
            called = {**openai_server.call("c", "n", a=text), "id": "fc_1", "status": "completed"}
            answer = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [said, called]}
            events = list(openai_server.stream_events(answer))
        if not stream:
            await send(writer, 200, json.dumps(answer).encode())
            return
        await begin_stream(writer)
        for event in events:
            await send_chunk(writer, f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await send_chunk(writer, b"")

    setup.upstream.respond = echoing
    said = [{"role": "user", "content": f"I am {MARK}"}]
    own = {"messages": said, "max_tokens": 9} if path == "messages" else {"input": said}
    body = {"model": "claude-opus-5" if path == "messages" else "guarded", "stream": stream, **own}
    async with setup.session.post(f"{setup.base}/v1/{path}", json=body) as response:
        told = (await response.read()).decode()
        assert response.status == 200, told
        number = response.headers["x-request-id"]
    if stream:
        deltas = [json.loads(line[6:]).get("delta") for line in told.splitlines() if line.startswith("data: ")]
        texts = [
            each if isinstance(each, str) else (each or {}).get("text") or (each or {}).get("partial_json")
            for each in deltas
        ]
        told = "".join(filter(None, texts))
    assert f"You said: I am {MARK}" in told
    assert told.count(MARK) == 2
    assert MARK.encode() not in setup.upstream.last.body
    await check_kept(setup, number)


async def check_kept(setup: Setup, number: str) -> None:
    """No record and no explanation that operators read has the secret."""
    for path in (f"/admin/requests/{number}?text=true", "/admin/conversations?text=true"):
        async with setup.session.get(f"{setup.base}{path}") as response:
            assert MARK not in await response.text()


async def test_the_same_conversation_sends_the_same_bytes(setup: Setup) -> None:
    messages = [{"role": "user", "content": f"I am {MARK}"}]
    bodies = list[str]()
    for n in range(3):
        async with setup.session.post(setup.url, json={"model": "guarded", "messages": messages}) as response:
            assert response.status == 200
        bodies.append(setup.upstream.last.body.decode().rpartition("]")[0])
        messages += [{"role": "assistant", "content": f"Hello {MARK}"}, {"role": "user", "content": f"{n}"}]
    assert bodies[1].startswith(bodies[0])
    assert bodies[2].startswith(bodies[1])


@pytest.mark.parametrize("path", ["messages", "responses"])
async def test_nor_behind_signed_reasoning(setup: Setup, path: str) -> None:
    """The beginning that the reasoning stands on was sent with placeholders, and stays so."""
    listed, own = ("messages", {"max_tokens": 9}) if path == "messages" else ("input", {})
    thought: dict[str, Any]
    answer: dict[str, Any]
    said: list[dict[str, Any]]
    if path == "messages":
        thought = {"type": "thinking", "thinking": "Let me see.", "signature": "s"}
        answer = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                  "content": [thought, {"type": "text", "text": "Hello."}],
                  "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
        said = [{"role": "assistant", "content": answer["content"]}]
    else:
        thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}
        said = [thought, {**openai_server.message("Hello."), "id": "msg_1", "status": "completed"}]
        answer = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": said}

    async def respond(upstream: Any, received: Any, writer: Any) -> None:
        await send(writer, 200, json.dumps(answer).encode())

    setup.upstream.respond = respond
    talk: list[dict[str, Any]] = [{"role": "user", "content": f"I am {MARK}"}]
    before: list[Any] = []
    for n in range(3):
        body = {"model": "claude-opus-5" if path == "messages" else "guarded", listed: talk, **own}
        async with setup.session.post(f"{setup.base}/v1/{path}", json=body) as response:
            assert response.status == 200, await response.text()
        assert MARK.encode() not in setup.upstream.last.body
        sent = json.loads(setup.upstream.last.body)[listed]
        assert sent[: len(before)] == before
        assert json.dumps(sent).count("encrypted_content" if path == "responses" else "signature") == n
        before = sent
        talk += [*said, {"role": "user", "content": f"I am {MARK} still, {n}."}]
