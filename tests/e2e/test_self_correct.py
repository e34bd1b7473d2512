"""What was wrong with an answer is told in the next request; the answer itself passes as it came, and at once."""

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.conftest import Client
from tests.e2e.servers import Received, Upstream, answering, begin_stream, send, send_chunk, until
from tests.scripted import answer, calls, event

CONFIG = """
models: [{match: "*", upstream: main, window: 8000, tokenizer: chars}]
chains: {default: [self_correct: {}]}
"""
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {"tools": [{"type": "function", "function": {"name": "book", "parameters": CITY}}]}
ASKED = [{"role": "user", "content": "Book a room."}]
NEXT = [*ASKED, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
KEY = "k"
NAMES = {"x-penstock-session": "one"}
FINE = json.dumps(answer("You are welcome.")).encode()


async def sent(client: Client, behind: Upstream, session: str = "one") -> list[dict[str, Any]]:
    """Send the next request; return the messages that the upstream gets."""
    assert (await client.chat(messages=NEXT, headers={"x-penstock-session": session})).status == 200
    return list(json.loads(behind.last.body)["messages"])


async def noted(client: Client, behind: Upstream) -> list[dict[str, Any]]:
    """Return the same, once there is a note: it is left after the client has its answer."""
    return await until(lambda: sent(client, behind), lambda got: len(got) > len(NEXT))


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "empty": (answer(""), {}, "was empty"),
    "no JSON": (answer("no"), {"response_format": {"type": "json_object"}}, "JSON"),
    "arguments": (answer(None, "book:c"), TOOLS, "$ lacks city"),
}


@pytest.mark.parametrize(("wrong", "fields", "said"), WRONG.values(), ids=WRONG)
async def test_an_answer_that_was_wrong_leaves_a_note(
    client: Client, behind: Upstream, wrong: Any, fields: dict[str, Any], said: str
) -> None:
    behind.respond = answering(json.dumps(wrong).encode(), FINE)
    assert (await client.chat(messages=ASKED, headers=NAMES, **fields)).json == wrong
    got = await noted(client, behind)
    assert [message["role"] for message in got] == ["user", "assistant", "user", "user"]
    assert said in got[2]["content"]
    assert got[-1] == NEXT[-1]
    assert await sent(client, behind) == got, "it stays the same"
    assert await sent(client, behind, "two") == NEXT


async def test_a_stream_is_relayed_as_it_comes_and_looked_at_then(client: Client, behind: Upstream) -> None:
    go_on = asyncio.Event()
    call = {**calls("book:c")[0], "index": 0}
    deltas: list[tuple[Any, str | None]] = [({"role": "assistant", "tool_calls": [call]}, None), ({}, "tool_calls")]
    choices = [{"index": 0, "delta": delta, "finish_reason": finish} for delta, finish in deltas]
    first, last = (event({"id": "x", "choices": [choice]}) for choice in choices)

    async def respond(behind: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
        if len(behind.received) > 1:
            return await send(writer, 200, FINE)
        await begin_stream(writer)
        await send_chunk(writer, first)
        await go_on.wait()
        await send_chunk(writer, last + b"data: [DONE]\n\n")
        return await send_chunk(writer, b"")

    behind.respond = respond
    body = {"model": "m", "messages": ASKED, **TOOLS, "stream": True}
    headers = {"authorization": "Bearer k", **NAMES}
    async with client.http.post(f"{client.base}/v1/chat/completions", json=body, headers=headers) as response:
        assert await response.content.readexactly(len(first)) == first
        go_on.set()  # the upstream goes on only now that the client has the first part
        assert await response.content.read() == last + b"data: [DONE]\n\n"
    assert "$ lacks city" in (await noted(client, behind))[2]["content"]
