"""What the model notes outlasts the turn that it was noted in, and the client sees nothing of it."""

import asyncio
import json
from typing import Any

import openai
import pytest

from policies.keep_notes import block
from tests.e2e.conftest import Lab
from tests.e2e.servers import Received, Upstream, say
from tests.scripted import answer

CONFIG = """
upstreams: {{main: {{kind: openai, base_url: "{url}"}}}}
models: [{{match: "*", upstream: main, window: 100000}}]
chains:
  default:
    - window_history: {{keep_turns: 2, stride: 1, summary: false}}
    - keep_notes: {{}}
"""
NOTE = "the service listens on port 8443"
LONG = "Read this. " + "word " * 2000
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": {"type": "object"}}}
]


async def model(upstream: Upstream, received: Received, writer: asyncio.StreamWriter) -> None:
    """A model that takes a note in answer to the first message, and says how many requests it has had."""
    said = answer(f"answer {len(upstream.received)}")
    if [item["role"] for item in json.loads(received.body)["messages"]] == ["system", "user"]:
        said = answer(None, "note:n1")
        said["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = json.dumps({"text": NOTE})
    await say(writer, received, said)


async def answered(client: openai.AsyncOpenAI, messages: list[Any], *, stream: bool) -> str:
    """What the client sees of an answer, which must be text alone."""
    if not stream:
        (choice,) = (await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)).choices
        assert not choice.message.tool_calls
        assert choice.finish_reason == "stop"
        return choice.message.content or ""
    chunks = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS, stream=True)
    choices = [choice async for chunk in chunks for choice in chunk.choices]
    assert not any(choice.delta.tool_calls for choice in choices)
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["stop"]
    return "".join(choice.delta.content or "" for choice in choices)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_note_stands_where_it_was_taken_and_after_a_cut_behind_the_head(lab: Lab, stream: bool) -> None:
    talk: list[Any] = [{"role": "system", "content": "You are an agent."}]
    said: list[str] = []
    lab.behind.respond = model
    base = await lab.start(CONFIG.format(url=lab.behind.url))
    async with openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as client:
        for words in (LONG, "Second.", "Third.", "Fourth."):
            talk.append({"role": "user", "content": words})
            said.append(await answered(client, talk, stream=stream))
            talk.append({"role": "assistant", "content": said[-1]})

    assert said == ["answer 2", "answer 3", "answer 4", "answer 5"], "only the first turn took two requests"
    bodies = [json.loads(received.body) for received in lab.behind.received]
    assert all([tool["function"]["name"] for tool in body["tools"]] == ["read_file", "note"] for body in bodies)
    first, noted, second, third, fourth = (body["messages"] for body in bodies)
    assert NOTE not in json.dumps(first)
    assert noted[:2] == first
    assert noted[-1] == {"role": "tool", "tool_call_id": "n1", "content": "Noted."}
    assert second[:4] == noted, "the hidden exchange is there again, and the cached prefix whole"
    about = dict(block([NOTE]))
    for cut in (third, fourth):
        assert cut[:2] == [talk[0], about]
        assert json.dumps(cut).count(NOTE) == 1
        assert not any("tool_calls" in message for message in cut)
    assert third[2]["content"] == "Second."
