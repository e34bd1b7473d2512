"""What was wrong with an answer is told in the next request; the answer itself passes as it came, and at once."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Upstream, answering, begin_stream, send, send_chunk

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "*", upstream: main, window: 8000, tokenizer: chars}}]
chains: {{default: [{steps}]}}
state: {{kind: memory}}
"""

TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED = [{"role": "user", "content": "Book a room."}]
NEXT = [*ASKED, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]


def whole(message: dict[str, Any], finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}).encode()


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "choices": [choice]}).encode() + b"\n\n"


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "book", "arguments": '{"town": "Leon"}'}}


class Running:
    def __init__(self, base: str, behind: Upstream, http: aiohttp.ClientSession) -> None:
        self.base, self.behind, self.http = base, behind, http
        self.go_on = asyncio.Event()

    async def ask(self, messages: list[Any], session: str = "one", **fields: Any) -> bytes:
        body = {"model": "m", "messages": messages, **fields}
        headers = {"authorization": "Bearer k", "x-penstock-session": session}
        async with self.http.post(f"{self.base}/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 200
            return await response.read()

    async def sent(self, messages: list[Any] = NEXT, session: str = "one") -> list[dict[str, Any]]:
        """What the upstream gets for messages."""
        await self.ask(messages, session)
        got: list[dict[str, Any]] = json.loads(self.behind.last.body)["messages"]
        return got

    async def told(self, messages: list[Any] = NEXT) -> list[dict[str, Any]]:
        """The same, once there is a note: it is left after the client has its answer."""
        async with asyncio.timeout(60):
            while True:
                got = await self.sent(messages)
                if len(got) > len(messages):
                    return got


async def running(lab: Lab, steps: str = "self_correct: {}") -> Running:
    return Running(await lab.start(CONFIG.format(url=lab.behind.url, steps=steps)), lab.behind, lab.http)


FINE = whole({"content": "You are welcome."})


@pytest.mark.parametrize(
    ("answer", "fields", "said"),
    [
        pytest.param(whole({"content": ""}), {}, "was empty", id="empty"),
        pytest.param(whole({"content": "no"}), {"response_format": {"type": "json_object"}}, "JSON", id="no JSON"),
        pytest.param(whole({"content": None, "tool_calls": [CALL]}, "tool_calls"), {"tools": [TOOL]}, "$ lacks city", id="arguments"),
    ],
)  # fmt: skip
async def test_an_answer_that_was_wrong_leaves_a_note(
    lab: Lab, answer: bytes, fields: dict[str, Any], said: str
) -> None:
    run = await running(lab)
    run.behind.respond = answering(answer, FINE)
    assert await run.ask(ASKED, **fields) == answer
    got = await run.told()
    assert [message["role"] for message in got] == ["user", "assistant", "user", "user"]
    assert said in got[2]["content"]
    assert got[-1] == NEXT[-1]
    assert await run.sent() == got, "it stays the same"
    assert len(await run.sent(session="two")) == len(NEXT)


async def test_a_stream_is_relayed_as_it_comes_and_looked_at_when_it_has_ended(lab: Lab) -> None:
    run = await running(lab)
    first, rest = event({"role": "assistant", "tool_calls": [CALL]}), event({}, "tool_calls") + b"data: [DONE]\n\n"

    async def respond(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        if len(behind.received) > 1:
            return await send(writer, 200, FINE)
        await begin_stream(writer)
        await send_chunk(writer, first)
        await run.go_on.wait()
        await send_chunk(writer, rest)
        return await send_chunk(writer, b"")

    run.behind.respond = respond
    body = {"model": "m", "messages": ASKED, "tools": [TOOL], "stream": True}
    headers = {"authorization": "Bearer k", "x-penstock-session": "one"}
    async with run.http.post(f"{run.base}/v1/chat/completions", json=body, headers=headers) as response:
        assert await response.content.readexactly(len(first)) == first
        run.go_on.set()  # the upstream goes on only now that the client has the first part
        assert await response.content.read() == rest
    assert "$ lacks city" in (await run.told())[2]["content"]


async def test_good_answers_leave_nothing_and_requests_keep_their_bytes(lab: Lab) -> None:
    run = await running(lab)
    run.behind.respond = answering(FINE)
    for _ in range(3):
        assert await run.sent() == NEXT
